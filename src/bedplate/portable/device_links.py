"""Links in /dev/char to NVIDIA's device nodes, without which containers lose their GPUs.

A container runtime that leaves control groups to systemd names each device of a container by its
link /dev/char/MAJOR:MINOR. Where that is missing, the right to the device is not in the container's
unit, and the next ``systemctl daemon-reload`` takes it from the running container. udev makes such
links, but no NVIDIA driver has udev make its nodes: NVIDIA's container toolkit documents this under
"Containers losing access to GPUs" (its troubleshooting page).

The role nvidia_container_toolkit lays this file alone on the host, where it runs at boot and when
devices appear, so it imports nothing of its neighbours.
"""

import os
import stat
import sys
from typing import Dict, List

LINKS = "/dev/char"
#: Where the driver and nvidia-modprobe make nodes, and how their names begin: the GPUs, control and
#: memory, switches; MIG's capabilities; channels between machines of one NVLink domain.
FOLDERS = {
    "/dev": "nvidia",
    "/dev/nvidia-caps": "nvidia-cap",
    "/dev/nvidia-caps-imex-channels": "channel",
}


def _below(root: str, path: str) -> str:
    return os.path.join(root, path.lstrip("/"))


def _number(path: str) -> str:
    """``MAJOR:MINOR`` of the character device at a real path, links followed; empty for others."""
    try:
        found = os.stat(path)
    except OSError:
        return ""
    if not stat.S_ISCHR(found.st_mode):
        return ""
    return f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}"


def nodes(root: str = "/") -> Dict[str, str]:
    """NVIDIA's device nodes by their number ``MAJOR:MINOR``."""
    found: Dict[str, str] = {}
    for folder, beginning in FOLDERS.items():
        try:
            names = sorted(os.listdir(_below(root, folder)))
        except OSError:
            continue
        for name in names:
            number = _number(_below(root, f"{folder}/{name}"))
            if name.startswith(beginning) and number:
                found.setdefault(number, f"{folder}/{name}")
    return found


def _outdated(root: str, there: Dict[str, str]) -> List[str]:
    """Numbers whose link leads to a node of NVIDIA's that has another number by now.

    The kernel chooses some of the numbers when a module is loaded.
    """
    try:
        names = sorted(os.listdir(_below(root, LINKS)))
    except OSError:
        return []
    known = set(there.values())
    found = []
    for name in names:
        real = _below(root, f"{LINKS}/{name}")
        if not os.path.islink(real):
            continue
        target = os.path.normpath(os.path.join(LINKS, os.readlink(real)))
        if target in known and _number(_below(root, target)) != name:
            found.append(name)
    return found


def wrong(root: str = "/") -> List[str]:
    """What is wrong with the links, a line each; empty where each node has its own."""
    there = nodes(root)
    found = []
    for number, node in sorted(there.items()):
        real = _below(root, f"{LINKS}/{number}")
        if not os.path.lexists(real):
            found.append(f"{LINKS}/{number} to {node} is missing")
        elif _number(real) != number:
            found.append(f"{LINKS}/{number} does not lead to {node}")
    outdated = [number for number in _outdated(root, there) if number not in there]
    return found + [f"{LINKS}/{number} leads to a node of another number" for number in outdated]


def ensure(root: str = "/", check: bool = False) -> List[str]:
    """Have a link for each node of NVIDIA's; what was wrong before, as `wrong` says it.

    What has another name in /dev/char and leads to the right device stays as it is.
    """
    found = wrong(root)
    if check or not found:
        return found
    there = nodes(root)
    os.makedirs(_below(root, LINKS), mode=0o755, exist_ok=True)
    for number in _outdated(root, there):
        os.unlink(_below(root, f"{LINKS}/{number}"))
    for number, node in there.items():
        real = _below(root, f"{LINKS}/{number}")
        if _number(real) == number:
            continue
        # In one step: a container may be starting.
        temporary = f"{real}.bedplate"
        if os.path.lexists(temporary):
            os.unlink(temporary)
        os.symlink(os.path.relpath(node, LINKS), temporary)
        os.replace(temporary, real)
    return found


if __name__ == "__main__":
    for line in ensure():
        print(line, file=sys.stderr)
