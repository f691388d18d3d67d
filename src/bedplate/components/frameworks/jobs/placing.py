"""Where a job goes, and its image: namespace, pool and resource that follow where none is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bedplate.components.frameworks.jobs.args import JobsArgs
    from bedplate.components.frameworks.jobs.model import Request
    from bedplate.lock.model import Framework


def images(args: JobsArgs) -> dict[str, str]:
    """Return the pool of each of the teams' own images, by its name."""
    return {image: name for name, one in args.pools.items() for image in one.images}


def namespace(args: JobsArgs, request: Request) -> str:
    """Return the namespace of a job; its team must be known."""
    return request.namespace or args.teams[request.team].namespaces[0]


def pools_with_offers(args: JobsArgs) -> list[str]:
    """Return the pools whose nodes offer something to pods."""
    return [name for name, pool in sorted(args.pools.items()) if pool.offers]


def pools_with_quota(args: JobsArgs, team: str) -> list[str]:
    """Return the pools of which a team may use anything."""
    return [
        name
        for name in pools_with_offers(args)
        if any(
            quota.guaranteed or quota.borrow != 0
            for quota in args.teams[team].gpus.get(name, {}).values()
        )
    ]


def pool(args: JobsArgs, request: Request) -> str | None:
    """Return the pool of a job, None where several could be meant.

    One that asks for no GPU and names no pool and no framework runs where there is room.
    """
    if named := request.pool or images(args).get(request.image):
        return named
    found = pools_with_quota(args, request.team)
    if request.framework is not None:
        found = [name for name in found if args.pools[name].build(request.framework)]
    return found[0] if len(found) == 1 else None


def resource(args: JobsArgs, request: Request, of: str) -> str:
    """Return the resource of which each pod asks for some; the pool must be known."""
    return request.resource or next(iter(args.pools[of].offers))


def build(args: JobsArgs, request: Request) -> Framework | None:
    """Return the build of the framework that a job names, if its pool has one."""
    of = pool(args, request)
    return args.pools[of].build(request.framework) if of else None


def image(args: JobsArgs, request: Request) -> str:
    """Return what a job's containers run: its image, else that of its framework."""
    if of := images(args).get(request.image):
        return args.pools[of].images[request.image]
    its = None if request.image else build(args, request)
    return args.built[its.identity] if its else request.image
