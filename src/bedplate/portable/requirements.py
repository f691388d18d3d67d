"""What a host must have before anything is changed on it: system, room, free ports."""

import os
import re
from typing import Any, Dict, List, Mapping, Optional, Sequence

from . import os_release, owned
from .host import Host
from .kernel import secure_boot
from .message import problem

_LISTEN = "0A"
#: What the role writes for the haproxy that it starts, and the port that this one listens on.
HAPROXY = "/etc/haproxy/haproxy.cfg"
HAPROXY_ROLE = "control_plane_endpoint"
_BIND = re.compile(r"^\s*bind \S*:(\d+)\b", re.MULTILINE)


def listening(host: Host) -> Dict[int, str]:
    """TCP ports in use, each with the socket's inode."""
    found: Dict[int, str] = {}
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in (host.read(name) or "").splitlines()[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[3] == _LISTEN:
                found[int(fields[1].rsplit(":", 1)[1], 16)] = fields[9]
    return found


def holder(host: Host, inode: str) -> Optional[str]:
    """``nginx (pid 812)`` for the process that holds a socket, or None where it can't be seen."""
    wanted = f"socket:[{inode}]"
    for pid in host.list("/proc"):
        if not pid.isdigit():
            continue
        for descriptor in host.list(f"/proc/{pid}/fd"):
            try:
                target = os.readlink(host.path(f"/proc/{pid}/fd/{descriptor}"))
            except OSError:
                continue  # the process ended while we looked
            if target == wanted:
                name = (host.read(f"/proc/{pid}/comm") or "").strip()
                return "{} (pid {})".format(name or "a process", pid)
    return None


def _balanced(host: Host) -> List[int]:
    """The ports of the haproxy that Bedplate has configured here, which stay its own."""
    text = host.read(HAPROXY) or ""
    ours = owned.role_of(text) == HAPROXY_ROLE
    return [int(port) for port in _BIND.findall(text)] if ours else []


def free_mib(host: Host, folder: str) -> int:
    """MiB that root may still write on the file system that holds, or will hold, ``folder``."""
    path = host.path(folder)
    while not os.path.exists(path):
        path = os.path.dirname(path)
    state = os.statvfs(path)
    return state.f_bavail * state.f_frsize // (1024 * 1024)


def check_system(host: Host, supported: Sequence[str], declared: str, where: str) -> List[str]:
    """Problems with the operating system; ``declared`` is empty where the site says nothing."""
    found = os_release.name(host)
    if found not in supported:
        return [
            problem(
                "the operating system is not supported",
                where,
                found,
                ", ".join(supported),
                "Install a supported system, or take the host out of the inventory.",
            )
        ]
    if declared and found != declared:
        return [
            problem(
                "another operating system than declared",
                where,
                found,
                declared,
                "Correct bedplate_host.os of this host's pool and run 'bedplate plan' again.",
            )
        ]
    return []


def check_machine(host: Host, machines: Sequence[str], where: str) -> List[str]:
    """The problem of a CPU that no package and no archive here is for."""
    answer = host.run(["uname", "-m"])
    found = answer.out.strip() if answer.code == 0 else answer.said
    if found in machines:
        return []
    return [
        problem(
            "nothing that is installed here is for this host's CPU",
            where,
            found,
            ", ".join(machines),
            "Take the host out of the inventory.",
        )
    ]


def check_secure_boot(host: Host, where: str) -> List[str]:
    """The problem of a firmware that enforces what the site does not declare."""
    if secure_boot.state(host) != secure_boot.ON:
        return []
    return [
        problem(
            "the firmware enforces Secure Boot, which the site does not declare",
            where,
            "on",
            "off",
            "Set bedplate_host.secure_boot of this host's pool and run 'bedplate plan' again, or"
            " switch it off in the firmware: unsigned modules do not load.",
        )
    ]


def check_disks(host: Host, disks: Sequence[Mapping[str, Any]], where: str) -> List[str]:
    """Problems with free space; ``disks`` holds ``{path, free_mib}``."""
    problems = []
    for disk in disks:
        free = free_mib(host, disk["path"])
        if free < int(disk["free_mib"]):
            problems.append(
                problem(
                    "too little disk space",
                    "{}:{}".format(where, disk["path"]),
                    f"{free} MiB free",
                    "at least {} MiB".format(disk["free_mib"]),
                    "Free space there, or mount a larger disk.",
                )
            )
    return problems


def check_ports(host: Host, ports: Sequence[int], where: str) -> List[str]:
    """Problems with ports that kubeadm will want, on a host that has not joined yet."""
    taken = listening(host)
    balanced = _balanced(host)
    problems = []
    for port in sorted(set(ports) & set(taken)):
        by = holder(host, taken[port]) or "another process"
        if port in balanced and by.startswith("haproxy (pid "):
            continue
        problems.append(
            problem(
                "a port that Kubernetes needs is taken",
                f"{where}:{port}/tcp",
                f"used by {by}",
                "a free port",
                "Stop that program or give it another port.",
            )
        )
    return problems
