"""What a node has for users: pods, memory, CPUs and disk, less its reserve and its own pods."""

from __future__ import annotations

from fractions import Fraction
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from bedplate.lock import rdma
from bedplate.lock.model import NodeRoom
from bedplate.lock.offers import offers
from bedplate.portable.node_reserve import RESERVED, reserve
from bedplate.portable.quantities import GIB, mebibytes, parse

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bedplate.catalogue import Catalogue
    from bedplate.catalogue.kubernetes_facts import SubnetLimit
    from bedplate.lock.model import Cluster, Guest, Host, Kubernetes, Lock, Pool

#: MiB, and thousandths of a CPU, to which parts of a node are rounded down where they are larger.
STEPS = (64, 10)
#: Modes that make equal shares of a GPU, all of one size on a host.
EQUAL = ("time-slicing", "mps", "hami")
CONTROL_PLANE = "control_plane"
#: Fields of kubelet's configuration that say what of a node is for pods.
COUNTED = ("maxPods", "kubeReserved", "systemReserved", "evictionHard")
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


def merged(base: Mapping[str, object], patch: Mapping[str, object]) -> dict[str, object]:
    """Return a document with another one over it, as kubelet does it (RFC 7396)."""
    found = dict(base)
    for key, value in patch.items():
        before = found.get(key)
        if value is None:
            found.pop(key, None)
        elif isinstance(value, dict):
            found[key] = merged(before if isinstance(before, dict) else {}, value)
        else:
            found[key] = value
    return found


def settings_of(cluster: Cluster, host: Host) -> Kubernetes:
    """Return the cluster's settings with the kubelet fields that a node has of its own."""
    if not host.kubelet:
        return cluster.kubernetes
    update: dict[str, Any] = {"kubelet": merged(cluster.kubernetes.kubelet, host.kubelet)}
    # As the role has it: whoever says one of them says all that is kept.
    if any(name in host.kubelet for name in RESERVED):
        update["room"] = NodeRoom(processes=cluster.kubernetes.room.processes)
    return cluster.kubernetes.model_copy(update=update)


def node_pods(settings: Networked, catalogue: Catalogue) -> int:
    """Return how many pods a node has room for: kubelet's number, or that of its addresses."""
    most, room = kubelet_pods(settings.kubelet, catalogue), addresses(settings, catalogue)
    return most if room is None else min(most, room)


class Free(NamedTuple):
    """What a node has for users: pods; MiB, thousandths of CPUs, MiB of disk; None is unknown."""

    pods: int
    memory: int | None = None
    cpu: int | None = None
    disk: int | None = None


def for_users(lock: Lock, catalogue: Catalogue) -> dict[str, Free]:
    """Return by host what its node has for users: less its reserve, and the cluster's own pods.

    What the cluster has once, as CoreDNS, may be on any node. The first host of each pool is
    counted as the one that has all of it: the scheduler decides that, not the plan.
    """
    cluster = lock.cluster
    if cluster is None:
        return {}
    once = [_taken(part, catalogue, once=True) for part in _once(cluster)]
    datasets = {name: _datasets(cluster, name) for name in lock.pools}
    sizes = _sizes(lock)
    found, kinds = {}, {}
    first = {host.pool: name for name, host in sorted(lock.hosts.items(), reverse=True)}
    for name, host in sorted(lock.hosts.items()):
        own_fields = repr(host.kubelet) if host.kubelet else ""
        kind = host.pool, CONTROL_PLANE in host.groups, first[host.pool] == name, own_fields
        if kind not in kinds:
            settings = settings_of(cluster, host)
            most = node_pods(settings, catalogue)
            own = [
                _taken(part, catalogue)
                for part in _each(cluster, host, lock.pools.get(host.pool or ""))
            ]
            own += [_taken("dataset", catalogue)] * datasets.get(host.pool or "", 0)
            own += once if first[host.pool] == name else []
            memory, cpu = _left(sizes.get(host.pool or "", (None, None)), settings, catalogue)
            disk = lock.pools[host.pool].disk_mib if host.pool in lock.pools else None
            pods, mib, milli = (sum(one[index] for one in own) for index in range(3))
            kinds[kind] = Free(
                max(0, most - pods),
                None if memory is None else max(0, memory - mib),
                None if cpu is None else max(0, cpu - milli),
                None if disk is None else max(0, disk - _kept_disk(settings, disk, catalogue)),
            )
        found[name] = kinds[kind]
    return found


def of_unit(lock: Lock, name: str, free: Mapping[str, Free]) -> tuple[int | None, int | None]:
    """Return MiB and thousandths of CPUs that go with one of the units that a pool offers.

    The node that has least is divided by what GPUs of a node give; or by the most pods of one,
    where those are fewer and all shares alike. None is what is not known.
    """
    pool = lock.pools[name]
    its = [free[of] for of, host in lock.hosts.items() if host.pool == name and of in free]
    units = sum(offers(pool).values()) or 1
    if pool.sharing.mode in EQUAL and its:
        units = max(1, min(units, max(one.pods for one in its)))
    return parted(its, Fraction(1, units))


