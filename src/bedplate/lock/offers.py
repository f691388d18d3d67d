"""What pods can ask for of a pool: the one place that teams, queues and simulation count by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bedplate.site.site import NODES, SLURM

if TYPE_CHECKING:
    from bedplate.lock.model import Lock, Pool


def offers(pool: Pool) -> dict[str, int]:
    """Return what one host of a pool offers: GPUs, shares or MIG devices, by resource.

    Of mode `dra` these are whole GPUs, for which pods ask by the resource as everywhere; shares by
    memory are claims and no count. A pool that offers nothing (hypervisors) has an empty answer.
    """
    expected = pool.expects
    if expected is None:
        return {}
    found = {expected.resource: expected.count, **expected.also}
    return {resource: count for resource, count in found.items() if count}


def offered(lock: Lock, name: str) -> dict[str, int]:
    """Return what all hosts of a pool offer together, by resource."""
    hosts = sum(host.pool == name for host in lock.hosts.values())
    return {resource: count * hosts for resource, count in offers(lock.pools[name]).items()}


def pools_with_offers(lock: Lock) -> list[str]:
    """Return the pools whose nodes offer something to pods."""
    return [
        name
        for name, pool in sorted(lock.pools.items())
        if offers(pool) and pool.expects is not None and pool.expects.by != "slurm"
    ]


def resources_of(lock: Lock) -> list[str]:
    """Return the resources that pods can ask for of any pool."""
    return sorted({one for name in pools_with_offers(lock) for one in offers(lock.pools[name])})


def pools_of_nodes(lock: Lock) -> set[str]:
    """Return the pools whose hosts are nodes of Kubernetes; those of Slurm run no pods."""
    pools = {host.pool for host in lock.hosts.values() if set(NODES) & set(host.groups)}
    return pools - {None}  # type: ignore[return-value]


def pools_with_containers(lock: Lock) -> set[str]:
    """Return the pools whose hosts have a container runtime: those of Slurm by Podman alone."""
    if lock.containers is None or lock.containers.podman is None:
        return pools_of_nodes(lock)
    pools = {host.pool for host in lock.hosts.values() if SLURM in host.groups}
    return pools - {None}  # type: ignore[return-value]
