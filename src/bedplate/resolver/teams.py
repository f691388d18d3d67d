"""Teams, their quotas, and the preset: what is wrong with them, and what the lock has of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bedplate.lock import model as locked
from bedplate.lock.offers import offered, offers
from bedplate.portable.quantities import mebibytes
from bedplate.resolver.courses import seconds
from bedplate.resolver.explanations import refused, unknown
from bedplate.resolver.node_pods import for_users
from bedplate.resolver.wishes import schedulers
from bedplate.site.courses import listed
from bedplate.site.presets.model import PLAIN, Preset, load_presets
from bedplate.site.teams import PerRequest, SizeQuota, TeamPerUser

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bedplate.catalogue import Catalogue
    from bedplate.common.errors import Problem
    from bedplate.site import Site, SiteHost
    from bedplate.site.places import KeyPath
    from bedplate.site.teams import PerContainer, PerPod, Quota

#: The add-ons that have queues for teams.
WITH_QUEUES = ("kueue", "volcano")
#: Namespaces that are no team's: Kubernetes' own, and those that add-ons and stacks run in.
TAKEN = (
    "kube-system",
    "kube-public",
    "kube-node-lease",
    "kube-flannel",
    "kueue-system",
    "volcano-system",
    "jobset-system",
)
OURS = "bedplate-"


def preset(host: SiteHost) -> Preset | None:
    """Return the values of the chosen preset with the site's changes, None without schedulers."""
    chosen = host.wishes.bedplate_preset
    if chosen is None:
        return PLAIN if schedulers(host) else None
    base = load_presets()[chosen.name]
    queue = chosen.queue.model_dump(exclude_none=True)
    placement = chosen.placement.model_dump(exclude_none=True)
    return base.model_copy(
        update={
            "queue": base.queue.model_copy(update=queue),
            "placement": base.placement.model_copy(update=placement),
            "priorities": {**base.priorities, **chosen.priorities},
        }
    )


def check(site: Site) -> Iterator[Problem]:
    """Yield what is wrong with teams before anything is decided."""
    host = next(iter(sorted(site.hosts.items())))[1]
    wished = host.wishes.bedplate_teams
    for key in ("bedplate_teams", "bedplate_courses"):
        if not getattr(host.wishes, key):
            continue
        noun = key.removeprefix("bedplate_")
        if not site.nodes:
            fix = f"remove the {noun}: Slurm has accounts of its own"
            got, allowed = f"{noun} without nodes of Kubernetes", f"{noun} of a cluster"
            yield refused("team-queue", host, (key,), got, allowed, fix)
        elif not schedulers(host) & set(WITH_QUEUES):
            fix = "add kueue to bedplate_schedulers, or choose a bedplate_preset"
            got = f"no {' or '.join(WITH_QUEUES)}"
            allowed = f"one of {', '.join(WITH_QUEUES)}"
            yield refused("team-queue", host, (key,), got, allowed, fix)
    if not site.nodes:
        return
    yield from _namespaces(host)
    if "kueue" not in schedulers(host):
        yield from _of_kueue(host)
    nodes = {node.pool for node in site.nodes if node.pool is not None}
    for name, team in sorted(wished.items()):
        for pool, quota in team.gpus.items():
            path: KeyPath = ("bedplate_teams", name, "gpus", pool)
            yield from _written(host, path, quota)
            if pool not in site.pools:
                yield unknown("team-pool", host, path, pool, nodes)
            elif pool not in nodes:
                got = f"{pool}, which has no nodes of Kubernetes"
                allowed = f"pools of nodes: {', '.join(sorted(nodes))}"
                yield refused("team-pool", host, path, got, allowed, "leave it out")
            elif site.pools[pool][0].wishes.bedplate_sharing.mode == "dra":
                yield from _by_claim(host, path, pool)


