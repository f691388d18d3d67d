"""Evidence of NVIDIA's container toolkit: version, CDI specification, and the runtime it offers."""

from .. import device_links, device_rights, nvidia
from ..host import Host
from ..runtime import cdi
from ..runtime import state as runtime_state
from ..runtime.cases import NVIDIA_RUNTIME
from . import owned
from .area import Collected, Wishes, version_check
from .checks import AGAIN, check

ROLE = "nvidia_container_toolkit"
OTHERS = (
    "Container runtimes may give containers what these files say, or no GPU at all. Bedplate did "
    "not write them: remove them, and switch off what writes them."
)
FIX = f"Run the role {ROLE} again."


def collect(host: Host, wish: Wishes, to: Collected) -> None:
    """Compare version, CDI specification and registration with what is wished."""
    argv = ["nvidia-ctk", "--version"]
    what = "NVIDIA's container toolkit at the lock's version"
    version_check(host, to, "toolkit.version", what, wish.toolkit_version, argv)
    devices, reason = nvidia.cdi_devices(host)
    to.checks.append(
        check(
            "cdi.devices",
            "the CDI specification lists every GPU",
            wish.device_count,
            len(devices),
            AGAIN,
            reason or "",
        )
    )
    what = "each NVIDIA device node has its link in /dev/char, so that containers keep their GPUs"
    to.checks.append(check("devices.links", what, [], device_links.wrong(host.root), FIX))
    what = "systemd knows of the GPUs of running containers, which would lose them when it reloads"
    losing = [lack.told for lack in device_rights.lacking(host)]
    to.checks.append(check("devices.containers", what, [], losing, AGAIN))
    if not wish.containers:
        return
    if wish.containers["cdi_spec"]:
        _specification(host, wish.containers["cdi_spec"], to)
    if wish.containers["runtime"] != "podman":  # which has no handlers
        _registration(host, wish, to)
    owned.configuration(host, ROLE, "toolkit.configuration", FIX, to)


def _specification(host: Host, path: str, to: Collected) -> None:
    wrong = "; ".join(cdi.stale(host, path))
    what = "the CDI specification says what the host has"
    to.checks.append(check("cdi.current", what, "current", wrong or "current", FIX))
    written = cdi.by_package(host, path)
    what = "no package of NVIDIA's writes a CDI specification in addition to Bedplate's"
    to.checks.append(check("cdi.package_file", what, [], written, FIX))
    found = [one for one in cdi.others(host, path) if one not in written]
    what = f"one CDI specification names the GPUs ({path})"
    to.checks.append(check("cdi.other_files", what, [], found, OTHERS))
    watching = {unit: host.run(["systemctl", "is-enabled", unit]).out.strip() for unit in cdi.UNITS}
    what = "the CDI specification is refreshed at boot and when the driver changes"
    to.checks.append(check("cdi.refresh", what, dict.fromkeys(cdi.UNITS, "enabled"), watching, FIX))


def _registration(host: Host, wish: Wishes, to: Collected) -> None:
    ours = wish.containers
    state = runtime_state.read(host, ours["runtime"])
    what = f"the container runtime knows the handler {NVIDIA_RUNTIME}"
    found = state.handlers.get(NVIDIA_RUNTIME)
    wished = ours["nvidia_runtime"]
    to.checks.append(check("toolkit.runtime", what, wished, found, FIX, state.reason))
    what = "the handler of containers that name none"
    found = state.default or None
    to.checks.append(check("toolkit.default", what, ours["default"], found, FIX, state.reason))
