"""Imports the framework, says its CUDA, and computes on each GPU of the pod."""

import tensorflow as tf

print("tensorflow", tf.__version__, "CUDA", tf.sysconfig.get_build_info().get("cuda_version"))
gpus = tf.config.list_physical_devices("GPU")
assert gpus, "no GPU: the pod asks for none, or the driver does not run this CUDA"
for number, gpu in enumerate(gpus):
    with tf.device(f"/GPU:{number}"):
        found = tf.reduce_sum(tf.ones((64, 64)) @ tf.ones((64, 64)))
    assert float(found) == 64**3
    print(number, tf.config.experimental.get_device_details(gpu))
