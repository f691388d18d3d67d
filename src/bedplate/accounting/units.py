"""How much of a GPU one unit of each resource is, as the lock shares them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bedplate.lock.offers import offered, offers
from bedplate.schedulers.kueue.objects import named
from bedplate.simulation.of_lock import instances

if TYPE_CHECKING:
    from bedplate.accounting.records import Units
    from bedplate.catalogue import Catalogue
    from bedplate.lock import Lock
    from bedplate.lock.model import Pool


def units(lock: Lock, catalogue: Catalogue) -> Units:
    """Return GPUs by unit, by pool and resource. A share is its part of the GPU."""
    return {
        named(name): {resource: _unit(pool, resource, catalogue) for resource in offers(pool)}
        for name, pool in sorted(lock.pools.items())
        if offers(pool) and pool.expects is not None and pool.expects.by != "slurm"
    }


def capacity(lock: Lock, catalogue: Catalogue) -> float:
    """Return the GPUs that all nodes offer to the queues."""
    of = units(lock, catalogue)
    return sum(
        count * of[named(name)][resource]
        for name in lock.pools
        if named(name) in of
        for resource, count in offered(lock, name).items()
    )


def _unit(pool: Pool, resource: str, catalogue: Catalogue) -> float:
    sharing = pool.sharing
    if sharing.mode in {"time-slicing", "mps"} and sharing.replicas:
        return 1 / sharing.replicas
    profile = resource.partition("/mig-")[2] or sharing.profile
    if sharing.mode == "mig" and profile and (profile == sharing.profile or "/mig-" in resource):
        holds = [instances(gpu.model, profile.replace(".me", "+me"), catalogue) for gpu in pool.gpu]
        most = max((one for one in holds if one), default=0)
        return 1 / most if most else 1.0
    return 1.0
