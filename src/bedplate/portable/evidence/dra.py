"""Evidence of the DRA driver: its unit, and its slice against the GPUs of the host."""

from typing import List

from .. import dra, nvidia
from ..host import Host
from .area import Collected, Wishes
from .checks import AGAIN, check, failed, skipped

LOG = f"Read its log: journalctl --unit {dra.UNIT}"


def collect(host: Host, wish: Wishes, to: Collected) -> None:
    """Compare unit, registration and published devices with the host's GPUs."""
    what = "the DRA driver starts with kubelet"
    answer = host.run(["systemctl", "is-enabled", dra.UNIT])
    to.checks.append(check("dra.unit", what, "enabled", answer.out.strip() or None, AGAIN))
    whats = {
        "dra.registered": "kubelet has the DRA driver",
        "dra.devices": "every GPU is a device of the node's slice, with its memory",
        "dra.shares": "GPUs are shared by memory, or given whole",
        "dra.taints": "no GPU is tainted",
    }
    if not host.joined:
        reason = "the host is in no cluster"
        to.checks.extend(skipped(name, what, reason) for name, what in whats.items())
        return
    active = host.run(["systemctl", "is-active", dra.UNIT]).out.strip() or "unknown"
    state = "active, registered" if host.exists(dra.SOCKET) else "active, not registered"
    found = state if active == "active" else active
    name = "dra.registered"
    to.checks.append(check(name, whats[name], "active, registered", found, LOG))
    published, reason_or_none = dra.published(host)
    name = "dra.devices"
    if reason_or_none is not None:
        to.checks.append(failed(name, whats[name], reason_or_none, LOG, "an answer of the API"))
        return
    to.facts["dra"] = {one.name: one._asdict() for one in published}
    cards, unasked = nvidia.query(host)
    if not cards:
        to.checks.append(failed(name, whats[name], unasked or "nvidia-smi lists no GPU", AGAIN))
        return
    wished = {card.uuid: f"{card.memory} MiB" for card in cards}
    offered = {one.uuid: f"{one.memory} MiB" for one in published}
    to.checks.append(check(name, whats[name], wished, offered, LOG))
    _shares(published, bool(wish.sharing.get("shares", True)), to)
    tainted = [f"{one.name}: {taint}" for one in published for taint in one.taints]
    fix = "See the host's kernel log for the XID error; a reset or a reboot clears it."
    to.checks.append(check("dra.taints", whats["dra.taints"], [], tainted, fix))


def _shares(published: List[dra.Device], wished: bool, to: Collected) -> None:
    what = "GPUs are shared by memory, or given whole"
    found = {one.name: "shared" if one.shared else "whole" for one in published}
    want = dict.fromkeys(found, "shared" if wished else "whole")
    to.checks.append(check("dra.shares", what, want, found, AGAIN))
