"""Fabric Manager and its companions on a host: packages, foreign ones, outdated services."""

import os
import time
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence

from . import nvidia, os_release
from .discovery import packages as discovery_packages
from .host import Host
from .package_names import family, upstream

_DEBIAN_FILES = "/var/lib/dpkg/info/{}.list"
MANAGER = "nv-fabricmanager"
FIRST = "running, began before Fabric Manager"
#: The kernel keeps so many characters of a program's name.
_COMM = 15
#: The place of a process' start in ``/proc/PID/stat``, counted after the program's name (proc(5)).
_STARTED = 19
FIELDS = "fabric.state,fabric.status"


class State(NamedTuple):
    """What the host has of it.

    ``installed`` are the versions of its packages. ``differing`` are wished ones at another
    version, ``foreign`` those that the wish does not name, less what is of the driver's version.
    ``superseded`` are of another branch, under whose name some sources have them: they go when the
    wished ones come.
    """

    installed: Dict[str, str]
    differing: List[str]
    foreign: List[str]
    superseded: List[str]


def state(
    host: Host, families: Sequence[str], wish: Mapping[str, str], driver_version: str
) -> State:
    """Read the requested packages and others of ``families``. Of those, what nobody asked for must
    not be of another version than the driver: then its next start takes the GPUs down."""
    found = {
        package.name: package.version
        for package in discovery_packages.installed(host)
        if package.name in wish or family(package.name) in families
    }
    wished = {family(name) for name in wish}
    others = {name: version for name, version in sorted(found.items()) if name not in wish}
    superseded = [name for name in others if family(name) in wished]
    foreign = [
        f"{name} {version}"
        for name, version in others.items()
        if name not in superseded and upstream(version) != driver_version
    ]
    differing = sorted(name for name, version in wish.items() if found.get(name) != version)
    return State(found, differing, foreign, superseded)


def _property(host: Host, service: str, name: str) -> str:
    answer = host.run(["systemctl", "show", "--value", "--property=" + name, service])
    return answer.out.strip() if answer.code == 0 else ""


def running(host: Host, service: str) -> str:
    """``active, enabled`` and its opposites, in systemd's own words."""
    active = _property(host, service, "ActiveState") or "unknown"
    return "{}, {}".format(active, _property(host, service, "UnitFileState") or "no such unit")


def began(host: Host, program: str) -> Optional[int]:
    """When the oldest process of a program began, in clock ticks since the boot."""
    found = []
    for name in host.list("/proc"):
        stat = host.read(f"/proc/{name}/stat") if name.isdigit() else None
        # The name is in brackets, and may have brackets and spaces of its own.
        before, _, after = (stat or "").rpartition(")")
        if before.partition("(")[2] == program[:_COMM]:
            found.append(int(after.split()[_STARTED]))
    return min(found, default=None)


def first(host: Host, subnet_manager: str) -> str:
    """Tell whether the subnet manager runs, and began before Fabric Manager."""
    mine, its = began(host, subnet_manager), began(host, MANAGER)
    if mine is None:
        return "not running"
    return FIRST if its is None or mine <= its else "running, began after Fabric Manager"


def outdated(host: Host, service: str, packages: Sequence[str], subnet_manager: str = "") -> bool:
    """Whether a running service has to start again.

    It began before its package was exchanged, as after a killed run, or without the subnet manager
    that its unit starts first.
    """
    if _property(host, service, "MainPID") in ("", "0"):
        return False
    if subnet_manager and first(host, subnet_manager) != FIRST:
        return True
    # In microseconds since the boot: older versions of systemd write no other time for programs.
    since_boot = _property(host, service, "ExecMainStartTimestampMonotonic")
    if not since_boot.isdigit():
        return False
    began = time.time() - time.monotonic() + int(since_boot) / 1e6
    return any(installed > began for installed in _installed_at(host, packages))


def _installed_at(host: Host, packages: Sequence[str]) -> List[float]:
    """When the packages that are there were installed, in seconds since 1970."""
    if os_release.family(host) == "RedHat":
        answer = host.run(["rpm", "--query", "--queryformat", "%{INSTALLTIME}\n", *packages])
        # rpm says about the others, on the same stream, that they are not installed.
        return [float(line) for line in answer.out.splitlines() if line.isdigit()]
    files = (_changed(host, _DEBIAN_FILES.format(name)) for name in packages)
    return [changed for changed in files if changed is not None]


def _changed(host: Host, name: str) -> Optional[float]:
    try:
        return os.stat(host.path(name)).st_mtime
    except OSError:
        return None


def loaded_version(host: Host) -> Optional[str]:
    """The version of the loaded driver."""
    loaded = nvidia.loaded_module(host)
    return loaded.version if loaded else None