def parted(nodes: Sequence[Free], part: Fraction) -> tuple[int | None, int | None]:
    """Return a part of the least node, rounded down to what one would write."""
    return (
        _rounded(part, [one.memory for one in nodes], STEPS[0]),
        _rounded(part, [one.cpu for one in nodes], STEPS[1]),
    )


def _rounded(part: Fraction, has: Sequence[int | None], step: int) -> int | None:
    known = [one for one in has if one is not None]
    if len(known) < len(has) or not known:
        return None
    found = int(part * min(known))
    return found // step * step or max(1, found)


def _sizes(lock: Lock) -> dict[str, tuple[int | None, int | None]]:
    """Return MiB and CPUs of a node of each pool, None if not known.

    It is what the pool's hosts have, or the least of the guests that they are.
    """
    guests = {of: guest for host in lock.hosts.values() for of, guest in host.guests.items()}
    its: dict[str, list[Guest | None]] = {}
    for of, host in lock.hosts.items():
        its.setdefault(host.pool or "", []).append(guests.get(of))
    found = {}
    for name, pool in lock.pools.items():
        known = [guest for guest in its.get(name, ()) if guest is not None]
        memory, cpus = pool.memory_mib, pool.cpus
        if known and len(known) == len(its[name]):
            memory = memory or min(guest.memory_gib for guest in known) * GIB
            cpus = cpus or min(guest.cpus for guest in known)
        found[name] = memory, cpus
    return found


def _left(
    size: tuple[int | None, int | None], settings: Kubernetes, catalogue: Catalogue
) -> tuple[int | None, int | None]:
    """Return MiB and thousandths of CPUs of a node for pods: its size, less the reserve."""
    memory, cpus = size
    kept, kept_cpu = _kept(settings, memory or 0, (cpus or 0) * 1000, catalogue)
    return (
        None if memory is None else max(0, memory - kept),
        None if cpus is None else max(0, cpus * 1000 - kept_cpu),
    )


def _kept(kubernetes: Kubernetes, memory: int, cpu: int, catalogue: Catalogue) -> tuple[int, int]:
    """Return what a node keeps by the lock, or by the site's own fields, and before it evicts."""
    fields = kubernetes.kubelet
    limit = catalogue.node_limits.get("eviction-memory")
    left = _threshold(fields, "memory.available", memory, limit.value.most if limit else 0)
    room = kubernetes.room
    if room.memory is not None and room.cpu is not None:
        kept = reserve(memory, cpu, room.model_dump())
        return kept.memory + left, kept.cpu
    own = [fields.get(name) or {} for name in RESERVED]
    return (
        left + sum(mebibytes(one.get("memory", 0)) for one in own),
        sum(int(parse(one.get("cpu", 0)) * 1000) for one in own),
    )


def _kept_disk(kubernetes: Kubernetes, disk: int, catalogue: Catalogue) -> int:
    """Return the MiB of a node's disk that no pod may request: reserved, and before it evicts."""
    fields, limit = kubernetes.kubelet, catalogue.node_limits.get("eviction-disk")
    usual = disk * limit.value.most // 100 if limit else 0
    own = [fields.get(name) or {} for name in RESERVED]
    reserved = sum(mebibytes(one.get("ephemeral-storage", 0)) for one in own)
    return reserved + _threshold(fields, "nodefs.available", disk, usual)


def _threshold(fields: Mapping[str, Any], signal: str, size: int, usual: int) -> int:
    """Return the MiB of a size below which kubelet ends pods, *usual* where it is not said."""
    threshold = (fields.get("evictionHard") or {}).get(signal)
    if isinstance(threshold, str) and threshold.endswith("%"):
        return int(size * float(threshold[:-1]) / 100)
    return usual if threshold is None else mebibytes(threshold)


def _taken(part: str, catalogue: Catalogue, *, once: bool = False) -> tuple[int, int, int]:
    """Return pods, MiB and thousandths of CPUs of a part on each node, or in the cluster."""
    fact = catalogue.own_pods.get(part)
    if fact is None:
        return 0, 0, 0
    number = fact.value.once if once else fact.value.each
    return number, number * fact.value.memory, number * fact.value.cpu


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
    if any(host.pool in course.pools for course in cluster.courses.values()):
        yield "images"
    if cluster.usage and offers(pool):
        yield "reader"


def _once(cluster: Cluster) -> Iterator[str]:
    yield from ("coredns", cluster.cni.name, *(addon.name for addon in cluster.addons))
    if cluster.usage:
        yield "usage"
    if cluster.preset is not None and cluster.preset.placement.extender:
        yield "extender"
    if cluster.courses:
        yield "hub"
    if any(course.registry_mib for course in cluster.courses.values()):
        yield "registry"
    if any(course.storage_mib and course.hours for course in cluster.courses.values()):
        yield "prepare"


def _datasets(cluster: Cluster, pool: str) -> int:
    """Return how many datasets of web servers the nodes of a pool keep."""
    known = cluster.storage.datasets if cluster.storage is not None else {}
    names = {name for one in cluster.courses.values() if pool in one.pools for name in one.datasets}
    return sum(known[name].url is not None for name in names if name in known)
