"""What jobs are checked and placed by: teams, pools and add-ons, given by hand or from a lock."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bedplate.lock import rdma
from bedplate.lock.builds import build_of
from bedplate.lock.offers import offers, pools_with_offers
from bedplate.lock.taints import tolerations
from bedplate.site.presets.model import PLAIN, Preset

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from bedplate.lock import Lock
    from bedplate.lock.model import Framework, Team


@dataclass(frozen=True)
class JobPool:
    """A pool that jobs run in. Its nodes have its name as label `bedplate.io/pool`.

    Attributes:
        offers: what each of its nodes offers to pods, by resource.
        nodes: how many there are.
        mode: how its GPUs are shared: none, time-slicing, mps, mig, hami or dra.
        frameworks: builds that jobs name; `built` of JobsArgs has their images.
        images: own images by name: a job that names one runs in this pool.
        rdma: resources of which each pod gets one, where a job has several pods with whole GPUs;
            NCCL's settings are then in a ConfigMap `nccl-POOL` of its namespace.
        tolerations: what pods have to tolerate on its nodes, as pods write it.
    """

    offers: Mapping[str, int]
    nodes: int
    mode: str = "none"
    frameworks: Sequence[Framework] = ()
    images: Mapping[str, str] = field(default_factory=dict)
    rdma: Collection[str] = ()
    tolerations: Sequence[dict[str, Any]] = ()

    def build(self, named: str | None) -> Framework | None:
        """Return the build by NAME or NAME-VERSION: the newest of several."""
        return build_of(self.frameworks, named) if named else None


@dataclass(frozen=True)
class JobsArgs:
    """A cluster with queues, as far as jobs depend on it.

    Attributes:
        teams: by name. Their quotas are of `pools`, by pool and resource.
        pools: by name.
        addons: those that are there of kueue, volcano and jobset.
        preset: whether pods of a job are a gang, as the queues have it.
        built: images of frameworks, by `Framework.identity`.
        refused: own images that do not run in their pool, with the reason.
        tolerations: what pods tolerate that run in any pool.
    """

    teams: Mapping[str, Team]
    pools: Mapping[str, JobPool]
    addons: Collection[str] = ("kueue",)
    preset: Preset = PLAIN
    built: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[dict[str, Any]] = ()


def jobs_args(
    lock: Lock, built: Mapping[str, str] | None = None, refused: Mapping[str, str] | None = None
) -> JobsArgs:
    """Return what a lock decides; its bill has the images that were built, and those refused."""
    images = lock.cluster.images if lock.cluster else {}
    usable = pools_with_offers(lock)
    pools = {
        name: JobPool(
            offers(pool) if name in usable else {},
            sum(host.pool == name for host in lock.hosts.values()),
            pool.sharing.mode,
            pool.frameworks,
            {own: one.image for own, one in images.items() if one.pool == name},
            rdma.resources(pool),
            tolerations(lock, [name]),
        )
        for name, pool in sorted(lock.pools.items())
    }
    return JobsArgs(
        lock.teams,
        pools,
        lock.addons,
        lock.preset,
        built or {},
        refused or {},
        tolerations(lock, lock.pools),
    )
