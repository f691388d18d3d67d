"""The driver on a host against the wished one: what differs, and the switch of modules."""

from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

from .. import holders, nvidia, os_release
from ..host import Host
from ..packages import debian, rpm_manager

#: Order matters: a module goes only after those that use it.
MODULES = ("nvidia_peermem", "nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia")
#: Where DKMS finds the headers of the running kernel.
HEADERS = "/lib/modules/{}/build"
#: The source of drivers whose modules nobody builds on the host.
PRECOMPILED = "precompiled"
#: Holds the cards from boot on, where host_baseline has not yet kept it from being loaded.
NOUVEAU = "/sys/bus/pci/drivers/nouveau"


class Manager(NamedTuple):
    """What is asked of a family's package manager.

    ``installed`` gives versions and holds of those packages that are installed, ``present`` the
    names of those that are there in any state, ``owners`` the package of each file that has one,
    ``interrupted`` whether a transaction was left unfinished, ``siblings`` all installed packages
    of the driver that those belong to, ``along`` which packages came along with those that were
    brought, by name and version.
    """

    installed: Callable[[Host, Sequence[str]], Dict[str, debian.Package]]
    present: Callable[[Host, Sequence[str]], List[str]]
    owners: Callable[[Host, Sequence[str]], Dict[str, str]]
    interrupted: Callable[[Host], bool]
    siblings: Callable[[Host, Sequence[str]], List[str]]
    along: Callable[[Host, Sequence[str], Sequence[Mapping[str, str]]], List[str]] = (
        lambda _host, _names, _brought: []
    )


#: By family of the system.
MANAGERS = {
    "Debian": Manager(
        debian.installed,
        debian.there,
        debian.owners,
        debian.interrupted,
        debian.siblings,
        debian.along,
    ),
    "RedHat": Manager(
        rpm_manager.installed,
        rpm_manager.there,
        rpm_manager.owners,
        rpm_manager.interrupted,
        rpm_manager.siblings,
    ),
}


class State(NamedTuple):
    """What the host has; ``differing`` names packages that are not at the wished version."""

    joined: bool
    present: Dict[str, str]
    differing: List[str]
    loaded: Optional[nvidia.LoadedModule]


def installed(host: Host, names: Sequence[str]) -> Dict[str, debian.Package]:
    """Those of ``names`` that the system's package manager says are installed."""
    manager = MANAGERS.get(os_release.family(host))
    return manager.installed(host, names) if manager else {}


def present(host: Host, names: Sequence[str]) -> List[str]:
    """Those of ``names`` that are there in any state, half installed ones too."""
    manager = MANAGERS.get(os_release.family(host))
    return manager.present(host, names) if manager else []


def owners(host: Host, paths: Sequence[str]) -> Dict[str, str]:
    """The package that owns each of ``paths``; those of no package are left out."""
    manager = MANAGERS.get(os_release.family(host))
    return manager.owners(host, paths) if manager else {}


def siblings(host: Host, names: Sequence[str]) -> List[str]:
    """``names``, and the installed packages of the drivers that they belong to."""
    manager = MANAGERS.get(os_release.family(host))
    return manager.siblings(host, names) if manager else []


def along(host: Host, names: Sequence[str], brought: Sequence[Mapping[str, str]]) -> List[str]:
    """Those of ``names`` that came along with packages that were brought."""
    manager = MANAGERS.get(os_release.family(host))
    return manager.along(host, names, brought) if manager else []


def interrupted(host: Host) -> bool:
    """Whether the package manager was left in the middle of a transaction."""
    manager = MANAGERS.get(os_release.family(host))
    return manager is not None and manager.interrupted(host)


def state(host: Host, packages: Mapping[str, str]) -> State:
    """Read the driver's state."""
    have = installed(host, list(packages))
    return State(
        joined=host.joined,
        present={name: package.version for name, package in have.items()},
        differing=debian.differing(have, packages),
        loaded=nvidia.loaded_module(host),
    )


def differs(loaded: Optional[nvidia.LoadedModule], version: str, flavour: str) -> bool:
    """Whether another module is loaded than the wished one, or none."""
    return loaded is None or (loaded.version, loaded.flavour) != (version, flavour)


