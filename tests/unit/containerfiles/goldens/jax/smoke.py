"""Imports the framework, says its platform, and computes on each GPU of the pod."""

import jax
import jax.numpy as jnp

print("jax", jax.__version__, "platform", jax.default_backend())
gpus = [device for device in jax.devices() if device.platform == "gpu"]
assert gpus, "no GPU: the pod asks for none, or the driver does not run this CUDA"
for gpu in gpus:
    with jax.default_device(gpu):
        found = (jnp.ones((64, 64)) @ jnp.ones((64, 64))).sum()
    assert float(found) == 64**3
    print(gpu.id, gpu.device_kind)
