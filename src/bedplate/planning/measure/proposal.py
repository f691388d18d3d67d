"""From what a program took at each size to the share of a course. Pure functions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Percent that a program may take more in the course than it took here: our own choice.
MARGIN: Final = 10
HEAD: Final = ("SIZE", "SHARE", "TOOK", "TIME", "RESULT")


@dataclass(frozen=True)
class Card:
    """The GPU that was measured on; memory in MiB.

    Attributes:
        usable: what programs have of its memory, as the plan counts it.
        whole: all of its memory, of which frameworks take parts.
        reserve: what a framework takes for itself in each process, as the plan counts it.
    """

    name: str
    usable: int
    whole: int
    reserve: int

    def share(self, size: float) -> int:
        """Return the memory of a share."""
        return int(self.usable * size)

    def part(self, size: float) -> float | None:
        """Return the part that a framework's allocator has; None where nothing is left of it."""
        left = self.share(size) - self.reserve
        return None if left < 1 else max(left * 1000 // self.whole, 1) / 1000


@dataclass(frozen=True)
class Run:
    """A run at a size: the most memory that was seen in MiB, its time, and why it failed."""

    size: float
    peak: int
    seconds: float
    failure: str = ""


def verdict(run: Run, card: Card) -> str:
    """Return why a size is too small for what was seen; empty where it is enough."""
    if run.failure:
        return run.failure
    needed = math.ceil(run.peak * (100 + MARGIN) / 100)
    if needed > card.share(run.size):
        return f"{needed} MiB with {MARGIN} % added"
    return ""


def chosen(runs: Sequence[Run], card: Card) -> Run | None:
    """Return the run at the smallest size that is enough; None where none is."""
    enough = [run for run in runs if not verdict(run, card)]
    return min(enough, key=lambda run: run.size, default=None)


def students(size: float) -> int:
    """Return how many shares of a size a GPU has."""
    return int(1 / size + 1e-9)


def rows(runs: Sequence[Run], card: Card) -> list[tuple[str, ...]]:
    """Return a row for each run, in the columns of `HEAD`."""
    found: list[tuple[str, ...]] = []
    for run in runs:
        reason = verdict(run, card)
        result = f"too small: {reason}" if reason else "enough"
        memory = (f"{card.share(run.size)} MiB", f"{run.peak} MiB")
        found.append((f"{run.size:g}", *memory, f"{run.seconds:.1f} s", result))
    return found


def settings(run: Run) -> list[str]:
    """Return the settings of a site that give each student of a course the share of a run."""
    count = students(run.size)
    if count == 1:
        return ["in the course:  share: {gpus: 1}"]
    return [
        f"in the course:  share: {run.size:g}",
        f"in its pool:    bedplate_sharing: {{mode: time-slicing, replicas: {count}}}",
    ]


def notes(runs: Sequence[Run], run: Run, card: Card, *, by_program: bool) -> list[str]:
    """Return what was measured, and what is assumed, in whole sentences.

    Args:
        runs: all, the largest size first.
        run: the one that is proposed.
        card: the GPU.
        by_program: whether the driver listed the program's own memory; else it is by how much the
            memory in use on the GPU grew.
    """
    count = students(run.size)
    alone = runs[0].seconds
    memory = "memory of the program and what it starts"
    if not by_program:
        memory = "growth of the memory in use on the GPU, of all programs on it"
    assumed = (
        f"in the course it takes {MARGIN} % more memory at most, on {card.name}, in one process"
    )
    limited = "the memory of JAX and Paddle by their variables, and of any program where MPS runs"
    found = [
        f"Measured: the {memory}, by nvidia-smi, and the time of one run at each size.",
        "A size is enough where its memory is: whether its time is, is yours to judge.",
        "Not measured: memory that the program held for less than the time between two readings.",
        f"Limited at each size: {limited}. Others are judged by what they took.",
        f"Assumed: {assumed}. The framework itself takes {card.reserve} MiB of it.",
    ]
    if count > 1:
        found.append(
            f"The program ran alone. When {count} students compute on one GPU at the same time, a "
            f"run may take up to {count} times as long: {count * alone:.0f} s."
        )
    return found
