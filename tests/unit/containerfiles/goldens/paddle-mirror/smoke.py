"""Imports the framework, says its CUDA, and computes on each GPU of the pod."""

import paddle

print("paddle", paddle.__version__, "CUDA", paddle.version.cuda())
gpus = paddle.device.cuda.device_count()
assert gpus, "no GPU: the pod asks for none, or the driver does not run this CUDA"
for number in range(gpus):
    paddle.device.set_device(f"gpu:{number}")
    found = (paddle.ones([64, 64]) @ paddle.ones([64, 64])).sum()
    assert float(found) == 64**3
    print(number, paddle.device.cuda.get_device_name(number))
