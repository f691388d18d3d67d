"""The profiles into which MIG can divide the first GPU, as NVML says them; nothing is changed."""

from __future__ import annotations

import ctypes
from typing import Any

LIBRARY = "libnvidia-ml.so.1"
#: More profiles than NVML knows, and more places than a GPU has.
PROFILES, PLACES = 24, 32
NOT_SUPPORTED, BAD_ARGUMENT = 3, 2


class Profile(ctypes.Structure):
    """NVML's description of a profile, in its first version."""

    _fields_ = (
        *((name, ctypes.c_uint) for name in ("id", "p2p", "slices", "instances")),
        *((name, ctypes.c_uint) for name in ("multiprocessors", "copiers", "decoders")),
        *((name, ctypes.c_uint) for name in ("encoders", "jpeg", "ofa")),
        ("mib", ctypes.c_ulonglong),
    )


class Place(ctypes.Structure):
    """Where an instance can lie."""

    _fields_ = (("start", ctypes.c_uint), ("size", ctypes.c_uint))


def read() -> dict[str, Any]:
    """Return the profiles by NVML's number, with their places, or why it does not say."""
    try:
        nvml = ctypes.CDLL(LIBRARY)
    except OSError as error:
        return {"error": str(error)}
    if code := nvml.nvmlInit_v2():
        return {"error": code}
    device, found = ctypes.c_void_p(), dict[str, Any]()
    nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))
    for number in range(PROFILES):
        one = Profile()
        code = nvml.nvmlDeviceGetGpuInstanceProfileInfo(device, number, ctypes.byref(one))
        if code:
            if code not in (NOT_SUPPORTED, BAD_ARGUMENT):
                found[str(number)] = {"error": code}
            continue
        row = {name: getattr(one, name) for name, *_ in Profile._fields_}
        places, count = (Place * PLACES)(), ctypes.c_uint(PLACES)
        ask = nvml.nvmlDeviceGetGpuInstancePossiblePlacements_v2
        if code := ask(device, one.id, places, ctypes.byref(count)):
            row["places"] = {"error": code}
        else:
            row["places"] = [[place.start, place.size] for place in places[: count.value]]
        found[str(number)] = row
    limits = {
        name: hasattr(nvml, name)
        for name in ("nvmlDeviceSetMemoryLimits_v1", "nvmlDeviceGetHandleByIndex_v2")
    }
    nvml.nvmlShutdown()
    return {**found, "calls": limits}
