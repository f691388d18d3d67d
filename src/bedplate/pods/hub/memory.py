"""What a notebook or share has of its node, and what its student reads when it was not enough.

The kernel ends the notebook that takes more memory than its limit, /dev/shm in it, and kubelet the
one that writes more to the node's disk; nothing else of the node ends. Standard library only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bedplate.pods.hub.courses import Course

#: The exit status of a process that was killed.
KILLED: Final = 128 + 9
NOTEBOOK: Final = "notebook"
DISK: Final = "ephemeral-storage"
SHM: Final = {"name": "shm", "mountPath": "/dev/shm"}  # noqa: S108 - in the pod


def shm_volume(mib: int) -> dict[str, Any]:
    """Return the volume of `SHM`: what lies in it counts as memory of the container.

    With 0 MiB it is as large as the pod's limit of memory, or without one as what the node has for
    pods. A pod without this volume has 64 MiB, which workers of PyTorch's DataLoader soon fill.
    """
    size = {"sizeLimit": f"{mib}Mi"} if mib else {}
    return {"name": SHM["name"], "emptyDir": {"medium": "Memory", **size}}


def of_node(course: Course) -> dict[str, Any]:
    """Return what a notebook has of its node: memory up to a limit, and CPUs as a request."""
    memory = course.memory_mib * 2**20
    found: dict[str, Any] = {"mem_limit": memory, "mem_guarantee": memory} if memory else {}
    return found | ({"cpu_guarantee": course.cpu_milli / 1000} if course.cpu_milli else {})


def of_disk(mib: int) -> dict[str, str]:
    """Return the request and limit of what a pod writes to its node's disk; 0 MiB is no limit."""
    return {DISK: f"{mib}Mi"} if mib else {}


def resources(
    devices: Mapping[str, str], memory: int, cpu: int, disk: int
) -> dict[str, dict[str, str]]:
    """Return requests and limits: MiB, thousandths of CPUs, MiB of disk; 0 is not known."""
    held = {**devices, **({"memory": f"{memory}Mi"} if memory else {}), **of_disk(disk)}
    asked = held | ({"cpu": f"{cpu}m"} if cpu else {})
    return {kind: of for kind, of in (("requests", asked), ("limits", held)) if of}


def why(pod: Mapping[str, Any], course: Course | None) -> str:
    """Return what a student reads whose notebook was ended for what it took; else nothing."""
    status = pod.get("status") or {}
    if ran_out(pod):
        return sentence(course)
    said = status.get("message") or ""
    if status.get("reason") == "Evicted" and "ephemeral" in said and "exceed" in said:
        size = f"its {course.disk_mib / 1024:g} GiB" if course and course.disk_mib else "it may"
        return (
            f"Your notebook wrote more than {size} to the disk of its node and was ended. Files in "
            "your home are kept. Write less to other folders, or ask your teacher for more disk."
        )
    return ""


def ran_out(pod: Mapping[str, Any]) -> bool:
    """Tell whether the notebook was killed for its memory, now or before it was started again."""
    for one in (pod.get("status") or {}).get("containerStatuses") or []:
        for state in (one.get("state"), one.get("lastState")):
            ended = (state or {}).get("terminated") or {}
            if one["name"] == NOTEBOOK and ended.get("reason") == "OOMKilled":
                return True
    return False


def sentence(course: Course | None) -> str:
    """Return what a student reads whose notebook used too much memory."""
    known = course is not None and course.memory_mib
    size = f"more than its {course.memory_mib / 1024:g} GiB of" if course and known else "too much"
    return (
        f"Your notebook used {size} memory and was ended. Files in your home are kept. "
        "Load less at a time, or ask your teacher for more memory."
    )
