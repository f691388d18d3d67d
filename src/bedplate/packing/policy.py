"""Which GPUs of a node a request would take, and how good that is."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from bedplate.packing.shares import WHOLE, Request

if TYPE_CHECKING:
    from bedplate.packing.mix import Mix
    from bedplate.packing.node import Node

STEP = 40
"""Gains that differ by less than this many thousandths of a GPU are equal: the order decides."""


class Choice(NamedTuple):
    """GPUs of one node, and a score: more is better."""

    score: int
    gpus: tuple[int, ...]


class Policy(Protocol):
    """Scores one node for one request, from what is free on it and nothing else."""

    def choose(self, node: Node, request: Request) -> Choice | None:
        """Return the node's best GPUs for a request, or None where it doesn't fit."""


def whole_gpus(node: Node, request: Request) -> tuple[int, ...] | None:
    """Return the first GPUs that are free altogether, as many as are asked for, or None."""
    gpus = [gpu for gpu, free in enumerate(node.free) if free == WHOLE]
    return tuple(gpus[: request.gpus]) if len(gpus) >= request.gpus else None


class Gradient:
    """Fragmentation gradient descent: where the placement makes the fewest new fragments."""

    def __init__(self, mix: Mix, step: int = STEP) -> None:
        self.mix = mix
        self._step = mix.weight * step

    def choose(self, node: Node, request: Request) -> Choice | None:
        """Return the GPU whose taking leaves the smallest fragment, or the first free GPUs.

        A request without GPUs takes CPU alone, and that makes fragments too.
        """
        mix = self.mix
        milli = request.milli
        before = mix.fragments(node.cpu, node.free)
        if not request.gpus:
            after = mix.fragments(node.cpu - request.cpu, node.free)
            return Choice((before - after) // self._step, ())
        step = mix.step(node.cpu - request.cpu)
        values = mix.shares(step)
        full = node.free.count(WHOLE)
        total = mix.weight * (sum(node.free) - milli * request.gpus)
        usable = sum([values[free] for free in node.free])
        if milli == WHOLE:
            gpus = whole_gpus(node, request)
            if gpus is None:
                return None
            usable -= request.gpus * values[WHOLE]
            after = total - usable - mix.wholes(step, full - request.gpus)
            return Choice((before - after) // self._step, gpus)
        wholes = mix.wholes(step, full)
        best: tuple[int, int, int] | None = None
        tried: set[int] = set()
        for gpu, free in enumerate(node.free):
            if free < milli or free in tried:
                continue
            tried.add(free)
            kept = wholes if free < WHOLE else mix.wholes(step, full - 1)
            after = total - (usable - values[free] + values[free - milli]) - kept
            if best is None or (after, free) < best[:2]:
                best = (after, free, gpu)
        if best is None:
            return None
        return Choice((before - best[0]) // self._step, (best[2],))
