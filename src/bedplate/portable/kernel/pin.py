"""The kernel that a host is to run: its packages, their holds, its headers."""

import platform
import re
from typing import Dict, List, NamedTuple, Optional, Sequence

from .. import os_release
from ..host import Host
from ..packages import debian, rpm
from ..packages import holds as record

#: Where DKMS finds the headers of a kernel.
HEADERS = "/lib/modules/{}/build"
#: Before its flavour, the name of a package that draws in both a kernel and its headers.
ALL = "linux-"
#: systemd says there what kind of container it runs in.
CONTAINER = "/run/systemd/container"
#: The role that pins a kernel, as the record of holds names it.
ROLE = "host_baseline"
#: What it locks where packages are rpm's; the marks there name no role.
_LOCKED = re.compile(r"^kernel(?:-|$)")


class Pin(NamedTuple):
    """The packages that bring a kernel and its headers, and ``followers``: packages that would
    bring a newer one, as long as they are installed and not held."""

    packages: Sequence[str]
    followers: Sequence[str]


class State(NamedTuple):
    """What is there of a pin: packages that are missing, installed ones that are not held."""

    missing: List[str]
    unheld: List[str]


def in_container(host: Host) -> bool:
    """Whether the host shares its kernel and clock with a machine below it."""
    return host.exists(CONTAINER)


def headers_present(host: Host, release: str) -> bool:
    """Whether modules can be built for a kernel."""
    return host.exists(HEADERS.format(release))


def running() -> str:
    """The running kernel's release."""
    return platform.release()


def complete(host: Host, pin: Pin) -> Pin:
    """The pin with whatever else on the host follows new kernels, of any flavour."""
    if os_release.family(host) != "Debian":
        return pin
    kinds = {*debian.flavours(host, debian.IMAGE), *debian.flavours(host, debian.HEADERS)}
    names = [start + kind for kind in kinds for start in (ALL, debian.IMAGE, debian.HEADERS)]
    return pin._replace(followers=sorted({*pin.followers, *debian.installed(host, names)}))


def holds(host: Host, names: Sequence[str]) -> Dict[str, bool]:
    """Those of ``names`` that are installed, each with whether upgrades leave it alone.

    rpm's kernels are named with version and architecture, because several are there at once.
    """
    if os_release.family(host) == "Debian":
        return {name: package.held for name, package in debian.installed(host, names).items()}
    found = {}
    for name in names:
        packages = rpm.query(host, [name])
        if packages:
            found[name] = all(rpm.locked(host, package) for package in packages)
    return found


def ours(host: Host) -> List[str]:
    """Packages that the role keeps from upgrades, by its records; of rpm's, the plain names.

    A host that never had a pin is asked nothing.
    """
    if os_release.family(host) != "Debian":
        names = rpm.own(host.read(rpm.lock_list(host)) or "")
        return [name for name in names if _LOCKED.match(name)]
    recorded = [name for name, role in record.load(host).items() if role == ROLE]
    return sorted(name for name, held in holds(host, recorded).items() if held)


def leftover(host: Host, pin: Pin) -> List[str]:
    """Those of our holds that are for another kernel than the pin's."""
    names = {*pin.packages, *pin.followers}
    if os_release.family(host) != "Debian":
        names = {rpm.name_of(name) for name in names}
    return [name for name in ours(host) if name not in names]


def let_go(host: Host, names: Sequence[str]) -> Optional[str]:
    """Let upgrades have packages of `ours` again; the reason where that is refused."""
    if os_release.family(host) != "Debian":
        path = rpm.lock_list(host)
        host.write(path, rpm.without_own(host.content(path) or "", names))
        return None
    answer = debian.mark(host, "unhold", names)
    if answer.code != 0:
        return answer.said
    # Only now: a run that is killed in between still knows whose holds they are.
    record.forget(host, names)
    return None


def state(host: Host, pin: Pin) -> State:
    """Compare a pin with what the host has."""
    have = holds(host, [*pin.packages, *pin.followers])
    return State(
        missing=[name for name in pin.packages if name not in have],
        unheld=sorted(name for name, kept in have.items() if not kept),
    )
