"""Evidence that nothing else upgrades packages on the host."""

import re
from typing import List

from ..host import Host
from .area import Collected, Wishes
from .checks import check

_APT_VALUE = re.compile(r'^APT::Periodic::Unattended-Upgrade "(?P<value>[^"]*)";', re.MULTILINE)
_NEVER = ("", "0", "false", "no", "off", "never")
#: dnf's timers; the plain one installs only where its configuration says so.
_DNF = ("dnf-automatic-install.timer", "dnf-automatic.timer")
_DNF_CONFIGURATION = "/etc/dnf/automatic.conf"
_APPLIES = re.compile(r"^\s*apply_updates\s*=\s*(?:yes|true|1)\s*$", re.MULTILINE | re.IGNORECASE)


def _enabled(host: Host, timer: str) -> bool:
    return host.run(["systemctl", "is-enabled", timer]).out.strip().startswith("enabled")


def unattended(host: Host) -> List[str]:
    """What would upgrade packages by itself: names of timers; empty where nothing would."""
    found = []
    if host.exists("/usr/bin/unattended-upgrade"):
        said = _APT_VALUE.search(host.run(["apt-config", "dump"]).out)
        asked = said is not None and said.group("value").lower() not in _NEVER
        if asked and _enabled(host, "apt-daily-upgrade.timer"):
            found.append("apt-daily-upgrade.timer")
    if host.exists("/usr/bin/dnf-automatic"):
        applies = _APPLIES.search(host.read(_DNF_CONFIGURATION) or "") is not None
        timers = [timer for timer in _DNF if applies or "install" in timer]
        found += [timer for timer in timers if _enabled(host, timer)]
    return found


def collect(host: Host, wish: Wishes, to: Collected) -> None:
    """Look for timers that install upgrades."""
    del wish  # the same on every host
    found = unattended(host)
    fix = (
        "Turn it off on the host ({}), so that kernel and driver move by bedplate.gpu.upgrade only."
    )
    commands = ["systemctl disable --now " + timer for timer in found]
    to.checks.append(
        check(
            "updates.unattended",
            "no timer installs upgrades automatically",
            [],
            found,
            fix.format("; ".join(commands)),
        )
    )
