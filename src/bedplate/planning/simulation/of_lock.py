"""The supply that a lock decides: one node for each host in Kubernetes."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING

from bedplate.planning.simulation.supply import (
    Gpu,
    Node,
    Part,
    Policy,
    Quota,
    Supply,
    Team,
    equal_parts,
)
from bedplate.resolver import mig_layouts
from bedplate.resolver.node_pods import Free, for_users

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bedplate.catalogue import Catalogue
    from bedplate.lock import Lock
    from bedplate.lock import model as locked

GIB = 1024
PROFILE_MEMORY = re.compile(r"\.(?P<gib>[0-9]+)gb")
#: How many slices of compute a GPU has under MIG, where the catalogue has no geometry.
SLICES = 7


def supply_of(lock: Lock, catalogue: Catalogue, sizes: Mapping[str, tuple[int, int]]) -> Supply:
    """Return what jobs can be placed on.

    Args:
        lock: the decision.
        catalogue: how much memory GPUs have, and how many instances of a MIG profile one holds.
        sizes: CPUs (thousandths) and memory (MiB) of a node by pool, where the user says so.
    """
    nodes = []
    notes = []
    known = for_users(lock, catalogue)
    for name, host in sorted(lock.hosts.items()):
        pool = lock.pools.get(host.pool or "")
        if pool is not None and (pool.expects is None or pool.expects.by == "slurm"):
            if pool.expects is not None:
                notes.append(f"{host.pool} is Slurm's: its GPUs are left out.")
            continue
        gpus = tuple(_gpus(pool, catalogue)) if pool is not None else ()
        if not gpus and not _takes_pods(name, host, lock):
            continue
        free = known.get(name, Free(0))
        cpu, memory = sizes.get(host.pool or "", (free.cpu, free.memory))
        nodes.append(Node(name, host.pool or "", gpus, cpu, memory, free.pods))
    if any(node.cpu is None for node in nodes):
        unknown = ", ".join(sorted({node.pool or "workers" for node in nodes if node.cpu is None}))
        notes.append(
            f"CPUs and memory of {unknown} are not in the lock and not counted; --node gives them."
        )
    notes += [
        f"Teams' quotas of the sizes of {pool} are counted as one of all sizes together."
        for pool in sorted(_of_several_sizes(lock))
    ]
    return Supply(tuple(nodes), _teams(lock), _policy(lock), tuple(dict.fromkeys(notes)))


def _of_several_sizes(lock: Lock) -> set[str]:
    teams = lock.teams.values()
    return {pool for team in teams for pool, part in team.gpus.items() if len(part) > 1}


def _teams(lock: Lock) -> dict[str, Team]:
    found = {}
    for name, team in sorted(lock.teams.items()):
        quotas = {
            pool: _quota(list(by_resource.values())) for pool, by_resource in team.gpus.items()
        }
        found[name] = Team(name, quotas, team.weight, team.priority)
    return found


def _quota(parts: Sequence[locked.Quota]) -> Quota:
    guaranteed = sum(part.guaranteed for part in parts)
    borrow = [part.borrow for part in parts if part.borrow is not None]
    return Quota(guaranteed, guaranteed + sum(borrow) if len(borrow) == len(parts) else None)


def _policy(lock: Lock) -> Policy:
    """Return the preset's values; without schedulers there is Kubernetes' own, which spreads."""
    preset = lock.cluster.preset if lock.cluster is not None else None
    if preset is None:
        return Policy()
    queue, placement = preset.queue, preset.placement
    return Policy(
        strict=queue.order == "StrictFIFO",
        fair=queue.fair_sharing,
        reclaim=queue.reclaim,
        preemption=queue.preemption,
        place="gradient" if placement.extender else placement.pods,
        named=preset.name,
    )


def _takes_pods(name: str, host: locked.Host, lock: Lock) -> bool:
    untainted = lock.cluster.kubernetes.untainted if lock.cluster is not None else []
    return "workers" in host.groups or name in untainted


def _gpus(pool: locked.Pool, catalogue: Catalogue) -> Iterator[Gpu]:
    if (other := pool.accelerator) is not None:
        yield from [Gpu(other.model, "none", 0, whole=True)] * other.count
    number = 0
    for kind in pool.gpu:
        memory = (catalogue.gpu_models[kind.model].value.memory_gib or 0) * GIB
        for _ in range(kind.count):
            yield _gpu(pool.sharing, kind.model, memory, number, catalogue)
            number += 1


def _gpu(
    sharing: locked.Sharing, model: str, memory: int, number: int, catalogue: Catalogue
) -> Gpu:
    mode = sharing.mode
    if mode in {"dra", "hami"}:
        return Gpu(model, mode, memory, sizes=True, most=sharing.replicas)
    if mode == "mig":
        profiles = _profiles(sharing, model, number, catalogue)
        parts = tuple(_part(model, *one, catalogue) for one in sorted(profiles.items()))
        return Gpu(model, mode, memory, whole=not parts, parts=parts)
    if mode != "none" and sharing.replicas:
        return Gpu(model, mode, memory, parts=(equal_parts(sharing.replicas, memory),))
    return Gpu(model, mode, memory, whole=True)


def _profiles(
    sharing: locked.Sharing, model: str, number: int, catalogue: Catalogue
) -> Mapping[str, int]:
    for layout in sharing.layout:
        if number in layout.cards:
            return layout.profiles
    if sharing.profile is None:
        return {}
    return {sharing.profile: mig_layouts.held(model, sharing.profile, catalogue) or 1}


def _part(model: str, profile: str, count: int, catalogue: Catalogue) -> Part:
    holds = mig_layouts.held(model, profile, catalogue)
    share = Fraction(1, holds) if holds else Fraction(int(profile[0]), SLICES)
    found = PROFILE_MEMORY.search(profile)
    return Part(profile, count, share, int(found["gib"]) * GIB if found else 0)
