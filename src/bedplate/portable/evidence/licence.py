"""Evidence of a guest with shares of cards: the licence that it asks for, and whether it has it.

Words and places as in NVIDIA's Virtual GPU Client Licensing User Guide. Never seen with the driver
for guests itself, which only NVIDIA's licensing portal hands out.
"""

import re
from typing import Any, Mapping

from ..host import Host
from .area import Collected, Wishes
from .checks import AGAIN, check, failed, skipped

CONFIGURATION = "/etc/nvidia/gridd.conf"
TOKENS = "/etc/nvidia/ClientConfigToken"
SERVICE = "nvidia-gridd.service"
_FEATURE = re.compile(r"^\s*FeatureType\s*=\s*(\d+)\s*$", re.MULTILINE)
_STATUS = re.compile(r"^\s*License Status\s*:\s*(.*\S)\s*$", re.MULTILINE)
DRIVER = "Have NVIDIA's driver for guests in the guest's image: it comes from its licensing portal."


def _asks(host: Host, wish: Mapping[str, Any], to: Collected) -> None:
    # Two of them are a file that somebody edited.
    found = ", ".join(_FEATURE.findall(host.read(CONFIGURATION) or ""))
    wished = str(wish["licence_feature"])
    reason = "" if found else f"no FeatureType in {CONFIGURATION}"
    what = "guest asks for the requested licence"
    to.checks.append(check("licence.feature", what, wished, found or None, AGAIN, reason))
    tokens = [name for name in host.list(TOKENS) if name.endswith(".tok")]
    what = "guest has a token of its licence server"
    if tokens:
        to.checks.append(check("licence.token", what, tokens, tokens, ""))
    else:
        fix = (
            "Set gpu_passthrough_licence_token and run "
            "bedplate.gpu.site, or have it in the guest's image."
        )
        reason = f"no .tok file in {TOKENS}"
        to.checks.append(failed("licence.token", what, reason, fix, "a token"))


def _has(host: Host, wish: Mapping[str, Any], to: Collected) -> None:
    state = host.run(["systemctl", "is-active", SERVICE]).out.strip() or "unknown"
    what = f"{SERVICE} asks the licence server"
    to.checks.append(check("licence.service", what, "active", state, DRIVER))
    what = "every share of a GPU is licensed"
    answer = host.run(["nvidia-smi", "-q"])
    said = _STATUS.findall(answer.out)
    to.facts["licence"] = said
    wished = ["Licensed"] * len(wish["vgpu"])
    if answer.code != 0:
        to.checks.append(failed("licence.status", what, answer.said, DRIVER, wished))
        return
    # A licence is told with the time until which it was lent.
    found = ["Licensed" if status.split()[0] == "Licensed" else status for status in said]
    reason = "" if said else "nvidia-smi reports no licence"
    fix = f"See 'journalctl -u {SERVICE}' on the guest." if said else DRIVER
    to.checks.append(check("licence.status", what, wished, found or None, fix, reason))


def collect(host: Host, wishes: Wishes, to: Collected) -> None:
    """Add the checks of a guest with shares of cards; one skipped check on every other host."""
    wish = wishes.licence
    if not wish.get("vgpu"):
        reason = "the host is no guest with shares of GPUs"
        to.checks.append(skipped("licence", "licences of shares of GPUs", reason))
        return
    _asks(host, wish, to)
    _has(host, wish, to)
