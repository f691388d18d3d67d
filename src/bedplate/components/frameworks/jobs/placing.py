"""Where a job goes: namespace, pool and resource that follow from the lock where none is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bedplate.lock.builds import build_of
from bedplate.lock.offers import offers, pools_with_offers

if TYPE_CHECKING:
    from bedplate.components.frameworks.jobs.model import Request
    from bedplate.lock import Lock
    from bedplate.lock.model import TeamImage


def images(lock: Lock) -> dict[str, TeamImage]:
    """Return the teams' own images by name."""
    return lock.cluster.images if lock.cluster else {}


def namespace(lock: Lock, request: Request) -> str:
    """Return the namespace of a job; its team must be known."""
    return request.namespace or lock.teams[request.team].namespaces[0]


def pools_with_quota(lock: Lock, team: str) -> list[str]:
    """Return the pools of which a team may use anything."""
    return [
        name
        for name in pools_with_offers(lock)
        if any(
            quota.guaranteed or quota.borrow != 0
            for quota in lock.teams[team].gpus.get(name, {}).values()
        )
    ]


def pool(lock: Lock, request: Request) -> str | None:
    """Return the pool of a job, None where several could be meant.

    One that asks for no GPU and names no pool and no framework runs where there is room.
    """
    if request.pool is not None:
        return request.pool
    if request.image in images(lock):
        return images(lock)[request.image].pool
    found = pools_with_quota(lock, request.team)
    if request.framework is not None:
        found = [name for name in found if build_of(lock.pools[name], request.framework)]
    return found[0] if len(found) == 1 else None


def resource(lock: Lock, request: Request, of: str) -> str:
    """Return the resource of which each pod asks for some; the pool must be known."""
    return request.resource or next(iter(offers(lock.pools[of])))
