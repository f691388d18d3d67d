"""Copies memory to every GPU and back, through the driver's own CUDA library.

Run as a program of its own, because a faulty card or driver may hang or end the process. It prints
one JSON object: by UUID, whether the bytes came back the same, and the rates in GB/s; or ``error``.
"""

import ctypes
import json
import os
import time
import uuid
from typing import Any, Dict

LIBRARY = "libcuda.so.1"
BYTES = 64 * 1024 * 1024
ROUNDS = 8


class CudaError(Exception):
    """A call of the library failed; the text names the call and CUDA's name of the error."""


def _cuda() -> Any:
    library = ctypes.CDLL(LIBRARY)

    def call(name: str, *arguments: Any) -> None:
        code = getattr(library, name)(*arguments)
        if code != 0:
            text = ctypes.c_char_p()
            library.cuGetErrorName(code, ctypes.byref(text))
            raise CudaError("{}: {}".format(name, (text.value or b"unknown error").decode()))

    return call


def _rate(call: Any, name: str, to: Any, source: Any) -> float:
    started = time.monotonic()
    for _ in range(ROUNDS):
        call(name, to, source, ctypes.c_size_t(BYTES))
    return round(BYTES * ROUNDS / (time.monotonic() - started) / 1e9, 1)


def _copy(call: Any, device: ctypes.c_int) -> Dict[str, Any]:
    context, memory = ctypes.c_void_p(), ctypes.c_uint64()
    there, back = ctypes.c_void_p(), ctypes.c_void_p()
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    try:
        call("cuCtxSetCurrent", context)
        call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(BYTES))
        for buffer in (there, back):
            call("cuMemHostAlloc", ctypes.byref(buffer), ctypes.c_size_t(BYTES), 0)
        pattern = os.urandom(4096) * (BYTES // 4096)
        ctypes.memmove(there, pattern, BYTES)
        found = {
            "to_gpu": _rate(call, "cuMemcpyHtoD_v2", memory, there),
            "from_gpu": _rate(call, "cuMemcpyDtoH_v2", back, memory),
        }
        return dict(found, same=ctypes.string_at(back, BYTES) == pattern)
    finally:
        call("cuDevicePrimaryCtxRelease_v2", device)


def main() -> None:
    """Copy on every GPU and print what came of it."""
    found: Dict[str, Any] = {}
    try:
        call = _cuda()
        count = ctypes.c_int()
        call("cuInit", 0)
        call("cuDeviceGetCount", ctypes.byref(count))
        for number in range(count.value):
            device, name = ctypes.c_int(), (ctypes.c_ubyte * 16)()
            call("cuDeviceGet", ctypes.byref(device), number)
            call("cuDeviceGetUuid", ctypes.byref(name), device)
            found[f"GPU-{uuid.UUID(bytes=bytes(name))}"] = _copy(call, device)
    except (CudaError, OSError, AttributeError) as error:  # AttributeError: an older library
        found["error"] = str(error)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
