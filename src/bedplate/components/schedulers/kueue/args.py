"""What queues are made of: teams, pools and how work waits, given by hand or read from a lock."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

from bedplate.accounting.units import by_flavor
from bedplate.components.config import StackError
from bedplate.components.schedulers.topology import levels
from bedplate.lock.claims import by_claim, in_pools
from bedplate.lock.offers import offered, pools_with_offers
from bedplate.lock.taints import open_nodes, tolerations
from bedplate.portable.message import problem
from bedplate.site.presets.model import PLAIN, Preset

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bedplate.catalogue import Catalogue
    from bedplate.components.schedulers.kueue.objects import Object
    from bedplate.lock import Lock
    from bedplate.lock.courses import Course
    from bedplate.lock.model import Team

#: The group of the API in which an API server has policies that change objects.
ADMISSION: Final = "admissionregistration.k8s.io"


@dataclass(frozen=True)
class PoolArgs:
    """A pool whose devices are counted. Its nodes have its name as label `bedplate.io/pool`.

    Attributes:
        offers: what all its nodes offer together, by resource.
        levels: labels that say where its nodes stand, of the widest level first; every node of the
            pool has each. `kubernetes.io/hostname` is always the narrowest.
        tolerations: what pods have to tolerate on its nodes, as pods write it.
        by_claim: whether claims take its GPUs too (DRA), which the queues of courses count.
    """

    offers: Mapping[str, int]
    levels: Sequence[str] = ()
    tolerations: Sequence[Object] = ()
    by_claim: bool = False


@dataclass(frozen=True)
class QueuesArgs:
    """Queues and who may use them. Raises StackError for quotas of what no pool offers.

    Attributes:
        teams: by name. Their quotas are of `pools`, by pool and resource.
        pools: by name.
        preset: how work waits and who makes room, where pods go, and classes of priority.
        courses: by name; each is one of `teams` too. They have their GPUs from a hub.
        units: how much of a GPU a unit of each resource is, as JSON for requests of shares, by what
            a flavour's name begins with; without it nobody asks for shares.
        jobsets: whether JobSets are queued: then their definition is there before Kueue.
        replicas: of Kueue's controller.
        mutating_api: the API in which the API server has MutatingAdmissionPolicy. Without one,
            users name classes and times themselves, and usage is counted to no user.
    """

    teams: Mapping[str, Team]
    pools: Mapping[str, PoolArgs]
    preset: Preset = PLAIN
    courses: Mapping[str, Course] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    jobsets: bool = False
    replicas: int = 1
    mutating_api: str | None = None

    def __post_init__(self) -> None:
        """Refuse quotas of what no pool offers: Kueue would count nothing. Raises StackError."""
        wrong = [
            f"{resource} of {pool} for team {name}"
            for name, team in self.teams.items()
            for pool, quotas in team.gpus.items()
            for resource in quotas
            if pool not in self.pools or resource not in self.pools[pool].offers
        ]
        if wrong:
            known = [f"{one} of {name}" for name, pool in self.pools.items() for one in pool.offers]
            allowed = ", ".join(known) or "none"
            fix = "correct the quota, or add the pool with what it offers"
            raise StackError(
                problem("a quota of what no pool offers", "teams", ", ".join(wrong), allowed, fix)
            )

    @cached_property
    def resources(self) -> list[str]:
        """Return the resources that the queues count."""
        return sorted({resource for pool in self.pools.values() for resource in pool.offers})

    @property
    def places_nodes(self) -> bool:
        """Tell whether Kueue chooses the nodes when it admits, and so sees that none has room.

        It fills nodes one after the other. Where pods are to be spread, or the extender chooses
        GPUs, it counts quota only, and a workload whose pods find no node is put back by its time
        limit.
        """
        return self.preset.placement.pods == "binpack" and not self.preset.placement.extender

    @cached_property
    def claiming(self) -> dict[str, Course]:
        """Return the courses whose students claim memory."""
        return by_claim(self.courses)

    @cached_property
    def in_pools_of_claims(self) -> dict[str, Course]:
        """Return the courses in pools whose GPUs claims take, whole ones as well."""
        return in_pools(self.courses, {name for name, one in self.pools.items() if one.by_claim})


def queues_args(lock: Lock, catalogue: Catalogue) -> QueuesArgs:
    """Return what a lock decides of queues. Raises StackError as `topology.levels`.

    There are two controllers where two nodes take them: without its webhooks nothing is submitted.
    """
    release = catalogue.kubernetes.get(lock.cluster.kubernetes.version) if lock.cluster else None
    version = release.value.mutating_policies if release is not None else None
    return QueuesArgs(
        teams=lock.teams,
        pools={
            name: PoolArgs(
                offered(lock, name),
                levels(lock, name),
                tolerations(lock, [name]),
                by_claim=lock.pools[name].sharing.mode == "dra",
            )
            for name in pools_with_offers(lock)
        },
        preset=lock.preset,
        courses=lock.courses,
        units=by_flavor(lock, catalogue),
        jobsets="jobset" in lock.addons,
        replicas=min(2, max(1, len(open_nodes(lock)))),
        mutating_api=version and f"{ADMISSION}/{version}",
    )
