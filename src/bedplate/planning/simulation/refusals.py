"""Why a job can never start on a site, and why it cannot start now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bedplate.planning.simulation.supply import use_of
from bedplate.portable import quantities

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bedplate.planning.simulation.jobs import Request
    from bedplate.planning.simulation.rooms import Room, Rooms
    from bedplate.planning.simulation.supply import Supply, Use


@dataclass(frozen=True)
class Why:
    """A reason: what it is about, in one word, and in a clause."""

    code: str
    text: str


def never(supply: Supply, team: str, request: Request) -> Why | None:
    """Return why a job could not start on the empty site, None if it could."""
    nodes = [node for node in supply.nodes if request.pool in {"", node.pool}]
    if nodes and all(node.pods == 0 for node in nodes):
        return Why("no-node", "all pods that kubelet takes on a node are the cluster's own")
    if not request.on_gpu:
        fine = any(
            (node.cpu is None or node.cpu >= request.cpu)
            and node.pods != 0
            and (node.memory is None or node.memory >= request.memory_host)
            for node in nodes
        )
        return None if fine else Why("no-node", "no node has the CPUs and the memory for it")
    reasons = []
    for pool in [request.pool] if request.pool else supply.pools:
        why = _never_in(supply, team, request, pool)
        if why is None:
            return None
        reasons.append(why)
    if not reasons:
        return Why("no-gpus", "the site has no GPUs in Kubernetes")
    codes = [why.code for why in reasons]
    return Why(codes[0], "; ".join(why.text for why in reasons))


def _never_in(supply: Supply, team: str, request: Request, pool: str) -> Why | None:
    kinds = supply.kinds(pool)
    uses = [use for gpu in kinds if (use := use_of(gpu, request)) is not None]
    if not uses:
        gives = " or ".join(f"{gpu.gives} of {gpu.model} ({gpu.mode})" for gpu in kinds)
        return Why("mode", f"{pool} cannot give {request}: it gives {gives}")
    fits = False
    most = 0
    for node in supply.nodes:
        if node.pool == pool:
            able = sum(use_of(gpu, request) is not None for gpu in node.gpus)
            most = max(most, able)
            cpu = node.cpu is None or node.cpu >= request.cpu
            memory = node.memory is None or node.memory >= request.memory_host
            fits |= able >= (uses[0].gpus or 1) and cpu and memory and node.pods != 0
    if not fits and most < (uses[0].gpus or 1):
        return Why("no-node", f"{pool} has no node with {request}: the largest has {most}")
    if not fits:
        return Why("no-node", f"{pool} has no node with the CPUs and the memory for it")
    quota = supply.quota(team, pool)
    if quota is not None and quota.most is not None and quota.most < uses[0].units:
        given = f"{quota.most} of {pool}" if quota.most else f"nothing of {pool}"
        return Why("quota", f"team {team} may have {given}")
    return None


def pools_for(supply: Supply, team: str, request: Request) -> list[str]:
    """Return the pools in which a job could start, the one that gives least too much first.

    A job without a GPU may be on any node: its one pool is what it asks for, perhaps empty.
    """
    if not request.on_gpu:
        return [request.pool]
    found = []
    for pool in [request.pool] if request.pool else supply.pools:
        if _never_in(supply, team, request, pool) is None:
            uses = [use for gpu in supply.kinds(pool) if (use := use_of(gpu, request))]
            found.append((min(use.excess for use in uses), pool))
    return [pool for _, pool in sorted(found)]


def now(
    supply: Supply,
    rooms: Rooms,
    units: Mapping[tuple[str, str], int],
    team: str,
    request: Request,
    pool: str,
) -> Why | None:
    """Return why a job that the pool can give cannot start in it now, None if it can."""
    if not request.on_gpu:
        found = rooms.best(request, pool or None, supply.policy.place)
        return None if found else Why("no-node", _no_node("no node", rooms.of.values()))
    use = next(use for gpu in supply.kinds(pool) if (use := use_of(gpu, request)) is not None)
    quota = supply.quota(team, pool)
    most = quota.most if quota is not None else None
    if most is not None and units[team, pool] + use.units > most:
        return Why("quota", f"team {team} has its {most} of {pool}")
    if rooms.best(request, pool, supply.policy.place) is not None:
        return None
    return _no_room(rooms, request, pool, use)


def _no_room(rooms: Rooms, request: Request, pool: str, use: Use) -> Why:
    of_pool = [room for room in rooms.of.values() if room.node.pool == pool]
    if use.gpus > 1:
        idle = [sum(map(room.idle, range(len(room.node.gpus)))) for room in of_pool]
        if max(idle) >= use.gpus:
            return Why("no-node", _no_node(f"no node of {pool}", of_pool))
        if sum(idle) >= use.gpus:
            return Why("no-node", f"no node of {pool} has {use.gpus} GPUs free, the pool has them")
        return Why("no-gpu", f"fewer than {use.gpus} GPUs of {pool} are free")
    if any(room.place(_without_host(request)) for room in of_pool):
        return Why("no-node", _no_node(f"no node of {pool}", of_pool))
    if of_pool and all(room.pods == 0 for room in of_pool):
        return Why("no-node", f"no node of {pool} takes another pod (kubelet's maxPods)")
    if use.gpus:
        return Why("no-gpu", f"no GPU of {pool} is free")
    if use.memory:
        return Why("no-gpu", f"no GPU of {pool} has {quantities.memory(use.memory)} free")
    return Why("no-gpu", f"no GPU of {pool} has such a share free")


def _no_node(which: str, rooms: Iterable[Room]) -> str:
    full = all(room.pods == 0 for room in rooms)
    if full:
        return f"{which} takes another pod (kubelet's maxPods)"
    return f"{which} has the CPUs and the memory free for it"


def _without_host(request: Request) -> Request:
    from dataclasses import replace

    return replace(request, cpu=0, memory_host=0)
