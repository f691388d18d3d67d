"""Running containers' rights to NVIDIA's devices, as systemd knows them.

A container that was started without the links of `device_links` has its GPUs by the control group
alone, and systemd, which does not know of them, takes them away when it reads its units again. What
the container was given is in the specification that its runtime was started with. Where systemd
lacks a device of it, it is told: the container keeps its GPUs, or has them again, as it runs.

The specification is the runtime's, and root's. What a container has in its own /dev says nothing:
it may have made a node of its neighbour's GPU there.
"""

import os
import re
from typing import Any, Dict, List, NamedTuple, Optional

from . import device_links, documents
from .host import Host
from .message import problem

#: Folders of containerd's namespaces (Kubernetes', Docker's), also of the containerd that Docker
#: starts, each with a folder for each container; and that of CRI-O's containers.
NAMESPACES = (
    "/run/containerd/io.containerd.runtime.v2.task",
    "/run/docker/containerd/daemon/io.containerd.runtime.v2.task",
)
CRIO = "/run/containers/storage/overlay-containers"
#: One of these is there where a runtime runs, or has run since boot.
RUNTIMES = ("/run/containerd", "/run/docker", "/run/containers")
_ALLOWED = re.compile(r"^DeviceAllow=(?:/dev/char/)?(?P<number>\d+:\d+) ", re.MULTILINE)
_ANY_MINOR = re.compile(r"^DeviceAllow=char-(?P<major>\d+) ", re.MULTILINE)


class Lack(NamedTuple):
    """A container's unit, and the devices of the container that systemd does not know of.

    ``devices`` are nodes by ``MAJOR:MINOR``, ``rights`` what may be done with each (``rwm``).
    """

    unit: str
    devices: Dict[str, str]
    rights: Dict[str, str]

    @property
    def told(self) -> str:
        """A line for people."""
        return "{}: {}".format(self.unit, ", ".join(sorted(self.devices.values())))


def _specifications(host: Host) -> List[Dict[str, Any]]:
    """What each container that is there was started with."""
    folders = [f"{above}/{name}" for above in NAMESPACES for name in host.list(above)]
    paths = [f"{folder}/{one}/config.json" for folder in folders for one in host.list(folder)]
    paths += [f"{CRIO}/{one}/userdata/config.json" for one in host.list(CRIO)]
    return [documents.table(host.read(path)) for path in paths]


def _unit(specification: Dict[str, Any]) -> str:
    """The unit of a container's control group; empty where systemd does not manage that.

    A runtime is given it as ``SLICE:PREFIX:NAME``, or else as a path.
    """
    path = _table(specification.get("linux")).get("cgroupsPath")
    parts = path.split(":") if isinstance(path, str) else []
    if len(parts) != 3 or not parts[2] or "/" in parts[0]:
        return ""
    return ("-".join(filter(None, parts[1:]))) + ".scope"


def _table(value: Any) -> Dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _given(specification: Dict[str, Any]) -> Dict[str, str]:
    """Rights to single character devices that a container was started with, by their number."""
    rules = _table(_table(specification.get("linux")).get("resources")).get("devices")
    found: Dict[str, str] = {}
    for rule in map(_table, rules if isinstance(rules, list) else []):
        major, minor = rule.get("major"), rule.get("minor")
        if rule.get("allow") is not True and major is None and minor is None:
            found.clear()
        if type(major) is not int or type(minor) is not int or rule.get("type") not in ("c", "u"):
            continue
        number = f"{major}:{minor}"
        if rule.get("allow") is True:
            found[number] = _rights(rule.get("access"))
        else:
            found.pop(number, None)
    return found


def _rights(access: Any) -> str:
    asked = access if isinstance(access, str) else "rwm"
    return "".join(one for one in "rwm" if one in asked) or "rwm"


def settle(host: Host, check: bool = False) -> List[str]:
    """Have the links for containers to come, and the rights of those that run; what was wrong.

    Nothing is wrong on a host without a container runtime, such as a hypervisor.

    Raises:
        RightsError: systemd refused.
    """
    if not any(host.exists(folder) for folder in RUNTIMES):
        return []
    return device_links.ensure(host.root, check) + keep(host, check)


def lacking(host: Host) -> List[Lack]:
    """Containers that lose GPUs when systemd reads its units again, or have lost them by it."""
    nodes = device_links.nodes(host.root)
    given: Dict[str, Dict[str, str]] = {}
    for specification in _specifications(host) if nodes else []:
        unit = _unit(specification)
        rights = {n: r for n, r in _given(specification).items() if n in nodes}
        if unit and rights:
            given[unit] = rights
    found = []
    for unit, rights in sorted(given.items()):
        known = _known(host, unit)
        if known is None:
            continue
        missing = {n: r for n, r in rights.items() if n not in known[0]}
        missing = {n: r for n, r in missing.items() if n.partition(":")[0] not in known[1]}
        if missing:
            found.append(Lack(unit, {number: nodes[number] for number in missing}, missing))
    return found


def _known(host: Host, unit: str) -> Optional[List[List[str]]]:
    """Numbers and majors that systemd allows a unit; None where it allows all, or has ended."""
    answer = host.run(
        ["systemctl", "show", unit, "--property=ActiveState,DevicePolicy,DeviceAllow"]
    )
    lines = answer.out.splitlines()
    if "ActiveState=active" not in lines:
        return None
    numbers, majors = _ALLOWED.findall(answer.out), _ANY_MINOR.findall(answer.out)
    if "DevicePolicy=auto" in lines and "DeviceAllow=" not in answer.out:
        return None
    return [numbers, majors]


def keep(host: Host, check: bool = False) -> List[str]:
    """Let systemd know of what containers were given; what it lacked, a line for each container.

    No container notices, but one that has lost a GPU has it again. The rule ends with the unit.

    Raises:
        RightsError: systemd refused.
    """
    found = lacking(host)
    for lack in [] if check else found:
        rules = [f"DeviceAllow=/dev/char/{n} {rights}" for n, rights in sorted(lack.rights.items())]
        answer = host.run(["systemctl", "set-property", "--runtime", lack.unit, *rules])
        # One that has ended meanwhile needs nothing.
        if answer.code != 0 and _known(host, lack.unit) is not None:
            raise RightsError(
                problem(
                    "a running container would lose its GPUs",
                    os.uname().nodename,
                    f"{lack.told} ({answer.said})",
                    "a control group whose devices systemd knows",
                    "See 'systemctl status' of that unit, or restart the container, and run again.",
                )
            )
    return [lack.told for lack in found]


class RightsError(Exception):
    """systemd refused to be told of a container's devices; the text says how to fix it."""
