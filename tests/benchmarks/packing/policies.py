"""Policies to compare with: each scores a node from what is free on it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from bedplate.pods.packing.policy import Choice, whole_gpus
from bedplate.pods.packing.shares import WHOLE, Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from bedplate.pods.packing.node import Node


def tightest(node: Node, request: Request) -> tuple[int, ...] | None:
    """Return the GPU with the least free that is enough, or the first free GPUs."""
    if request.milli == WHOLE or not request.gpus:
        return whole_gpus(node.free, request.gpus)
    fits = [(free, gpu) for gpu, free in enumerate(node.free) if free >= request.milli]
    return (min(fits)[1],) if fits else None


class Scored:
    """A policy made of a score for the node; its GPUs are the tightest."""

    def __init__(self, score: Callable[[Node, Request], int]) -> None:
        self._score = score

    def choose(self, node: Node, request: Request) -> Choice | None:
        """Return the tightest GPUs, and the node's score."""
        gpus = tightest(node, request)
        return None if gpus is None else Choice(self._score(node, request), gpus)


class Random:
    """Any GPU that has room; with random ties any node too."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)  # noqa: S311 - a policy, no secret

    def choose(self, node: Node, request: Request) -> Choice | None:
        """Return a random GPU with room, or the first free GPUs."""
        if request.milli == WHOLE or not request.gpus:
            gpus = whole_gpus(node.free, request.gpus)
            return None if gpus is None else Choice(0, gpus)
        fits = [gpu for gpu, free in enumerate(node.free) if free >= request.milli]
        return Choice(0, (self._chance.choice(fits),)) if fits else None


def equal(_node: Node, _request: Request) -> int:
    """All nodes are equal: first-fit."""
    return 0


def best_fit(most_cpu: int, most_gpus: int) -> Callable[[Node, Request], int]:
    """Return best-fit's score: the least left, of CPU and of GPUs, each by the largest node's."""

    def score(node: Node, request: Request) -> int:
        cpu = (node.cpu - request.cpu) / most_cpu
        gpus = (sum(node.free) - request.gpus * request.milli) / (WHOLE * most_gpus)
        return -round(1e6 * (cpu + gpus))

    return score


def dot_product(most_cpu: int, most_gpus: int) -> Callable[[Node, Request], int]:
    """Return the score by alignment: the product of what is free and what is asked, least first."""

    def score(node: Node, request: Request) -> int:
        cpu = node.cpu / most_cpu * request.cpu / most_cpu
        gpus = sum(node.free) / (WHOLE * most_gpus) * request.gpus * request.milli
        return -round(1e6 * (cpu + gpus / (WHOLE * most_gpus)))

    return score


def most_allocated(node: Node, request: Request) -> int:
    """Preset's `binpack`: NodeResourcesFit with MostAllocated on the node's GPUs, 0 to 100."""
    left = sum(node.free) - request.gpus * request.milli
    return 100 - 100 * left // (WHOLE * node.gpus)


def least_allocated(node: Node, request: Request) -> int:
    """Preset's `spread`: LeastAllocated on the node's GPUs, 0 to 100."""
    left = sum(node.free) - request.gpus * request.milli
    return 100 * left // (WHOLE * node.gpus)
