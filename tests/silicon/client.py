"""A program on a GPU, as a process of its own: it does what its standard input says, line by line.

Each answer is one line of JSON, ``{"error": …}`` where CUDA refuses. Standard library; the
frameworks are loaded when they are named. Words of a line:

    cuda | torch | jax      make a context, by CUDA's own library or a framework's first operation
    matmul                  what most programs load next: a matrix product and a convolution
    memory                  what CUDA says is free and is there, in MiB
    alive                   use memory of the GPU, and await it
    fill MIB                allocate MIB at a time until CUDA refuses, and free all
    fault                   write where nothing is, and wait for what becomes of it
    work KIND SECONDS       how often a second: KIND is products or launches
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from importlib import import_module
from typing import Any

LIBRARY = "libcuda.so.1"
MIB = 2**20
MULTIPROCESSORS = 16


class Refused(Exception):  # noqa: N818 that is what it is
    """CUDA refuses; the text names the call and CUDA's name of the error."""


def call(name: str, *arguments: Any) -> None:
    """Call a function of the driver's library."""
    library = ctypes.CDLL(LIBRARY)
    code = getattr(library, name)(*arguments)
    if code:
        text = ctypes.c_char_p()
        library.cuGetErrorName(code, ctypes.byref(text))
        raise Refused(f"{name}: {(text.value or b'unknown error').decode()} ({code})")


def cuda() -> dict[str, Any]:
    """Make the first GPU's context the current one."""
    device, context, version = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_int()
    call("cuInit", 0)
    call("cuDriverGetVersion", ctypes.byref(version))
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    found = ctypes.c_int()
    call("cuDeviceGetAttribute", ctypes.byref(found), MULTIPROCESSORS, device)
    return {"cuda": version.value, "multiprocessors": found.value, "pid": os.getpid()}


def memory() -> dict[str, Any]:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return {"free": free.value // MIB, "total": total.value // MIB}


def fill(mib: int) -> dict[str, Any]:
    """Allocate until CUDA refuses; how much there was, and its last word."""
    held: list[ctypes.c_uint64] = []
    try:
        while True:
            one = ctypes.c_uint64()
            call("cuMemAlloc_v2", ctypes.byref(one), ctypes.c_size_t(mib * MIB))
            held.append(one)
    except Refused as refusal:
        told = str(refusal)
    for one in held:
        call("cuMemFree_v2", one)
    return {"allocated": len(held) * mib, "then": told}


#: Writes to the address 0.
FAULT = b""".version 6.4
.target sm_50
.address_size 64
.visible .entry fault() {
    .reg .b64 %a;
    .reg .b32 %v;
    mov.u64 %a, 0;
    mov.u32 %v, 1;
    st.global.u32 [%a], %v;
    ret;
}
"""


def fault() -> dict[str, Any]:
    """Run a kernel that writes where nothing is."""
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    call("cuModuleLoadData", ctypes.byref(module), FAULT)
    call("cuModuleGetFunction", ctypes.byref(function), module, b"fault")
    call("cuLaunchKernel", function, *(1, 1, 1, 1, 1, 1), 0, None, None, None)
    call("cuCtxSynchronize")
    return {}


def alive() -> dict[str, Any]:
    """Use memory of the GPU, and await it."""
    one = ctypes.c_uint64()
    call("cuMemAlloc_v2", ctypes.byref(one), ctypes.c_size_t(MIB))
    call("cuMemsetD8_v2", one, ctypes.c_ubyte(1), ctypes.c_size_t(MIB))
    call("cuCtxSynchronize")
    call("cuMemFree_v2", one)
    return {"alive": True}


def torch() -> dict[str, Any]:
    framework = import_module("torch")

    one = framework.ones(1, device="cuda")
    framework.cuda.synchronize()
    part = framework.cuda.get_device_properties(0)
    return {
        "version": framework.__version__,
        "multiprocessors": part.multi_processor_count,
        "value": float(one),
        "reserved": framework.cuda.memory_reserved() / MIB,
    }


def jax() -> dict[str, Any]:
    framework, numpy = import_module("jax"), import_module("jax.numpy")

    one = numpy.ones(1).block_until_ready()
    return {"version": framework.__version__, "value": float(one[0]), "reserved": _of_jax()}


def _of_jax() -> float:
    framework = import_module("jax")

    statistics = framework.devices()[0].memory_stats() or {}
    pool = statistics.get("pool_bytes") or statistics.get("bytes_reserved")
    return float(pool or statistics.get("bytes_in_use", 0)) / MIB


def matmul() -> dict[str, Any]:
    if "torch" in sys.modules:
        framework = import_module("torch")

        one = framework.ones(512, 512, device="cuda", dtype=framework.bfloat16)
        image = framework.ones(4, 8, 64, 64, device="cuda")
        kernel = framework.ones(8, 8, 3, 3, device="cuda")
        found = float((one @ one)[0, 0])
        framework.nn.functional.conv2d(image, kernel)
        framework.cuda.synchronize()
        return {"value": found, "reserved": framework.cuda.memory_reserved() / MIB}
    framework, numpy = import_module("jax"), import_module("jax.numpy")

    one = numpy.ones((512, 512), dtype=numpy.bfloat16)
    found = float((one @ one)[0, 0])
    image, kernel = numpy.ones((4, 8, 64, 64)), numpy.ones((8, 8, 3, 3))
    framework.lax.conv(image, kernel, (1, 1), "SAME").block_until_ready()
    return {"value": found, "reserved": _of_jax()}


def work(kind: str, seconds: float) -> dict[str, Any]:
    """Repeat products of matrices in bf16, or small launches, for so long; how often a second."""
    framework = import_module("torch")

    size = 4096 if kind == "products" else 256
    one = framework.randn(size, size, device="cuda", dtype=framework.bfloat16)
    other = framework.empty_like(one)
    times = 20 if kind == "products" else 500

    def turn() -> None:
        for _ in range(times):
            if kind == "products":
                framework.mm(one, one, out=other)
            else:
                framework.add(one, 1, out=other)
        framework.cuda.synchronize()

    turn()
    done, began = 0, time.monotonic()
    while time.monotonic() - began < seconds:
        turn()
        done += times
    return {"rate": round(done / (time.monotonic() - began), 1)}


def answer(words: list[str]) -> dict[str, Any]:
    name, given = words[0], words[1:]
    known: dict[str, Any] = {"cuda": cuda, "torch": torch, "jax": jax, "matmul": matmul}
    known |= {"fault": fault, "alive": alive, "memory": memory, "fill": lambda mib: fill(int(mib))}
    known |= {"work": lambda kind, seconds: work(kind, float(seconds))}
    try:
        return {"asked": name, **known[name](*given)}
    except Exception as error:
        return {"asked": name, "error": f"{type(error).__name__}: {error}"[:600]}


def main() -> None:
    for line in sys.stdin:
        if words := line.split():
            print(json.dumps(answer(words)), flush=True)


if __name__ == "__main__":
    main()
