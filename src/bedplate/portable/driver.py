"""The driver on a host against the wished one: what differs, and the switch of modules."""

import json
import platform
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

from . import debian, nvidia, requirements
from .host import Host

#: What /etc/os-release calls the systems of a family, in ID or ID_LIKE.
FAMILIES = {"Debian": ("debian", "ubuntu"), "RedHat": ("rhel", "fedora", "centos")}
#: Who says which packages are installed, by family.
INSTALLED: Dict[str, Callable[[Host, Sequence[str]], Dict[str, debian.Package]]] = {
    "Debian": debian.installed,
}

#: What was last seen to work: packages, kernel and flavour, for a rollback.
LAST_GOOD = "/etc/bedplate/driver.json"
#: Order matters: a module goes only after those that use it.
MODULES = ("nvidia_peermem", "nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia")
DAEMON = "nvidia-persistenced"
#: Where DKMS finds the headers of the running kernel.
HEADERS = "/lib/modules/{}/build"
#: Holds the cards from boot on, where host_baseline has not yet kept it from being loaded.
NOUVEAU = "/sys/bus/pci/drivers/nouveau"


class State(NamedTuple):
    """What the host has; ``differing`` names packages that are not at the wished version."""

    joined: bool
    present: Dict[str, str]
    differing: List[str]
    loaded: Optional[nvidia.LoadedModule]


def family(host: Host) -> str:
    """``Debian`` or ``RedHat``: how packages are installed there. Empty for any other system."""
    release = requirements.os_release(host)
    names = {release.get("ID", ""), *release.get("ID_LIKE", "").split()}
    return next((name for name, ids in FAMILIES.items() if names & set(ids)), "")


def installed(host: Host, names: Sequence[str]) -> Dict[str, debian.Package]:
    """Those of ``names`` that the system's package manager says are installed."""
    ask = INSTALLED.get(family(host))
    return ask(host, names) if ask else {}


def state(host: Host, packages: Mapping[str, str]) -> State:
    """Read the driver's state."""
    have = installed(host, list(packages))
    return State(
        joined=host.joined,
        present={name: package.version for name, package in have.items()},
        differing=debian.differing(have, packages),
        loaded=nvidia.loaded_module(host),
    )


def keeps_module(
    host: Host, loaded: Optional[nvidia.LoadedModule], version: str, change_joined: bool
) -> bool:
    """Whether a loaded module of another version stays, because workload may be using it."""
    return host.joined and not change_joined and loaded is not None and loaded.version != version


def pending(now: State, version: str, change_joined: bool) -> List[str]:
    """What is left alone because the host has joined a cluster; empty where nothing is.

    A first installation disturbs nobody and is never pending.
    """
    if not now.joined or change_joined or (not now.present and now.loaded is None):
        return []
    found = [f"package {name}" for name in now.differing]
    if now.loaded is not None and now.loaded.version != version:
        found.append(f"loaded module {now.loaded.version} instead of {version}")
    return found


def load(host: Host) -> Optional[str]:
    """Load the modules; the reason where that fails."""
    for name in ("nvidia", "nvidia_uvm"):
        answer = host.run(["modprobe", name])
        if answer.code != 0:
            return f"modprobe {name}: {answer.said}"
    return None


def way_out(host: Host, release: str) -> str:
    """Say what to do about a module that does not load, by what the host lacks."""
    if any(":" in name for name in host.list(NOUVEAU)):
        return (
            "Reboot the host and run site.yml again: nouveau holds the cards, and from the next"
            " boot on it is not loaded."
        )
    if not host.exists(HEADERS.format(release)):
        return (
            f"Install linux-headers-{release}, which DKMS needs to build the module for the running"
            " kernel, and run site.yml again."
        )
    return (
        "See 'dkms status' and the kernel's log on the host: the module may not have been built"
        " for the running kernel, or Secure Boot refuses its signature."
    )


def unload(host: Host) -> Optional[str]:
    """Unload the modules after their daemon; the reason where something uses them."""
    answer = host.run(["systemctl", "stop", DAEMON])
    if answer.code not in (0, 5):  # 5: there is no such unit
        return f"stop of {DAEMON}: {answer.said}"
    for name in MODULES:
        if not host.exists("/sys/module/" + name):
            continue
        answer = host.run(["rmmod", name])
        if answer.code != 0:
            return f"rmmod {name}: {answer.said}"
    return None


def last_good(loaded: nvidia.LoadedModule, packages: Mapping[str, str]) -> str:
    """The record of a driver that works, as text; the same driver gives the same text."""
    record: Dict[str, Any] = {
        "format": 1,
        "version": loaded.version,
        "flavour": loaded.flavour,
        "kernel": platform.release(),
        "packages": dict(packages),
    }
    return json.dumps(record, indent=2, sort_keys=True) + "\n"
