"""Which GPUs of a node a request would take, and how good that is."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from bedplate.pods.packing.shares import WHOLE, Request

if TYPE_CHECKING:
    from bedplate.pods.packing.mix import Mix
    from bedplate.pods.packing.node import Node

STEP = 80
"""Gains that differ by less than this many thousandths of a GPU are equal: the order decides.

Chosen on the seeds 1 to 4 of the trace benchmark, among 20 to 200.
"""


KEPT = 200_000
"""Choices that are kept, some 200 bytes each."""


class Choice(NamedTuple):
    """GPUs of one node, and a score: more is better."""

    score: int
    gpus: tuple[int, ...]


class Policy(Protocol):
    """Scores one node for one request, from what is free on it and nothing else."""

    def choose(self, node: Node, request: Request) -> Choice | None:
        """Return the node's best GPUs for a request, or None where it doesn't fit."""


def whole_gpus(free: list[int], count: int) -> tuple[int, ...] | None:
    """Return the first GPUs that are free altogether, as many as are asked for, or None."""
    gpus = [gpu for gpu, milli in enumerate(free) if milli == WHOLE]
    return tuple(gpus[:count]) if len(gpus) >= count else None


class Gradient:
    """Fragmentation gradient descent: where the placement makes the fewest new fragments."""

    def __init__(self, mix: Mix, step: int = STEP) -> None:
        self.mix = mix
        self._step = mix.weight * step
        self._known: dict[tuple[int, ...], Choice | None] = {}

    def choose(self, node: Node, request: Request) -> Choice | None:
        """Return the GPU whose taking leaves the smallest fragment, or the first free GPUs.

        A request without GPUs takes CPU alone, and that makes fragments too. Nodes are often alike:
        what was found for one is kept for the next.
        """
        step = self.mix.step
        steps = (step(node.cpu), step(node.cpu - request.cpu))
        key = (request.gpus, request.milli, *steps, *node.free)
        try:
            return self._known[key]
        except KeyError:
            pass
        if len(self._known) >= KEPT:
            self._known.clear()
        choice = self._known[key] = self._choose(node.free, request, *steps)
        return choice

    def _choose(self, free: list[int], request: Request, now: int, then: int) -> Choice | None:
        """Choose among GPUs; `now` and `then` are the CPU's steps before and after."""
        mix, milli, gpus = self.mix, request.milli, request.gpus
        taken: tuple[int, ...] = ()
        left = list(free)
        if gpus and milli == WHOLE:
            whole = whole_gpus(free, gpus)
            if whole is None:
                return None
            taken = whole
            for gpu in whole:
                left[gpu] = 0
        elif gpus:
            best: tuple[int, int, int] | None = None
            for gpu, has in enumerate(free):
                if has < milli or has in free[:gpu]:
                    continue
                left[gpu] = has - milli
                found = (mix.fragments(then, left), has, gpu)
                left[gpu] = has
                if best is None or found < best:
                    best = found
            if best is None:
                return None
            taken = (best[2],)
            left[best[2]] -= milli
        gain = mix.fragments(now, free) - mix.fragments(then, left)
        return Choice(gain // self._step, taken)
