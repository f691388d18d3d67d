"""Which nodes take pods that tolerate nothing, and what pods of a pool have to tolerate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bedplate.site.site import CONTROL_PLANE, NODES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bedplate.lock.model import Host, Lock, Taint

#: PreferNoSchedule keeps no pod off.
KEEPING_OFF = ("NoSchedule", "NoExecute")


def keeps_off(host: Host) -> bool:
    """Tell whether a node's taints keep pods off that tolerate nothing."""
    return any(taint.effect in KEEPING_OFF for taint in host.taints)


def open_nodes(lock: Lock) -> list[str]:
    """Return the nodes that take pods without a toleration."""
    untainted = set(lock.cluster.kubernetes.untainted) if lock.cluster else set()
    workers = set(NODES) - {CONTROL_PLANE}
    return [
        name
        for name, host in lock.hosts.items()
        if not keeps_off(host)
        and (name in untainted or (workers & set(host.groups) and CONTROL_PLANE not in host.groups))
    ]


def tolerations(lock: Lock, pools: Iterable[str]) -> list[dict[str, Any]]:
    """Return what pods on the nodes of some pools have to tolerate; the smallest that is enough."""
    names = set(pools)
    taints: dict[Taint, None] = {}
    for _, host in sorted(lock.hosts.items()):
        if host.pool in names:
            taints |= dict.fromkeys(host.taints)
    return [
        {
            "key": taint.key,
            "operator": "Equal",
            "value": taint.value,
            "effect": taint.effect,
        }
        for taint in taints
    ]
