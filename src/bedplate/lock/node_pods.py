"""How many pods a node takes for users: kubelet's number, less the pods of the cluster itself."""

from __future__ import annotations

from ipaddress import ip_network
from typing import TYPE_CHECKING, Any, Protocol

from bedplate.lock import rdma

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bedplate.catalogue import Catalogue
    from bedplate.catalogue.kubernetes_facts import SubnetLimit
    from bedplate.lock.model import Cluster, Host, Lock, Pool

CONTROL_PLANE = "control_plane"
#: Addresses of a node's subnet that no pod gets: its own, the bridge's and that of broadcasts.
TAKEN = 3


class Networked(Protocol):
    """What settings and lock both have of a cluster."""

    @property
    def kubelet(self) -> dict[str, Any]:
        """Return the fields of kubelet's configuration."""

    @property
    def pod_subnet(self) -> str:
        """Return the pods' subnet."""


def subnet_limit(of: str, family: int, catalogue: Catalogue) -> SubnetLimit | None:
    """Return how large a subnet of pods or services may be, None where it is not known."""
    limits = (fact.value for fact in catalogue.subnet_limits.values())
    return next((one for one in limits if (one.of, one.family) == (of, family)), None)


def kubelet_pods(kubelet: Mapping[str, Any], catalogue: Catalogue) -> int:
    """Return how many pods kubelet takes on a node, the cluster's own among them."""
    most = kubelet.get("maxPods")
    # The form of the setting is checked elsewhere.
    return most if isinstance(most, int) else catalogue.node_limits["pods"].value.most


def addresses(settings: Networked, catalogue: Catalogue) -> int | None:
    """Return how many pods a node's subnet has addresses for, None where it is not known."""
    pods = ip_network(settings.pod_subnet)
    limit = subnet_limit("pods", pods.version, catalogue)
    if limit is None or limit.node_prefix is None:
        return None
    return (1 << (pods.max_prefixlen - limit.node_prefix)) - TAKEN


def node_pods(settings: Networked, catalogue: Catalogue) -> int:
    """Return how many pods a node has room for: kubelet's number, or that of its addresses."""
    most, room = kubelet_pods(settings.kubelet, catalogue), addresses(settings, catalogue)
    return most if room is None else min(most, room)


def for_users(lock: Lock, catalogue: Catalogue) -> dict[str, int]:
    """Return by host how many pods of users its node takes.

    What the cluster has once, as CoreDNS, may be on any node. The first host of each pool is
    counted as the one that has all of it: the scheduler decides that, not the plan.
    """
    cluster = lock.cluster
    if cluster is None:
        return {}
    most = node_pods(cluster.kubernetes, catalogue)
    once = sum(_number(part, catalogue)[1] for part in _once(cluster))
    datasets = {name: _datasets(cluster, name) for name in lock.pools}
    found, seen = {}, set()
    for name, host in sorted(lock.hosts.items()):
        pool = lock.pools.get(host.pool or "")
        own = sum(_number(part, catalogue)[0] for part in _each(cluster, host, pool))
        own += datasets.get(host.pool or "", 0) * _number("dataset", catalogue)[0]
        if host.pool not in seen:
            own += once
            seen.add(host.pool)
        found[name] = max(0, most - own)
    return found


def _number(part: str, catalogue: Catalogue) -> tuple[int, int]:
    """Return how many pods of a part are on each node, and in the cluster; 0 of unknown ones."""
    fact = catalogue.own_pods.get(part)
    return (fact.value.each, fact.value.once) if fact else (0, 0)


def _each(cluster: Cluster, host: Host, pool: Pool | None) -> Iterator[str]:
    yield from ("kube-proxy", cluster.cni.name)
    if CONTROL_PLANE in host.groups:
        yield "control-plane"
    if pool is None or pool.expects is None:
        return
    # Of mode dra the driver runs on the host itself.
    if pool.expects.by != "dra":
        yield "hami" if pool.sharing.mode == "hami" else "device-plugin"
    if rdma.resources(pool):
        yield "rdma-device-plugin"
    if any(course.pool == host.pool for course in cluster.courses.values()):
        yield "images"


def _once(cluster: Cluster) -> Iterator[str]:
    yield from ("coredns", cluster.cni.name, *(addon.name for addon in cluster.addons))
    if cluster.hub is not None:
        yield "usage"
    if cluster.preset is not None and cluster.preset.placement.extender:
        yield "extender"
    if cluster.courses:
        yield "hub"
    if any(course.storage_mib and course.hours for course in cluster.courses.values()):
        yield "prepare"


def _datasets(cluster: Cluster, pool: str) -> int:
    """Return how many datasets of web servers the nodes of a pool keep."""
    known = cluster.storage.datasets if cluster.storage is not None else {}
    names = {name for one in cluster.courses.values() if one.pool == pool for name in one.datasets}
    return sum(known[name].url is not None for name in names if name in known)
