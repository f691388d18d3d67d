"""Teams, their quotas, and the preset: what is wrong with them, and what the lock has of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bedplate.lock import model as locked
from bedplate.lock.offers import offered, offers
from bedplate.presets.model import PLAIN, Preset, load_presets
from bedplate.resolver.explanations import refused, unknown
from bedplate.resolver.wishes import schedulers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bedplate.errors import Problem
    from bedplate.site import Site, SiteHost
    from bedplate.site.places import KeyPath

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
    nodes = {node.pool for node in site.nodes if node.pool is not None}
    for name, team in sorted(wished.items()):
        for pool in team.gpus:
            path = ("bedplate_teams", name, "gpus", pool)
            if pool not in site.pools:
                yield unknown("team-pool", host, path, pool, nodes)
            elif pool not in nodes:
                got = f"{pool}, which has no nodes of Kubernetes"
                allowed = f"pools of nodes: {', '.join(sorted(nodes))}"
                yield refused("team-pool", host, path, got, allowed, "leave it out")


def _namespaces(host: SiteHost) -> Iterator[Problem]:
    owners: dict[str, str] = {}
    asked: list[tuple[str, str, KeyPath]] = []
    for name, team in sorted(host.wishes.bedplate_teams.items()):
        path: KeyPath = ("bedplate_teams", name)
        below = [(*path, "namespaces", index) for index in range(len(team.namespaces))]
        pairs = zip(team.namespaces, below, strict=True) if below else [(name, path)]
        asked += [(f"team {name}", namespace, where) for namespace, where in pairs]
    for index, course in enumerate(host.wishes.bedplate_courses):
        asked.append((f"course {course.name}", course.name, ("bedplate_courses", index, "name")))
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
    for index, course in enumerate(host.wishes.bedplate_courses):
        same = host.wishes.bedplate_teams.get(course.name)
        if same is not None and course.name not in (same.namespaces or [course.name]):
            got = f"{course.name}, the name of a team"
            path = ("bedplate_courses", index, "name")
            fix = "choose another name, or remove the team"
            yield refused("team-namespace", host, path, got, "a name of its own", fix)


def decided(site: Site, pools: Mapping[str, locked.Pool]) -> dict[str, locked.Team]:
    """Return the lock's teams: quotas by the resource that each pool offers."""
    host = next(iter(sorted(site.hosts.items())))[1]
    borrowing = (preset(host) or PLAIN).queue.borrowing
    found = {}
    for name, team in sorted(host.wishes.bedplate_teams.items()):
        gpus: dict[str, dict[str, Any]] = {}
        for pool, quota in sorted(team.gpus.items()):
            borrow = quota.borrow if quota.borrow is not None or borrowing else 0
            part = locked.Quota(guaranteed=quota.guaranteed, borrow=borrow)
            gpus[pool] = dict.fromkeys(offers(pools[pool]), part)
        found[name] = locked.Team(
            namespaces=team.namespaces or [name],
            members=team.members,
            gpus=gpus,
            weight=team.weight,
            priority=team.priority,
        )
    return found


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
        if len(sizes) > 1:
            path: tuple[str | int, ...] = ("bedplate_teams", teams[0], "gpus", name)
            got, fix = f"{name} with {', '.join(sorted(sizes))}", "give each size a pool of its own"
            yield refused("team-pool", host, path, got, "pools whose GPUs are all alike", fix)
            continue
        total = sum(sizes.values())
        parts = {team: host.wishes.bedplate_teams[team].gpus[name].guaranteed for team in teams}
        if sum(parts.values()) <= total:
            continue
        largest = max(parts, key=lambda team: (parts[team], team))
        over = sum(parts.values()) - total
        fix = f"guarantee {over} less, or give the pool more hosts or smaller shares"
        if parts[largest] >= over:
            fix = f"write {parts[largest] - over} for {largest}; what is idle can be borrowed"
        told = " + ".join(f"{team} {count}" for team, count in sorted(parts.items()))
        path = ("bedplate_teams", largest, "gpus", name, "guaranteed")
        got = f"{sum(parts.values())} ({told})"
        allowed = f"{total}, which is all that {name} offers"
        yield refused("team-guarantee", host, path, got, allowed, fix)
