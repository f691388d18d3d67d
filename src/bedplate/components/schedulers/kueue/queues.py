"""Flavours, topologies, quotas and queues: pure functions of the lock."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Final

from bedplate.accounting.units import annotation
from bedplate.catalogue import load_catalogue
from bedplate.components.schedulers.kueue import claims
from bedplate.components.schedulers.kueue.objects import (
    COHORT,
    QUEUE,
    TEAM_LABEL,
    Object,
    made,
    named,
)
from bedplate.components.schedulers.topology import HOST, POOL_LABEL, levels
from bedplate.lock.claims import by_claim, in_pools_of_claims
from bedplate.lock.model import Quota
from bedplate.lock.offers import offered, offers
from bedplate.pods.hub.shares import UNITS
from bedplate.site.presets.model import PLAIN, Preset

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bedplate.catalogue import Catalogue
    from bedplate.lock import Lock
    from bedplate.lock.model import Team

#: Kubernetes' numbers for what its own parts need; ours stay far below.
TEAM_CLASS: Final = "team-{}"


#: The topology of a pool whose site says nothing of racks.
HOSTS: Final = "hosts"


def preset_of(lock: Lock) -> Preset:
    """Return the decided values, or those of a site that chose no preset."""
    found = lock.cluster.preset if lock.cluster else None
    return found or PLAIN


def teams_of(lock: Lock) -> dict[str, Team]:
    """Return the teams by name."""
    return lock.cluster.teams if lock.cluster else {}


def pools_of(lock: Lock) -> list[str]:
    """Return the pools whose nodes offer something to pods."""
    return [
        name
        for name, pool in sorted(lock.pools.items())
        if offers(pool) and pool.expects is not None and pool.expects.by != "slurm"
    ]


def places_nodes(lock: Lock) -> bool:
    """Tell whether Kueue chooses the nodes when it admits, and so sees that none has room.

    It fills nodes one after the other. Where pods are to be spread, or the extender chooses GPUs,
    it counts quota only, and a workload whose pods find no node is put back by its time limit.
    """
    placement = preset_of(lock).placement
    return placement.pods == "binpack" and not placement.extender


def objects(lock: Lock, catalogue: Catalogue | None = None) -> list[Object]:
    """Return everything that queues are, in the order in which it is needed."""
    return [
        *topologies(lock),
        *flavors(lock, catalogue),
        *priority_classes(lock),
        *cohort(lock),
        *(cluster_queue(lock, name) for name in teams_of(lock)),
        *local_queues(lock),
        *claims.templates(lock),
    ]


def topology_name(lock: Lock, pool: str) -> str:
    """Return the name of the topology of a pool: its levels, or `hosts` where the site has none."""
    return "-".join(label.rpartition("/")[2] for label in levels(lock, pool)) or HOSTS


def topologies(lock: Lock) -> Iterator[Object]:
    """Yield one Topology for each set of levels that pools have; hosts are the narrowest level."""
    if not places_nodes(lock):
        return
    found = {topology_name(lock, pool): levels(lock, pool) for pool in pools_of(lock)}
    for name, labels in sorted(found.items()):
        told = " > ".join(label.rpartition("/")[2] for label in [*labels, HOST])
        yield made(
            "Topology",
            name,
            f"Where nodes stand, widest level first: {told}.",
            spec={"levels": [{"nodeLabel": label} for label in [*labels, HOST]]},
        )


def flavor_name(lock: Lock, pool: str) -> str:
    """Return the name of a pool's ResourceFlavor.

    A flavour with a topology never changes, so each way to place pods has a flavour of its own: a
    site's other preset, racks that are named later, or other taints make a new one beside that in
    use.
    """
    if not places_nodes(lock):
        return f"{named(pool)}.quota-only"
    topology = topology_name(lock, pool)
    name = named(pool) if topology == HOSTS else f"{named(pool)}.{topology}"
    if found := claims.tolerated(lock, pool):
        text = json.dumps(found, sort_keys=True)
        name += f".taints-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    return name


def flavors(lock: Lock, catalogue: Catalogue | None = None) -> Iterator[Object]:
    """Yield a ResourceFlavor for each pool."""
    catalogue = catalogue or load_catalogue()
    for pool in pools_of(lock):
        told = ", ".join(f"{count} {resource}" for resource, count in offered(lock, pool).items())
        spec: Object = {"nodeLabels": {POOL_LABEL: pool}} | claims.tolerated(lock, pool)
        if places_nodes(lock):
            spec["topologyName"] = topology_name(lock, pool)
        labels = {POOL_LABEL: pool}
        about = f"The nodes of {pool}: {told} in all."
        flavor = made("ResourceFlavor", flavor_name(lock, pool), about, labels=labels, spec=spec)
        flavor["metadata"]["annotations"][UNITS] = annotation(lock, pool, catalogue)
        yield flavor
    yield from claims.flavors(lock, catalogue)


def priority_classes(lock: Lock) -> Iterator[Object]:
    """Yield the preset's classes, and one for each team whose workloads have a priority."""
    for name, value in sorted(preset_of(lock).priorities.items()):
        about = f"Workloads with the label kueue.x-k8s.io/priority-class: {name}."
        yield made("WorkloadPriorityClass", name, about, value=value, description=about)
    for name, team in sorted(teams_of(lock).items()):
        if team.priority:
            about = f"Workloads of team {name} that name no class of their own."
            yield made(
                "WorkloadPriorityClass",
                TEAM_CLASS.format(name),
                about,
                labels={TEAM_LABEL: name},
                value=team.priority,
                description=about,
            )


