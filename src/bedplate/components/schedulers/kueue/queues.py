"""Flavours, topologies, quotas and queues."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Final

from bedplate.accounting.units import flavored
from bedplate.components.schedulers.kueue import claims
from bedplate.components.schedulers.kueue.objects import (
    COHORT,
    QUEUE,
    TEAM_LABEL,
    Object,
    made,
)
from bedplate.components.schedulers.topology import HOST, POOL_LABEL
from bedplate.lock.model import Quota
from bedplate.pods.hub.shares import UNITS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bedplate.components.schedulers.kueue.args import QueuesArgs
    from bedplate.lock.model import Team

#: Kubernetes' numbers for what its own parts need; ours stay far below.
TEAM_CLASS: Final = "team-{}"

#: The topology of a pool whose site says nothing of racks.
HOSTS: Final = "hosts"


def objects(args: QueuesArgs) -> list[Object]:
    """Return everything that queues are, in the order in which it is needed."""
    return [
        *topologies(args),
        *flavors(args),
        *priority_classes(args),
        *cohort(args),
        *(cluster_queue(args, name) for name in args.teams),
        *local_queues(args),
        *claims.templates(args),
    ]


def topology_name(args: QueuesArgs, pool: str) -> str:
    """Return the name of the topology of a pool: its levels, or `hosts` where the site has none."""
    return "-".join(label.rpartition("/")[2] for label in args.pools[pool].levels) or HOSTS


def topologies(args: QueuesArgs) -> Iterator[Object]:
    """Yield one Topology for each set of levels that pools have; hosts are the narrowest level."""
    if not args.places_nodes:
        return
    found = {topology_name(args, name): pool.levels for name, pool in args.pools.items()}
    for name, labels in sorted(found.items()):
        told = " > ".join(label.rpartition("/")[2] for label in [*labels, HOST])
        yield made(
            "Topology",
            name,
            f"Where nodes stand, widest level first: {told}.",
            spec={"levels": [{"nodeLabel": label} for label in [*labels, HOST]]},
        )


def flavor_name(args: QueuesArgs, pool: str) -> str:
    """Return the name of a pool's ResourceFlavor.

    A flavour with a topology never changes, so each way to place pods has a flavour of its own: a
    site's other preset, racks that are named later, or other taints make a new one beside that in
    use.
    """
    if not args.places_nodes:
        return f"{flavored(pool)}.quota-only"
    topology = topology_name(args, pool)
    name = flavored(pool) if topology == HOSTS else f"{flavored(pool)}.{topology}"
    if found := claims.tolerated(args, pool):
        text = json.dumps(found, sort_keys=True)
        name += f".taints-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    return name


def flavors(args: QueuesArgs) -> Iterator[Object]:
    """Yield a ResourceFlavor for each pool, and for each course in a pool of claims."""
    for pool, of in sorted(args.pools.items()):
        told = ", ".join(f"{count} {resource}" for resource, count in of.offers.items())
        spec: Object = {"nodeLabels": {POOL_LABEL: pool}} | claims.tolerated(args, pool)
        if args.places_nodes:
            spec["topologyName"] = topology_name(args, pool)
        labels = {POOL_LABEL: pool}
        about = f"The nodes of {pool}: {told} in all."
        flavor = made("ResourceFlavor", flavor_name(args, pool), about, labels=labels, spec=spec)
        yield _with_units(args, flavored(pool), flavor)
    for flavor in claims.flavors(args):
        yield _with_units(args, flavor["metadata"]["name"], flavor)


def _with_units(args: QueuesArgs, known: str, flavor: Object) -> Object:
    if units := args.units.get(known):
        flavor["metadata"]["annotations"][UNITS] = units
    return flavor


def priority_classes(args: QueuesArgs) -> Iterator[Object]:
    """Yield the preset's classes, and one for each team whose workloads have a priority."""
    for name, value in sorted(args.preset.priorities.items()):
        about = f"Workloads with the label kueue.x-k8s.io/priority-class: {name}."
        yield made("WorkloadPriorityClass", name, about, value=value, description=about)
    for name, team in sorted(args.teams.items()):
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


def cohort(args: QueuesArgs) -> Iterator[Object]:
    """Yield the cohort of all teams, with what of their pools is guaranteed to none of them."""
    teams = args.teams
    if not teams:
        return
    free: dict[str, dict[str, Object]] = {}
    # Whole GPUs that are lent would be missing for claims, which are counted by themselves.
    claimed = {one.pool for one in args.claiming.values()}
    for pool in sorted(set(args.pools) - claimed):
        for resource, total in args.pools[pool].offers.items():
            parts = [team.gpus[pool] for team in teams.values() if _has(team, pool)]
            quotas = [part[resource] for part in parts if resource in part]
            left = total - sum(quota.guaranteed for quota in quotas)
            if quotas and left > 0:
                free.setdefault(flavor_name(args, pool), {})[resource] = {"nominalQuota": str(left)}
    about = "All teams. What is guaranteed to none of them lies here and can be borrowed."
    yield made("Cohort", COHORT, about, spec={"resourceGroups": groups(free)} if free else {})


def _has(team: Team, pool: str) -> bool:
    return bool(team.gpus.get(pool))


def cluster_queue(args: QueuesArgs, name: str) -> Object:
    """Return the queue of a team: its guarantee, what it may borrow, and whom it may stop."""
    course = args.in_pools_of_claims.get(name)
    team, preset = args.teams[name], args.preset
    # All pools are named: what a queue doesn't name, Kueue doesn't count. Those that the site names
    # are tried in its order.
    order = {pool: place for place, pool in enumerate(team.gpus)}
    nothing = Quota(guaranteed=0, borrow=0)
    quotas = {
        flavor_name(args, pool): {
            resource: _quota(team.gpus.get(pool, {}).get(resource, nothing))
            for resource in args.pools[pool].offers
        }
        for pool in sorted(args.pools, key=lambda one: (order.get(one, len(order)), one))
    }
    resources = sorted({one for of in quotas.values() for one in of})
    spec: Object = {
        "cohortName": COHORT,
        "queueingStrategy": preset.queue.order,
        "namespaceSelector": {"matchLabels": {TEAM_LABEL: name}},
        "resourceGroups": claims.groups(args, name, resources) if course else groups(quotas),
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


def local_queues(args: QueuesArgs) -> Iterator[Object]:
    """Yield the queue of each namespace of a team; it is called the same everywhere."""
    for name, team in sorted(args.teams.items()):
        for namespace in team.namespaces:
            yield made(
                "LocalQueue",
                QUEUE,
                f"What is submitted in {namespace} waits here for the quota of team {name}.",
                namespace=namespace,
                labels={TEAM_LABEL: name},
                spec={"clusterQueue": name},
            )
