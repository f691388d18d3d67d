"""What the lock offers to jobs: nodes, their GPUs, and what each GPU gives."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import ceil
from typing import TYPE_CHECKING

from bedplate.portable.quantities import memory

if TYPE_CHECKING:
    from bedplate.planning.simulation.jobs import Request

TIMES = "\N{MULTIPLICATION SIGN}"


@dataclass(frozen=True)
class Part:
    """A fixed part of a GPU, of which the GPU has `count`: each goes to one job.

    `share` is the part of the GPU that one is promised, `memory` its MiB (0: not known).
    """

    name: str
    count: int
    share: Fraction
    memory: int


@dataclass(frozen=True)
class Gpu:
    """A GPU and what jobs can get of it: the whole of it, fixed parts, or any size of memory.

    `most` is how many jobs it takes where sizes are free and their number is not.
    """

    model: str
    mode: str
    memory: int
    whole: bool = False
    parts: tuple[Part, ...] = ()
    sizes: bool = False
    most: int | None = None

    @property
    def gives(self) -> str:
        """Return in words what a job can get of it."""
        if self.sizes:
            return f"any memory up to {memory(self.memory)} of a GPU, and whole GPUs"
        if self.whole:
            return "whole GPUs"
        return " and ".join(
            f"{one.count} {TIMES} {one.name}"
            + (f" ({memory(one.memory)})" if one.memory and not one.name.endswith("gb") else "")
            for one in self.parts
        )


@dataclass(frozen=True)
class Use:
    """How a GPU gives what a request asks for: exactly one of the three.

    Attributes:
        gpus: so many whole GPUs of one node.
        parts: one of these parts, the smallest first.
        memory: so many MiB.
        excess: what is given and not asked for, in GPUs.
    """

    gpus: int = 0
    parts: tuple[int, ...] = ()
    memory: int = 0
    excess: Fraction = Fraction(0)

    @property
    def units(self) -> int:
        """Return what it counts against a team's quota: GPUs, or one share."""
        return self.gpus or 1


@cache
def use_of(gpu: Gpu, request: Request) -> Use | None:
    """Return how a GPU gives what a request asks for, None if it cannot."""
    if request.gpus:
        return Use(gpus=request.gpus) if gpu.whole or gpu.sizes else None
    if request.memory > gpu.memory:
        return None
    asked = request.share or Fraction(request.memory, gpu.memory)
    if gpu.sizes:
        memory = request.memory or ceil(request.share * gpu.memory)
        return Use(memory=memory) if gpu.memory else None
    if gpu.whole:
        return Use(gpus=1, excess=1 - asked)
    enough = [
        number
        for number, part in enumerate(gpu.parts)
        if (part.share >= request.share if request.share else part.memory >= request.memory)
    ]
    enough.sort(key=lambda number: (gpu.parts[number].share, number))
    if not enough:
        return None
    return Use(parts=tuple(enough), excess=gpu.parts[enough[0]].share - asked)


@dataclass(frozen=True)
class Node:
    """A node of the cluster; what is not known of its CPUs (thousandths) and memory is None.

    `pods` is how many pods of users it takes, None for any number.
    """

    name: str
    pool: str
    gpus: tuple[Gpu, ...]
    cpu: int | None = None
    memory: int | None = None
    pods: int | None = None


@dataclass(frozen=True)
class Quota:
    """What a team may have of a pool, in what the pool offers; `most` None is no limit."""

    guaranteed: int
    most: int | None


@dataclass(frozen=True)
class Team:
    """A team of the site. A pool without a quota is not the team's."""

    name: str
    quotas: dict[str, Quota]
    weight: float = 1.0
    priority: int = 0


@dataclass(frozen=True)
class Policy:
    """How jobs are taken from the queue and placed: a preset's values, or Kubernetes' own."""

    strict: bool = False
    fair: bool = False
    reclaim: str = "Never"
    preemption: str = "Never"
    place: str = "spread"
    named: str = ""


@dataclass(frozen=True)
class Supply:
    """Everything that jobs are placed on and held by."""

    nodes: tuple[Node, ...]
    teams: dict[str, Team]
    policy: Policy
    notes: tuple[str, ...] = ()

    @property
    def pools(self) -> list[str]:
        """Return the pools with GPUs, by name."""
        return sorted({node.pool for node in self.nodes if node.gpus})

    def kinds(self, pool: str) -> list[Gpu]:
        """Return the different GPUs of a pool, in the order of its nodes."""
        return list(
            dict.fromkeys(gpu for node in self.nodes if node.pool == pool for gpu in node.gpus)
        )

    def total(self, pool: str) -> int:
        """Return how many GPUs a pool has."""
        return sum(len(node.gpus) for node in self.nodes if node.pool == pool)

    def units(self, pool: str) -> int:
        """Return how much a pool offers in what quotas count: GPUs, or shares."""
        gpus = [gpu for node in self.nodes if node.pool == pool for gpu in node.gpus]
        return sum(sum(part.count for part in gpu.parts) or 1 for gpu in gpus)

    def quota(self, team: str, pool: str) -> Quota | None:
        """Return what holds a team in a pool, None if nothing does."""
        if team not in self.teams:
            return None
        return self.teams[team].quotas.get(pool, Quota(0, 0))


def equal_parts(count: int, memory: int) -> Part:
    """Return the part of a GPU that is shared by *count* jobs."""
    share = Fraction(1, count)
    return Part(f"1/{count}", count, share, memory // count)