def _of_kueue(host: SiteHost) -> Iterator[Problem]:
    """Yield the settings that Kueue's queues alone hold to."""
    written: list[tuple[KeyPath, str]] = []
    for name, team in sorted(host.wishes.bedplate_teams.items()):
        if team.per_request != PerRequest():
            written.append((("bedplate_teams", name, "per_request"), "limits of requests"))
        if team.per_user != TeamPerUser():
            written.append((("bedplate_teams", name, "per_user"), "limits of persons"))
        if team.idle_timeout is not None:
            written.append((("bedplate_teams", name, "idle_timeout"), "an idle time"))
    written += [(path, "limits of persons") for path in _hours(host)]
    for path, what in written:
        fix = "add kueue to bedplate_schedulers, or remove it"
        allowed = "teams and courses whose queues are Kueue's"
        yield refused("team-queue", host, path, f"{what} without kueue", allowed, fix)


def _hours(host: SiteHost) -> Iterator[KeyPath]:
    """Yield where courses have a limit of GPU-hours."""
    for index, course in enumerate(host.wishes.bedplate_courses):
        if course.per_user.hours is not None:
            yield ("bedplate_courses", index, "per_user", "hours")


def _by_claim(host: SiteHost, path: KeyPath, pool: str) -> Iterator[Problem]:
    """Yield a quota of GPUs that nodes offer as claims, where what places pods sees no claims.

    Volcano allocates none, and Kueue looks on nodes for the resource where it chooses them.
    """
    decided = preset(host) or PLAIN
    rule, got = "team-claims", f"{pool} of mode dra"
    if "volcano" in schedulers(host):
        allowed = "pools whose GPUs a device plugin offers, where Volcano places pods"
        fix = "leave the pool out, or remove volcano"
        yield refused(rule, host, path, f"{got} with volcano", allowed, fix)
    elif decided.placement.pods == "binpack" and not decided.placement.extender:
        got += " with placement.pods: binpack, where Kueue chooses nodes"
        fix = "write placement: {pods: spread} in bedplate_preset, or leave the pool out"
        yield refused(rule, host, path, got, "placement.pods: spread, or another mode", fix)


def _written(host: SiteHost, path: KeyPath, quota: Quota) -> Iterator[Problem]:
    """Yield a quota that says nothing, or twice what is guaranteed."""
    if (quota.guaranteed is None) != bool(quota.sizes) or (quota.sizes and quota.borrow):
        got = "neither of them"
        if quota.sizes:
            both = {"guaranteed": quota.guaranteed, "borrow": quota.borrow}
            got = f"sizes and {' and '.join(key for key, one in both.items() if one is not None)}"
        fix = "write guaranteed for a pool whose GPUs are all alike, sizes for one of several"
        yield refused("team-pool", host, path, got, "guaranteed, or sizes", fix)


def _namespaces(host: SiteHost) -> Iterator[Problem]:
    owners: dict[str, str] = {}
    asked: list[tuple[str, str, KeyPath]] = []
    for name, team in sorted(host.wishes.bedplate_teams.items()):
        path: KeyPath = ("bedplate_teams", name)
        below = [(*path, "namespaces", index) for index in range(len(team.namespaces))]
        pairs = zip(team.namespaces, below, strict=True) if below else [(name, path)]
        asked += [(f"team {name}", namespace, where) for namespace, where in pairs]
    for one in listed(host.wishes.bedplate_courses):
        asked.append((f"course {one.course.name}", one.course.name, one.at("name")))
    for owner, namespace, path in asked:
        if namespace in TAKEN or namespace == "default" or namespace.startswith(OURS):
            fix = "choose another name"
            got = f"{namespace}, which is not a {owner.split(' ')[0]}'s"
            yield refused("team-namespace", host, path, got, "a namespace of its own", fix)
        elif namespace in owners:
            got = f"{namespace}, the namespace of {owners[namespace]}"
            fix = "give each team and course a namespace of its own"
            yield refused("team-namespace", host, path, got, "a namespace of one of them", fix)
        owners.setdefault(namespace, owner)
    # A course is a team of its name, whatever namespaces the other team has.
    for one in listed(host.wishes.bedplate_courses):
        course = one.course
        same = host.wishes.bedplate_teams.get(course.name)
        if same is not None and course.name not in (same.namespaces or [course.name]):
            got = f"{course.name}, the name of a team"
            path = one.at("name")
            fix = "choose another name, or remove the team"
            yield refused("team-namespace", host, path, got, "a name of its own", fix)


