"""Fragments of a node, measured by the tasks that are typical for the cluster.

The measure is that of Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with
Fragmentation Gradient Descent" (USENIX ATC 2023): free thousandths of a node's GPUs are a fragment
for a task if the task can't start on the node, or if the GPU they are on has less free than the
task asks for; the mean over the typical tasks, weighted by how often they come, is the node's.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from bedplate.pods.packing.shares import WHOLE, Request

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TYPICAL = 0.95
"""The most frequent kinds of tasks count, up to this part of all tasks."""


def typical(seen: Mapping[Request, int], part: float = TYPICAL) -> dict[Request, int]:
    """Return the most frequent kinds up to a part of all tasks, with their counts."""
    wanted = part * sum(seen.values())
    kinds: dict[Request, int] = {}
    covered = 0
    for kind in sorted(seen, key=lambda kind: (-seen[kind], kind.cpu, kind.gpus, kind.milli)):
        if covered >= wanted:
            break
        kinds[kind] = seen[kind]
        covered += seen[kind]
    return kinds


class Mix:
    """Typical tasks, and tables that make a node's fragment a sum over its GPUs.

    All values are whole numbers: thousandths of a GPU, times `weight`, the number of tasks.
    """

    __slots__ = ("_cpus", "_shares", "_wholes", "weight")

    def __init__(self, kinds: Mapping[Request, int]) -> None:
        self.weight = max(1, sum(kinds.values()))
        self._cpus = sorted({kind.cpu for kind in kinds if kind.gpus})
        steps = range(len(self._cpus) + 1)
        most = max([1, *(kind.gpus for kind in kinds)])
        # Weight of the tasks that a GPU with so much free can take; of those for many GPUs.
        shares = [[0] * (WHOLE + 1) for _ in steps]
        wholes = [[0] * (most + 1) for _ in steps]
        for kind, count in kinds.items():
            if not kind.gpus:
                continue
            for step in range(bisect_right(self._cpus, kind.cpu), len(self._cpus) + 1):
                if kind.gpus == 1:
                    shares[step][kind.milli] += count
                else:
                    wholes[step][kind.gpus] += count
        self._shares: list[list[int]] = []
        self._wholes: list[list[int]] = []
        for step in steps:
            self._shares.append([free * sum_ for free, sum_ in enumerate(_sums(shares[step]))])
            self._wholes.append([WHOLE * n * sum_ for n, sum_ in enumerate(_sums(wholes[step]))])

    def step(self, cpu: int) -> int:
        """Return the place of a free CPU amount among the amounts that typical tasks ask for."""
        return bisect_right(self._cpus, cpu)

    def fragments(self, step: int, free: Sequence[int]) -> int:
        """Return the fragment of a node with such GPUs free and CPU of a step, times `weight`."""
        values, sums = self._shares[step], self._wholes[step]
        usable = 0
        for milli in free:
            usable += values[milli]
        full = free.count(WHOLE)
        if full >= len(sums):  # more than any task asks for
            usable += sums[-1] // (len(sums) - 1) * full
        else:
            usable += sums[full]
        return self.weight * sum(free) - usable


def _sums(values: Sequence[int]) -> list[int]:
    sums: list[int] = []
    total = 0
    for value in values:
        total += value
        sums.append(total)
    return sums
