"""Imports the framework, says its version, and computes without a GPU."""

import tensorflow as tf

print("tensorflow", tf.__version__, "CUDA", tf.sysconfig.get_build_info().get("cuda_version"))
found = tf.reduce_sum(tf.ones((64, 64)) @ tf.ones((64, 64)))
assert float(found) == 64**3
