"""Evidence of how GPUs are shared: MIG layout, compute mode, MPS, the device plugin's replicas."""

import re
from typing import List, Sequence

from .. import mig
from ..host import Host
from . import mps
from .area import Collected, Wishes
from .checks import AGAIN, check, failed, skipped

CONFIGURATION = "/etc/bedplate/device-plugin-config.yaml"
UNIT = "bedplate-gpu-layout.service"
ENABLED = "/etc/systemd/system/multi-user.target.wants/" + UNIT
PENDING = (
    "A node keeps its sharing while it is in a cluster: run bedplate.gpu.upgrade, which drains it."
)
#: Our own configuration file, so its form is known; the host may have no YAML library.
_REPLICAS = re.compile(r"^\s+replicas: (\d+)$", re.MULTILINE)
_KIND = re.compile(r"^  (timeSlicing|mps):$", re.MULTILINE)
_STRATEGY = re.compile(r"^  migStrategy: (\w+)$", re.MULTILINE)


def collect(host: Host, wish: Wishes, to: Collected) -> None:
    """Compare what the GPUs and the device plugin's configuration say with the wished sharing."""
    if not wish.sharing:
        to.checks.append(skipped("sharing", "how GPUs are shared", "the lock shares none here"))
        return
    cards = _layout(host, wish, to)
    _plugin(host, wish, to)
    if _mode(wish) == "mps":
        mps.collect(host, _replicas(wish), [card.number for card in cards], to)
    else:
        reason = "the GPUs are not shared by MPS"
        what = "no MPS daemon but the device plugin's"
        to.checks.append(skipped("sharing.mps", what, reason))


def _mode(wish: Wishes) -> str:
    return str(wish.sharing.get("mode", "none"))


def _replicas(wish: Wishes) -> int:
    return int(wish.sharing.get("replicas", 0))


def _layout(host: Host, wish: Wishes, to: Collected) -> Sequence[mig.Card]:
    what = "every GPU divided as the lock says"
    fix = PENDING if host.joined else AGAIN
    try:
        cards = mig.read(host)
    except mig.MigError as error:
        to.checks.append(failed("sharing.mig", what, str(error), AGAIN, "an answer"))
        return ()
    layout = {f"GPU {card.number}": mig.described(card) for card in cards}
    to.facts["mig"] = layout
    numbers = [card.number for card in cards]
    named = sorted({*numbers, *wish.layout.cards})
    want = {f"GPU {n}": mig.wished_text(wish.layout.of(n)) for n in named}
    if not cards:
        reason = "nvidia-smi lists no GPU"
        to.checks.append(failed("sharing.mig", what, reason, AGAIN, mig.wished_layout(wish.layout)))
        return ()
    to.checks.append(check("sharing.mig", what, want, layout, fix))
    what = "the layout comes back after a reboot"
    if host.exists(ENABLED) or wish.divides:
        found = "enabled" if host.exists(ENABLED) else "not enabled"
        to.checks.append(check("sharing.boot", f"{what} ({UNIT})", "enabled", found, AGAIN))
    else:
        to.checks.append(skipped("sharing.boot", what, "the GPUs are not divided"))
    _compute_mode(host, wish, to, cards)
    return cards


def _compute_mode(host: Host, wish: Wishes, to: Collected, cards: List[mig.Card]) -> None:
    what, wished = "compute mode of every GPU", wish.layout.compute_mode
    if _mode(wish) == "mps":
        if not host.joined:
            to.checks.append(
                skipped("sharing.compute_mode", what, "the MPS daemon sets it once the host joins")
            )
            return
        wished = "exclusive-process"
    whole = [card for card in cards if not wish.layout.of(card.number)]
    if not wished or not whole:
        reason = "none is requested" if whole else "divided GPUs have none to choose"
        to.checks.append(skipped("sharing.compute_mode", what, reason))
        return
    found = {f"GPU {card.number}": card.compute_mode for card in whole}
    want = dict.fromkeys(found, mig.COMPUTE_MODES[wished])
    to.checks.append(check("sharing.compute_mode", what, want, found, AGAIN))


def offered(text: str) -> str:
    """What a device plugin's configuration offers, as ``mps x 20, MIG none``."""
    kind, replicas, strategy = (p.search(text) for p in (_KIND, _REPLICAS, _STRATEGY))
    mode = {"timeSlicing": "time-slicing", "mps": "mps"}[kind.group(1)] if kind else "none"
    shares = f" x {replicas.group(1)}" if kind and replicas else ""
    return "{}{}, MIG {}".format(mode, shares, strategy.group(1) if strategy else "none")


def _wished_offer(wish: Wishes) -> str:
    shared = _mode(wish) in ("time-slicing", "mps")
    mode = f"{_mode(wish)} x {_replicas(wish)}" if shared else "none"
    return f"{mode}, MIG {wish.strategy}"


def _plugin(host: Host, wish: Wishes, to: Collected) -> None:
    what = "the device plugin offers GPUs as the lock says"
    text = host.read(CONFIGURATION)
    if text is None:
        reason = f"there is no {CONFIGURATION}: no device plugin on this host"
        to.checks.append(skipped("sharing.replicas", what, reason))
        return
    fix = PENDING if host.joined else AGAIN
    to.checks.append(check("sharing.replicas", what, _wished_offer(wish), offered(text), fix))
