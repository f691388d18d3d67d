"""Evidence of the fabric: Fabric Manager and its companions at the driver's version, at work.

NVLink itself is looked at with the GPUs' health.
"""

from typing import Any, Mapping

from .. import fabric
from ..driver import state
from ..host import Host
from .area import Collected, Wishes
from .checks import AGAIN, check, failed, skipped

_ABSENT = ("[N/A]", "N/A", "[Not Supported]", "")
RESTART = (
    "Run 'systemctl restart nvidia-fabricmanager' on the host, whose unit starts both. Then "
    "see 'journalctl -u nvidia-fabricmanager' and /var/log/nvlsm.log."
)
LOG = "See 'journalctl -u nvidia-fabricmanager' on the host, and run bedplate.gpu.site again."


def collect(host: Host, wish: Wishes, to: Collected) -> None:
    """Compare packages, services and the GPUs' registration with what role nvidia_fabric keeps."""
    given = wish.fabric
    if not given:
        to.checks.append(skipped("fabric", "the GPUs' fabric", "role nvidia_fabric is not asked"))
        return
    packages: Mapping[str, str] = given.get("packages", {})
    driver = str(given.get("driver_version", ""))
    now = fabric.state(host, list(given.get("families", ())), packages, driver)
    to.facts["fabric"] = now.installed
    to.checks.append(
        check(
            "fabric.foreign",
            "nothing of Fabric Manager but what the lock names or the driver's version has",
            [],
            now.foreign + [f"{name} {now.installed[name]}" for name in now.superseded],
            "Remove these packages, or take the driver to their version by bedplate_pins.",
        )
    )
    if not packages:
        reason = "the system has no NVSwitch, or not enough GPUs for it"
        to.checks.append(skipped("fabric.packages", "Fabric Manager", reason))
        return
    have = {name: now.installed[name] for name in packages if name in now.installed}
    what = "Fabric Manager and its companions at the lock's versions"
    to.checks.append(check("fabric.packages", what, dict(packages), have, AGAIN))
    held = sorted(n for n, p in state.installed(host, list(packages)).items() if p.held)
    what = "they are held against upgrades"
    to.checks.append(check("fabric.held", what, sorted(packages), held, AGAIN))
    what = "Fabric Manager is of the loaded driver's version"
    loaded = fabric.loaded_version(host)
    reason = "" if loaded else "no nvidia module is loaded"
    version = str(given.get("version", ""))
    to.checks.append(check("fabric.version", what, version, loaded, AGAIN, reason))
    services = list(given.get("services", ()))
    working = {name: fabric.running(host, name) for name in services}
    what = "the fabric's services run, now and after a boot"
    wished = dict.fromkeys(services, "active, enabled")
    to.checks.append(check("fabric.services", what, wished, working, LOG))
    if subnet_manager := str(given.get("subnet_manager", "")):
        what = "the subnet manager runs, and began before Fabric Manager"
        now_ = fabric.first(host, subnet_manager)
        to.checks.append(check("fabric.subnet_manager", what, fabric.FIRST, now_, RESTART))
    _registered(host, to)


def _registered(host: Host, to: Collected) -> None:
    what = "every GPU has registered with the fabric"
    query = "--query-gpu=index," + fabric.FIELDS
    answer = host.run(["nvidia-smi", query, "--format=csv,noheader"])
    rows = [[f.strip() for f in line.split(",")] for line in answer.out.splitlines() if line]
    if answer.code != 0 or not rows or any(len(row) != 3 for row in rows):
        reason = answer.said if answer.code else "nvidia-smi printed no GPU"
        to.checks.append(failed("fabric.state", what, reason, LOG, "an answer"))
        return
    rows = [[_words(field) for field in row] for row in rows]
    told = {
        f"GPU {index}": state + ("" if status in _ABSENT else ", " + status)
        for index, state, status in rows
    }
    if all(state in _ABSENT for _, state, _ in rows):
        reason = "these GPUs do not register: GPUs do so from Hopper on"
        to.checks.append(skipped("fabric.state", what, reason))
        return
    wished: Mapping[str, Any] = dict.fromkeys(told, "Completed, Success")
    to.checks.append(check("fabric.state", what, wished, told, LOG))


def _words(field: str) -> str:
    """A field without its own name, which driver 535 writes before the value."""
    words = field.split()
    return " ".join(words[1:] if words and words[0] in ("state", "status") else words)
