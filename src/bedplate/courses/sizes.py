"""What the GPUs of a pool have for students: how many shares of a size, and what limits them."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

#: Shares are as fine as this: the setting takes no smaller ones.
FINEST = 1000


@dataclass(frozen=True)
class Gpus:
    """The GPUs of a pool, which are alike: how many, and what each has.

    Attributes:
        count: GPUs of all hosts.
        per_host: GPUs of one host.
        memory: MiB that programs can use, None where it is not known.
        whole: all of its MiB, of which frameworks take parts.
        clients: how many MPS takes.
        shares: how many equal shares of a GPU the pool's mode makes; None where it makes none.
        mode: the pool's sharing mode.
        model: its name, for the words.
        architectures: of the models.
    """

    count: int
    per_host: int
    memory: int | None
    whole: int | None
    clients: int
    shares: int | None
    mode: str
    model: str
    architectures: tuple[str, ...] = ()

    def part(self, memory: int | None) -> float | None:
        """Return how much of the whole memory some MiB are, rounded down."""
        if memory is None or not self.whole or memory < 1:
            return None
        return memory * FINEST // self.whole / FINEST


@dataclass(frozen=True)
class Asked:
    """What a student asks for: a part of a GPU, or memory, and what each process loses."""

    part: Decimal | None
    memory: int | None
    reserve: int

    def limits(self, gpus: Gpus, mode: str) -> dict[str, int]:
        """Return how many such shares a GPU has in a mode, by what limits them."""
        found = {}
        if self.part is not None:
            found["compute"] = int(1 / self.part)
        if gpus.memory is not None:
            least = self.reserve + (self.memory if self.memory is not None else 1)
            found["memory"] = gpus.memory // least
        if mode == "mps":
            found["clients"] = gpus.clients
        return found

    def most(self, gpus: Gpus, mode: str) -> int:
        """Return how many such shares a GPU has in a mode."""
        return min(self.limits(gpus, mode).values(), default=0)

    def claim(self, gpus: Gpus) -> int:
        """Return the memory of a student's claim in MiB, the reserve in it."""
        if self.memory is not None:
            return self.memory + self.reserve
        return int((self.part or Decimal(1)) * (gpus.memory or 0))

    def of_size(self, shares: int, gpus: Gpus) -> str | None:
        """Return the largest share of which a GPU has so many, None where there is none."""
        if shares > FINEST or (gpus.memory is not None and gpus.memory // shares <= self.reserve):
            return None
        if self.part is not None:
            return f"{FINEST // shares / FINEST:g}"
        if gpus.memory is None:
            return None
        return f"{{memory: {gpus.memory // shares - self.reserve}Mi}}"