def decided(site: Site, pools: Mapping[str, locked.Pool]) -> dict[str, locked.Team]:
    """Return the lock's teams: quotas by the resource that each pool offers."""
    host = next(iter(sorted(site.hosts.items())))[1]
    borrowing = (preset(host) or PLAIN).queue.borrowing
    found = {}
    for name, team in sorted(host.wishes.bedplate_teams.items()):
        gpus: dict[str, dict[str, Any]] = {}
        for pool, quota in team.gpus.items():
            gpus[pool] = {}
            for resource in offers(pools[pool]):
                part = _part(quota, resource)
                borrow = part.borrow if part.borrow is not None or borrowing else 0
                mine = locked.Quota(guaranteed=part.guaranteed or 0, borrow=borrow)
                gpus[pool][resource] = mine
        found[name] = locked.Team(
            namespaces=team.namespaces or [name],
            members=team.members,
            gpus=gpus,
            weight=team.weight,
            priority=team.priority,
            per_request=locked.PerRequest(
                gpus=team.per_request.gpus, time_s=seconds(team.per_request.time)
            ),
            per_user=locked.TeamPerUser(gpus=team.per_user.gpus, hours=team.per_user.hours),
            per_container=_of_node(team.per_container),
            per_pod=_of_node(team.per_pod),
            idle_timeout_s=seconds(team.idle_timeout),
        )
    return found


def _of_node(wished: PerContainer | PerPod) -> dict[str, str]:
    """Return what is said of a node's memory, CPUs and disk, as Kubernetes names it."""
    cpu = f"{max(1, round(wished.cpus * 1000))}m" if wished.cpus else None
    named = {"memory": wished.memory, "cpu": cpu, "ephemeral-storage": wished.disk}
    return {name: one for name, one in named.items() if one is not None}


def containers(site: Site, lock: locked.Lock, catalogue: Catalogue) -> Iterator[Problem]:
    """Yield what containers of a team have by default if no node of its pools has as much."""
    host = next(iter(sorted(site.hosts.items())))[1]
    free = for_users(lock, catalogue)
    for name, team in sorted(host.wishes.bedplate_teams.items()):
        nodes = [free[of] for of, one in lock.hosts.items() if one.pool in team.gpus and of in free]
        for key, field, size in (
            ("memory", "memory", mebibytes(team.per_container.memory or "0")),
            ("cpus", "cpu", round((team.per_container.cpus or 0) * 1000)),
            ("disk", "disk", mebibytes(team.per_container.disk or "0")),
        ):
            path: KeyPath = ("bedplate_teams", name, "per_container", key)
            bound = getattr(team.per_pod, key)
            amount = round((bound or 0) * 1000) if key == "cpus" else mebibytes(bound or "0")
            if amount and size > amount:
                got, allowed = str(getattr(team.per_container, key)), f"up to {bound}, as per_pod"
                fix = f"write {bound} or less, or more in per_pod"
                yield refused("team-container", host, path, got, allowed, fix)
                continue
            has = [getattr(node, field) for node in nodes]
            if not has or None in has or size <= max(has):
                continue
            most = f"{max(has) / 1000:g}" if key == "cpus" else f"{max(has)}Mi"
            got = str(getattr(team.per_container, key))
            allowed = f"up to {most}, which a node of {', '.join(sorted(team.gpus))} has for pods"
            fix = "write less: no container without a request of its own would start"
            yield refused("team-container", host, path, got, allowed, fix)


