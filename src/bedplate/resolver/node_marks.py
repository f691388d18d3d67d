"""Labels and taints of nodes: that there is room without a toleration, and what they do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bedplate.lock.taints import KEEPING_OFF, tolerations
from bedplate.resolver import control_planes
from bedplate.resolver.explanations import refused
from bedplate.resolver.outcome import Notice
from bedplate.site.marks import LABELS, TAINTS
from bedplate.site.site import CONTROL_PLANE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bedplate.common.errors import Problem
    from bedplate.lock import Lock
    from bedplate.site import Site, SiteHost

#: Settings by which something runs in the cluster that tolerates no taint of a pool.
IN_THE_CLUSTER = ("bedplate_schedulers", "bedplate_operators", "bedplate_courses", "bedplate_hub")


def check(site: Site) -> Iterator[Problem]:
    """Yield that taints leave no node for pods that tolerate none, such as those of Kueue.

    CoreDNS, as kubeadm installs it, tolerates the taint of control planes.
    """
    tainted = [host for host in site.nodes if _keeps_off(host)]
    if not tainted or not any(getattr(tainted[0].wishes, key) for key in IN_THE_CLUSTER):
        return
    open_planes = control_planes.untainted(site)
    room = [
        host
        for host in site.nodes
        if host not in tainted and (CONTROL_PLANE not in host.groups or host.name in open_planes)
    ]
    if not room:
        allowed = "a node without such a taint for add-ons and the hub"
        fix = (
            "leave one pool without it, add a host to workers, or set "
            "bedplate_kubernetes.control_plane_taint: false"
        )
        got = "each node that takes pods has NoSchedule or NoExecute"
        yield refused("taints-leave-room", tainted[0], (TAINTS,), got, allowed, fix)


def notices(site: Site, lock: Lock) -> Iterator[Notice]:
    """Yield what taints mean for pods, and which hosts have marks that no node has."""
    evicting = sorted(
        host.pool or host.name
        for host in site.nodes
        if any(taint.effect == "NoExecute" for taint in host.wishes.bedplate_taints)
    )
    for name in dict.fromkeys(evicting):
        yield Notice(
            "a taint of effect NoExecute: pulumi up evicts running pods that do not tolerate it",
            name,
            hint="drain the pool first, or use NoSchedule",
        )
    queued = "kueue" in lock.addons
    for pool in sorted(lock.pools):
        if named := [f"{one['key']}:{one['effect']}" for one in tolerations(lock, [pool])]:
            by = "Kueue gives it to what teams' queues admit" if queued else "nothing adds it"
            yield Notice(f"pods need a toleration for {', '.join(named)}; {by}", pool)
    for key in (LABELS, TAINTS):
        others = [
            name
            for name, host in sorted(site.hosts.items())
            if getattr(host.wishes, key) and not host.is_node
        ]
        if others:
            yield Notice(f"{key} of {', '.join(others)}: not used, since they are no nodes")


def _keeps_off(host: SiteHost) -> bool:
    return any(taint.effect in KEEPING_OFF for taint in host.wishes.bedplate_taints)