def pending(
    now: State, version: str, flavour: str, going: Sequence[str], change_joined: bool
) -> List[str]:
    """What is left alone because the host has joined a cluster; empty where nothing is.

    A first installation disturbs nobody and is never pending. ``going`` names what a change of the
    driver removes.
    """
    loaded = now.loaded
    if not now.joined or change_joined or not (now.present or going or loaded):
        return []
    found = [f"package {name}" for name in now.differing]
    found += [f"removal of package {name}" for name in going]
    if loaded is not None and differs(loaded, version, flavour):
        found.append(
            f"loaded module {loaded.version} ({loaded.flavour}) instead of {version} ({flavour})"
        )
    return found


def load(host: Host) -> Optional[str]:
    """Load the modules; the reason where that fails."""
    for name in ("nvidia", "nvidia_uvm"):
        answer = host.run(["modprobe", name])
        if answer.code != 0:
            return f"modprobe {name}: {answer.said}"
    return None


def nouveau_holds(host: Host) -> bool:
    """Whether nouveau has a card: only a boot without it lets another driver have that one."""
    return any(":" in name for name in host.list(NOUVEAU))


def way_out(host: Host, release: str, source: str = "", kernel: str = "") -> str:
    """Say what to do about a module that does not load, by what the host lacks.

    ``kernel`` is the site's, where it names one; modules of the source ``precompiled`` are for it.
    """
    if source == PRECOMPILED and kernel not in ("", release):
        return (
            f"The module comes built for kernel {kernel}, and {release} runs: boot the host into"
            " that kernel (a node: run bedplate.gpu.upgrade with -e "
            "upgrade_reboot_allowed=true), and run"
            " the playbook again."
        )
    if source == PRECOMPILED:
        return (
            "See the kernel's log on the host: the module comes built for one kernel, which has to"
            " be the running one, and Secure Boot may refuse its signature."
        )
    if not host.exists(HEADERS.format(release)):
        return (
            f"Install linux-headers-{release}, which DKMS needs to build the module for the running"
            " kernel, and run bedplate.gpu.site again."
        )
    return (
        "See 'dkms status' and the kernel's log on the host: the module may not have been built"
        " for the running kernel, or Secure Boot refuses its signature."
    )


def unload(host: Host) -> Optional[str]:
    """Unload the modules after what holds them; the reason where something uses them.

    Then all is as it was: what did go is loaded again, and what was stopped is started.
    """
    reason = holders.stop(host) or _unload(host)
    if reason is not None:
        holders.start(host)
    return reason


def _unload(host: Host) -> Optional[str]:
    gone: List[str] = []
    for name in MODULES:
        if not host.exists("/sys/module/" + name):
            continue
        answer = host.run(["rmmod", name])
        if answer.code != 0:
            # Where the files are those of another driver already, the kernel refuses them.
            for one in reversed(gone):
                host.run(["modprobe", one])
            return f"rmmod {name}: {answer.said}"
        gone.append(name)
    return None


def resume(host: Host, check: bool = False) -> List[str]:
    """Start what this change or an earlier one has stopped; the names of what starts.

    Only where a module is loaded: without one they fail, and wait for the next that loads.
    """
    return [] if nvidia.loaded_module(host) is None else holders.start(host, check=check)


def exchange(
    host: Host, before: Optional[nvidia.LoadedModule], version: str, flavour: str
) -> "Exchange":
    """Have the wished module loaded in the place of ``before``; what held that one runs again."""
    if before is None and nouveau_holds(host):
        return Exchange(None, "nouveau holds the GPUs until a boot without it", "")
    in_use = unload(host) if before is not None else None
    if in_use is not None:
        return Exchange(before, in_use, "")
    failed = load(host)
    now = nvidia.loaded_module(host)
    if failed is None and differs(now, version, flavour):
        failed = f"{now.version} ({now.flavour})" if now else "nothing is loaded"
    # One that no longer fits the driver is its own role's to exchange.
    resume(host)
    return Exchange(now, "", failed or "")


class Exchange(NamedTuple):
    """The module that is loaded now; why the former stays until a reboot; what went wrong."""

    now: Optional[nvidia.LoadedModule]
    in_use: str
    failed: str


def health(host: Host, version: str, gpus: int) -> str:
    """Why a driver that was just loaded is no good; empty where nothing speaks against it."""
    found, reason = nvidia.query(host)
    if reason is not None:
        return f"nvidia-smi: {reason}"
    libraries = sorted({gpu.library for gpu in found} - {version})
    if libraries:
        return "the library is of version {}".format(", ".join(libraries))
    if len(found) < gpus:
        return f"{len(found)} of {gpus} GPUs answer"
    return ""
