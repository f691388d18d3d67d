"""A node's GPUs and CPU, and what is taken of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bedplate.pods.packing.shares import WHOLE, Request

if TYPE_CHECKING:
    from collections.abc import Sequence


class CountError(ValueError):
    """What would take more of a GPU than it has."""


@dataclass(slots=True)
class Node:
    """What is free: thousandths of each GPU, of CPU cores, and MiB of memory."""

    name: str
    gpus: int
    cpu: int
    memory: int = 0
    free: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.free = self.free or [WHOLE] * self.gpus

    def take(self, request: Request, gpus: Sequence[int], memory: int = 0) -> None:
        """Take a request's shares of these GPUs. Raises CountError, with nothing taken."""
        wrong = [gpu for gpu in gpus if not 0 <= gpu < self.gpus]
        if wrong or len(set(gpus)) != len(gpus) or len(gpus) != request.gpus:
            raise CountError(f"{self.name} has GPUs 0 to {self.gpus - 1}, asked were {list(gpus)}")
        short = [gpu for gpu in gpus if self.free[gpu] < request.milli]
        if short:
            raise CountError(
                f"{self.name}: GPU {short[0]} has {self.free[short[0]]} of {WHOLE} free, "
                f"asked were {request.milli}"
            )
        for gpu in gpus:
            self.free[gpu] -= request.milli
        self.cpu -= request.cpu
        self.memory -= memory

    def give(self, request: Request, gpus: Sequence[int], memory: int = 0) -> None:
        """Give back what was taken."""
        for gpu in gpus:
            self.free[gpu] += request.milli
        self.cpu += request.cpu
        self.memory += memory
