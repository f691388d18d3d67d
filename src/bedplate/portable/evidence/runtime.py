"""Evidence of the container runtime."""

from ..host import Host
from ..runtime import state as runtime_state
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
    runtime_state.configuration(host, ROLE, "runtime.configuration", fix, to)
