"""What a plan says of teams' limits that it accepts, but that limit nothing or are not checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bedplate.lock.offers import offered
from bedplate.resolver.node_pods import for_users
from bedplate.resolver.outcome import Notice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bedplate.catalogue import Catalogue
    from bedplate.lock import Lock
    from bedplate.lock.model import Team

#: By the name that Kubernetes gives it: the settings of a team and of a host, and what nodes have.
OF_NODE = {
    "memory": ("memory", "memory"),
    "cpu": ("cpus", "cpu"),
    "ephemeral-storage": ("disk", "disk"),
}


def of(lock: Lock, catalogue: Catalogue) -> Iterator[Notice]:
    """Yield the notices about teams; courses have their own."""
    if lock.cluster is None:
        return
    free = for_users(lock, catalogue)
    for name, team in sorted(lock.cluster.teams.items()):
        limit, most = team.per_request.gpus, most_of(lock, team)
        if limit is not None and limit > most:
            yield Notice(
                f"per_request of {name} allows {limit} GPUs or shares, and the team can have "
                f"{most} at most: larger requests are taken, and wait for ever",
                hint=f"write bedplate_teams.{name}.per_request.gpus: {most}, or less",
            )
        yield from _unmeasured(lock, catalogue, name)
        hosts = {of: host.pool for of, host in lock.hosts.items() if host.pool in team.gpus}
        for key in team.per_container:
            setting, field = OF_NODE[key]
            has = {of: getattr(free[of], field) for of in hosts if of in free}
            pools = {hosts[of] or "" for of, one in has.items() if one is None}
            if pools:
                where = ", ".join(sorted(pools))
                yield Notice(
                    f"whether a node of {where} has the {setting} in per_container of {name} is "
                    "not known",
                    hint=f"write bedplate_host.{setting} of {where}",
                )


def _unmeasured(lock: Lock, catalogue: Catalogue, name: str) -> Iterator[Notice]:
    """Yield the pools in which a team's work does not end, however long it is idle."""
    team = lock.cluster.teams[name] if lock.cluster is not None else None
    if team is None or team.idle_timeout_s is None:
        return
    for pool in sorted(team.gpus):
        mode = lock.pools[pool].sharing.mode
        if (fact := catalogue.unmeasured_modes.get(mode)) is not None:
            yield Notice(
                f"{mode}: idle GPUs cannot be measured: idle_timeout of {name} ends nothing there",
                pool,
                hint=f"limit the time: bedplate_teams.{name}.per_request.time",
                source=fact.source.url,
            )


def most_of(lock: Lock, team: Team) -> int:
    """Return how many GPUs or shares a team can have at most, with all that it may borrow."""
    most = 0
    for pool, quotas in team.gpus.items():
        for resource, total in offered(lock, pool).items():
            quota = quotas.get(resource)
            if quota is not None:
                own = quota.guaranteed
                most += total if quota.borrow is None else min(total, own + quota.borrow)
    return most