def groups(flavors: Mapping[str, Mapping[str, Object]]) -> list[Object]:
    """Return resource groups of quotas by flavour and resource.

    Kueue wants a resource in one group only, and all flavours of a group with the same resources:
    those that share a resource share a group, with nothing of what they don't offer.
    """
    together: list[tuple[set[str], list[str]]] = []
    for flavor, resources in flavors.items():
        touching = [one for one in together if one[0] & set(resources)]
        joined = (set(resources).union(*(one[0] for one in touching)), [])  # type: ignore[var-annotated]
        for one in touching:
            joined[1].extend(one[1])
            together.remove(one)
        joined[1].append(flavor)
        together.append(joined)
    return [
        {
            "coveredResources": sorted(covered),
            "flavors": [
                {
                    "name": flavor,
                    "resources": [
                        {"name": resource, **flavors[flavor].get(resource, {"nominalQuota": "0"})}
                        for resource in sorted(covered)
                    ],
                }
                for flavor in members
            ],
        }
        for covered, members in together
        if covered
    ]


def cohort(lock: Lock) -> Iterator[Object]:
    """Yield the cohort of all teams, with what of their pools is guaranteed to none of them."""
    teams = teams_of(lock)
    if not teams:
        return
    free: dict[str, dict[str, Object]] = {}
    # Whole GPUs that are lent would be missing for claims, which are counted by themselves.
    claimed = {one.pool for one in by_claim(lock).values()}
    for pool in [one for one in pools_of(lock) if one not in claimed]:
        for resource, total in offered(lock, pool).items():
            parts = [team.gpus[pool] for team in teams.values() if _has(team, pool)]
            quotas = [part[resource] for part in parts if resource in part]
            left = total - sum(quota.guaranteed for quota in quotas)
            if quotas and left > 0:
                free.setdefault(flavor_name(lock, pool), {})[resource] = {"nominalQuota": str(left)}
    about = "All teams. What is guaranteed to none of them lies here and can be borrowed."
    yield made("Cohort", COHORT, about, spec={"resourceGroups": groups(free)} if free else {})


def _has(team: Team, pool: str) -> bool:
    return bool(team.gpus.get(pool))


def cluster_queue(lock: Lock, name: str) -> Object:
    """Return the queue of a team: its guarantee, what it may borrow, and whom it may stop."""
    course = in_pools_of_claims(lock).get(name)
    team, preset = teams_of(lock)[name], preset_of(lock)
    # All pools are named: what a queue doesn't name, Kueue doesn't count. Those that the site names
    # are tried in its order.
    order = {pool: place for place, pool in enumerate(team.gpus)}
    nothing = Quota(guaranteed=0, borrow=0)
    quotas = {
        flavor_name(lock, pool): {
            resource: _quota(team.gpus.get(pool, {}).get(resource, nothing))
            for resource in offers(lock.pools[pool])
        }
        for pool in sorted(pools_of(lock), key=lambda one: order.get(one, len(order)))
    }
    resources = sorted({one for of in quotas.values() for one in of})
    spec: Object = {
        "cohortName": COHORT,
        "queueingStrategy": preset.queue.order,
        "namespaceSelector": {"matchLabels": {TEAM_LABEL: name}},
        "resourceGroups": claims.groups(lock, name, resources) if course else groups(quotas),
        "preemption": {
            "reclaimWithinCohort": preset.queue.reclaim,
            "withinClusterQueue": preset.queue.preemption,
        },
        # A workload takes the first pool with room, before it borrows or stops another's.
        "flavorFungibility": {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor"},
        "fairSharing": {"weight": format(team.weight, "g")},
    }
    labels = {TEAM_LABEL: name}
    about = claims.about(name, course) if course else _about(name, team)
    return made("ClusterQueue", name, about, labels=labels, spec=spec)


def _quota(quota: Quota) -> Object:
    found = {"nominalQuota": str(quota.guaranteed)}
    if quota.borrow is not None:
        found["borrowingLimit"] = str(quota.borrow)
    return found


def _about(name: str, team: Team) -> str:
    told = []
    for pool, resources in team.gpus.items():
        for resource, quota in resources.items():
            more = "all that others leave" if quota.borrow is None else f"{quota.borrow} more"
            told.append(f"{quota.guaranteed} {resource} of {pool}, and {more}")
    return f"Team {name}: {'; '.join(told) or 'no GPUs'}."


def local_queues(lock: Lock) -> Iterator[Object]:
    """Yield the queue of each namespace of a team; it is called the same everywhere."""
    for name, team in sorted(teams_of(lock).items()):
        for namespace in team.namespaces:
            yield made(
                "LocalQueue",
                QUEUE,
                f"What is submitted in {namespace} waits here for the quota of team {name}.",
                namespace=namespace,
                labels={TEAM_LABEL: name},
                spec={"clusterQueue": name},
            )
