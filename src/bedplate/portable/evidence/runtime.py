"""Evidence of the container runtime."""

from typing import List

from ..driver import state as driver
from ..host import Host
from ..runtime import state as runtime_state
from . import owned
from .area import NO_VERSION, Collected, Wishes
from .checks import AGAIN, check, skipped

ROLE = "container_runtime"
FIX = f"Run the role {ROLE} again, and look at journalctl -u {{}}."


def collect(host: Host, wish: Wishes, to: Collected) -> None:
    """Ask the running daemon for its version and its settings."""
    ours = wish.containers
    runtime = ours.get("runtime", "containerd")
    what = "the container runtime answers, at the lock's version"
    state = runtime_state.read(host, runtime)
    if wish.containerd_version:
        found = state.version or None
        reason = "" if found else state.reason
        to.checks.append(
            check("runtime.version", what, wish.containerd_version, found, AGAIN, reason)
        )
    else:
        to.checks.append(skipped("runtime.version", what, NO_VERSION))
    if not ours:
        return
    _held(host, list(ours.get("packages", ())), to)
    unit = runtime_state.UNITS[runtime]
    fix = FIX.format(unit)
    for asked, wished in (("is-active", "active"), ("is-enabled", "enabled")):
        said = host.run(["systemctl", asked, unit])
        what = f"the container runtime is {wished}"
        to.checks.append(check(f"runtime.{wished}", what, wished, said.out.strip(), fix))
    if runtime != "docker":  # what kubelet wants; Docker's own choice is its user's
        what = "containers get their cgroups from systemd"
        found = state.cgroups or None
        to.checks.append(check("runtime.cgroups", what, "systemd", found, fix, state.reason))
    if ours["sandbox_image"]:
        what = "the image of pod sandboxes"
        wished, found = ours["sandbox_image"], state.sandbox or None
        to.checks.append(check("runtime.sandbox", what, wished, found, fix, state.reason))
    owned.configuration(host, ROLE, "runtime.configuration", fix, to)


def _held(host: Host, names: List[str], to: Collected) -> None:
    """An upgrade of these restarts every container. The version tells of one that is not there."""
    what = "packages of the container runtime held against upgrades"
    have = driver.installed(host, names)
    if not have:
        none = "none of {} is installed".format(", ".join(sorted(names)))
        reason = none if names else "it does not come in packages"
        to.checks.append(skipped("runtime.held", what, reason))
        return
    held = sorted(name for name, package in have.items() if package.held)
    to.checks.append(check("runtime.held", what, sorted(have), held, AGAIN))
