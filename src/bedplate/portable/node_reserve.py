"""What a node keeps for its system, kubelet and container runtime, by its size. Pure functions."""

from typing import Any, Dict, Mapping, NamedTuple

#: MiB, to whole ones of which the reserve is rounded up: kernels differ in how much they show.
STEP = 64
#: Fields of kubelet's configuration by which a site says itself what is kept.
RESERVED = ("kubeReserved", "systemReserved")
PROCESSES = "podPidsLimit"


class Reserve(NamedTuple):
    """Memory in MiB and CPUs in thousandths."""

    memory: int
    cpu: int


def reserve(memory: int, cpu: int, room: Mapping[str, Any]) -> Reserve:
    """What a node of a size keeps; ``room`` is the lock's, with ``memory`` and ``cpu``.

    The node's memory counts in whole GiB, rounded up, so that another kernel changes nothing.
    """
    whole = -(-memory // 1024) * 1024
    parts = [
        room[name]["base"] + -(-has * room[name]["percent"] // 100)
        for name, has in (("memory", whole), ("cpu", cpu))
    ]
    return Reserve(-(-parts[0] // STEP) * STEP, parts[1])


def fields(
    memory: int, cpu: int, room: Mapping[str, Any], given: Mapping[str, Any]
) -> Dict[str, Any]:
    """Fields of kubelet's configuration for a node of a size, less what is ``given`` for it."""
    found: Dict[str, Any] = {}
    if "memory" in room and not any(name in given for name in RESERVED):
        kept = reserve(memory, cpu, room)
        found["kubeReserved"] = {"cpu": f"{kept.cpu}m", "memory": f"{kept.memory}Mi"}
    if room.get("processes") and PROCESSES not in given:
        found[PROCESSES] = room["processes"]
    return found