def persons(site: Site, lock: locked.Lock, catalogue: Catalogue) -> Iterator[Problem]:
    """Yield the limits of persons in a cluster whose API server writes no names into requests."""
    host = next(iter(sorted(site.hosts.items())))[1]
    if lock.cluster is None:
        return
    release = lock.cluster.kubernetes.version
    fact = catalogue.kubernetes.get(str(release))
    if fact is not None and fact.value.mutating_policies is not None:
        return
    teams: list[tuple[KeyPath, str]] = [
        (("bedplate_teams", name, "per_user"), "write per_request")
        for name, team in sorted(host.wishes.bedplate_teams.items())
        if team.per_user != TeamPerUser()
    ]
    for path, other in [*teams, *((path, "remove it") for path in _hours(host))]:
        got = f"Kubernetes {release}, whose API server writes no user's name into requests"
        fix = f"take a newer bedplate_kubernetes.version, or {other}"
        yield refused("team-person", host, path, got, "one with mutating policies", fix)


def guarantees(site: Site, lock: locked.Lock) -> Iterator[Problem]:
    """Yield each pool of which more is guaranteed than it offers."""
    if lock.cluster is None:
        return
    host = next(iter(sorted(site.hosts.items())))[1]
    for name in lock.pools:
        teams = [team for team, one in host.wishes.bedplate_teams.items() if name in one.gpus]
        sizes = offered(lock, name)
        if not teams:
            continue
        wrong = [one for team in teams for one in _sizes(host, team, name, sizes)]
        yield from wrong
        if not wrong:
            for resource, total in sizes.items():
                yield from _over(host, teams, name, resource, total)


def size(resource: str) -> str:
    """Return how a site names what a pool offers: `1g.10gb` of MIG, `gpu` for a whole one."""
    return resource.rpartition("/")[2].removeprefix("mig-")


def _part(quota: Quota, resource: str) -> Quota | SizeQuota:
    """Return what a team has of a resource; of a size that it doesn't name, nothing."""
    nothing = SizeQuota(guaranteed=0, borrow=0)
    return quota.sizes.get(size(resource), nothing) if quota.sizes else quota


def _sizes(host: SiteHost, team: str, pool: str, offers: Mapping[str, int]) -> Iterator[Problem]:
    """Yield the sizes that a pool doesn't have, and a quota that could be of any of its sizes."""
    quota = host.wishes.bedplate_teams[team].gpus[pool]
    path = ("bedplate_teams", team, "gpus", pool)
    known = [size(resource) for resource in offers]
    for one in quota.sizes:
        if one not in known:
            yield unknown("team-size", host, (*path, "sizes", one), one, known)
    if len(known) > 1 and not quota.sizes:
        got = f"one number for {pool} with {', '.join(sorted(known))}"
        each = ", ".join(f"{one}: {{guaranteed: …}}" for one in sorted(known))
        fix = f"write sizes: {{{each}}}"
        yield refused("team-size", host, path, got, "a quota for each size", fix)


def _over(
    host: SiteHost, teams: list[str], pool: str, resource: str, total: int
) -> Iterator[Problem]:
    """Yield the guarantees of a resource that are more than there is."""
    quotas = {team: host.wishes.bedplate_teams[team].gpus[pool] for team in teams}
    parts = {team: _part(quota, resource).guaranteed or 0 for team, quota in quotas.items()}
    over = sum(parts.values()) - total
    if over <= 0:
        return
    largest = max(parts, key=lambda team: (parts[team], team))
    fix = f"guarantee {over} less, or give the pool more hosts or smaller shares"
    if parts[largest] >= over:
        fix = f"write {parts[largest] - over} for {largest}; what is idle can be borrowed"
    told = " + ".join(f"{team} {count}" for team, count in sorted(parts.items()) if count)
    sized = ("sizes", size(resource)) if quotas[largest].sizes else ()
    path = ("bedplate_teams", largest, "gpus", pool, *sized, "guaranteed")
    got = f"{sum(parts.values())} ({told})"
    what = f" of {size(resource)}" if sized else ""
    allowed = f"{total}, which is all that {pool} offers{what}"
    yield refused("team-guarantee", host, path, got, allowed, fix)
