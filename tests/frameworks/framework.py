"""Imports a framework in a pod, reports its version, CUDA and devices, and computes on each.

    python3 framework.py FRAMEWORK VERSION CUDA

CUDA is that of the build, to the minor version, or `cpu` for a build without one. One line of JSON
is printed. Ends with 1 and a message where the image is not that build, or has no GPU to use.
"""

import json
import sys
import time
from importlib import metadata

SIZE = 64


def jax():
    """Return version, CUDA, devices, and what computes on one."""
    import jax
    import jax.numpy

    plugins = [name for name in ("12", "13") if _there(f"jax-cuda{name}-plugin")]

    def compute(device):
        with jax.default_device(device):
            ones = jax.numpy.ones((SIZE, SIZE))
            return (ones @ ones).sum()

    return jax.__version__, plugins[0] if plugins else None, jax.devices(), compute


def paddle():
    """Return version, CUDA, devices, and what computes on one."""
    import paddle

    cuda = paddle.version.cuda()
    count = paddle.device.cuda.device_count() if paddle.is_compiled_with_cuda() else 0

    def compute(device):
        paddle.device.set_device(device)
        ones = paddle.ones([SIZE, SIZE])
        return (ones @ ones).sum()

    devices = [f"gpu:{number}" for number in range(count)] or ["cpu"]
    return paddle.__version__, None if cuda in (None, "False") else cuda, devices, compute


def pytorch():
    """Return version, CUDA, devices, and what computes on one."""
    import torch

    def compute(device):
        ones = torch.ones(SIZE, SIZE, device=device)
        return (ones @ ones).sum()

    devices = [f"cuda:{number}" for number in range(torch.cuda.device_count())] or ["cpu"]
    return torch.__version__, torch.version.cuda, devices, compute


def tensorflow():
    """Return version, CUDA, devices, and what computes on one."""
    import tensorflow

    def compute(device):
        with tensorflow.device(device):
            ones = tensorflow.ones((SIZE, SIZE))
            return tensorflow.reduce_sum(ones @ ones)

    cuda = tensorflow.sysconfig.get_build_info().get("cuda_version")
    found = [device.name for device in tensorflow.config.list_logical_devices()]
    gpus = [name for name in found if "GPU" in name]
    return tensorflow.__version__, cuda, gpus or found, compute


def _there(distribution):
    try:
        return bool(metadata.version(distribution))
    except metadata.PackageNotFoundError:
        return False


def _failure(said, version, cuda, devices):
    """Return what is not as asked for; empty where all is."""
    found, has = said["version"].partition("+")[0], said["cuda"]
    if found != version:
        return f"version differs — {found} — allowed {version}"
    if (has is None) is not (cuda == "cpu"):
        return f"build differs — {(has and f'CUDA {has}') or 'no CUDA'} — allowed {cuda}"
    if has is not None and not f"{cuda}.".startswith(f"{has}.") and not has.startswith(cuda):
        return f"CUDA differs — {has} — allowed {cuda}"
    if has is not None and not any("cpu" not in device.lower() for device in devices):
        return "no GPU — the pod asks for none, or the driver does not run this CUDA — allowed one"
    wrong = [name for name, value in said["computed"].items() if value != SIZE**3]
    return f"computes wrongly — {', '.join(wrong)} — allowed {SIZE**3}" if wrong else ""


def main():
    """Return the exit status."""
    name, version, cuda = sys.argv[1:]
    started = time.monotonic()
    found, has, devices, compute = KNOWN[name]()
    said = {"framework": name, "version": found, "cuda": has}
    said["computed"] = {str(device): float(compute(device)) for device in devices}
    said["seconds"] = round(time.monotonic() - started, 1)
    print(json.dumps(said), flush=True)
    failure = _failure(said, version, cuda, list(said["computed"]))
    if failure:
        print(f"{name}: {failure}", file=sys.stderr)
    return 1 if failure else 0


KNOWN = {"jax": jax, "paddle": paddle, "pytorch": pytorch, "tensorflow": tensorflow}

if __name__ == "__main__":
    sys.exit(main())
