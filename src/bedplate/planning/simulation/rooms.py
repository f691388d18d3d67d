"""What is free on each node at a moment, and on which node a job goes."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from bedplate.planning.simulation.supply import Use, use_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bedplate.planning.simulation.jobs import Request
    from bedplate.planning.simulation.supply import Node

type _Ranked = tuple[tuple[Fraction, Fraction, str], Place]

NOTHING, ALL = Fraction(0), Fraction(1)


@dataclass(frozen=True)
class Place:
    """What a job has: GPUs of a node by index, and of the one GPU a part or MiB of its memory."""

    node: str
    pool: str
    gpus: tuple[int, ...]
    use: Use
    part: int | None = None


class Room:
    """The state of one node."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.whole = [False] * len(node.gpus)
        self.parts = [[0] * len(gpu.parts) for gpu in node.gpus]
        self.memory = [0] * len(node.gpus)
        self.jobs = [0] * len(node.gpus)
        self.cpu, self.host, self.pods = node.cpu, node.memory, node.pods

    def free(self, index: int) -> Fraction:
        """Return how much of a GPU no job has, from 0 to 1."""
        gpu = self.node.gpus[index]
        if self.whole[index]:
            return NOTHING
        if gpu.sizes:
            return ALL - Fraction(self.memory[index], gpu.memory or 1)
        if not gpu.parts:
            return ALL
        total = sum((part.share * part.count for part in gpu.parts), NOTHING)
        used = zip(gpu.parts, self.parts[index], strict=True)
        return ALL - sum((part.share * count for part, count in used), NOTHING) / total

    def idle(self, index: int) -> bool:
        """Tell whether no job has any of a GPU."""
        return not self.jobs[index]

    def place(self, request: Request) -> Place | None:
        """Return where a request would go on this node, None if it has no room for it."""
        if not self.holds(request):
            return None
        node = self.node
        if not request.on_gpu:
            return Place(node.name, node.pool, (), Use())
        idle: list[int] = []
        best: tuple[Fraction, int] | None = None
        chosen: Place | None = None
        for index, gpu in enumerate(node.gpus):
            use = use_of(gpu, request)
            if use is None:
                continue
            if use.gpus:
                if self.idle(index):
                    idle.append(index)
                if len(idle) == use.gpus:
                    return Place(node.name, node.pool, tuple(idle), use)
            elif (part := self._part(index, use)) is not None:
                # The fullest GPU that has room: pieces stay as large as they can.
                order = (self.free(index), index)
                if best is None or order < best:
                    best = order
                    chosen = Place(node.name, node.pool, (index,), use, part if use.parts else None)
        return chosen

    def _part(self, index: int, use: Use) -> int | None:
        if self.whole[index]:
            return None
        gpu = self.node.gpus[index]
        if gpu.most is not None and self.jobs[index] >= gpu.most:
            return None
        if use.memory:
            return 0 if self.memory[index] + use.memory <= gpu.memory else None
        return next(
            (one for one in use.parts if self.parts[index][one] < gpu.parts[one].count), None
        )

    def holds(self, request: Request) -> bool:
        """Tell whether CPUs, memory and places for pods are enough, as far as they are known."""
        if self.pods is not None and self.pods < 1:
            return False
        cpu = self.cpu is None or request.cpu <= self.cpu
        return cpu and (self.host is None or request.memory_host <= self.host)

    def take(self, place: Place, request: Request, sign: int = 1) -> None:
        """Give a job its place, or with *sign* -1 take it back."""
        use = place.use
        for index in place.gpus:
            self.jobs[index] += sign
            if use.gpus:
                self.whole[index] = sign > 0
            elif place.part is not None:
                self.parts[index][place.part] += sign
            else:
                self.memory[index] += sign * use.memory
        self.cpu = None if self.cpu is None else self.cpu - sign * request.cpu
        self.host = None if self.host is None else self.host - sign * request.memory_host
        self.pods = None if self.pods is None else self.pods - sign

    def unusable(self, request: Request) -> Fraction:
        """Return how much of the free GPUs is in pieces that a request cannot use."""
        free = [self.free(index) for index in range(len(self.node.gpus))]
        lost, idle, needed = NOTHING, NOTHING, 0
        for index, gpu in enumerate(self.node.gpus):
            use = use_of(gpu, request)
            if use is not None and use.gpus and self.idle(index):
                idle, needed = idle + 1, use.gpus
            elif use is None or use.gpus or self._part(index, use) is None:
                lost += free[index]
        return lost if idle >= needed else lost + idle


class Rooms:
    """The state of all nodes."""

    def __init__(self, nodes: Sequence[Node], kinds: Sequence[tuple[Request, Fraction]]) -> None:
        self.of = {node.name: Room(node) for node in nodes}
        self.kinds = kinds
        #: What was worked out about a node, until something on it changes.
        self.known: dict[tuple[Request, str | None, str], dict[str, _Ranked | None]] = {}
        self.lost = {name: self._lost(room) for name, room in self.of.items()}
        self.fragmentation = sum(self.lost.values(), NOTHING)

    def take(self, place: Place, request: Request, sign: int = 1) -> None:
        """Give a job its place, or with *sign* -1 take it back."""
        room = self.of[place.node]
        room.take(place, request, sign)
        for known in self.known.values():
            known.pop(place.node, None)
        if place.gpus:
            lost = self._lost(room)
            self.fragmentation += lost - self.lost[place.node]
            self.lost[place.node] = lost

    def _lost(self, room: Room) -> Fraction:
        kinds = (weight * room.unusable(request) for request, weight in self.kinds)
        return sum(kinds, NOTHING)

    def best(self, request: Request, pool: str | None, how: str) -> Place | None:
        """Return where a request goes in a pool (None: on any node), by the way of placing.

        `binpack` takes the node with the least free, `spread` the one with the most, `gradient`
        the one where fragmentation grows least; ties go to the first name.
        """
        known = self.known.setdefault((request, pool, how), {})
        for name, room in self.of.items():
            if name not in known and pool in {None, room.node.pool}:
                place = room.place(request)
                known[name] = (self._order(place, request, how), place) if place else None
        found = [one for one in known.values() if one is not None]
        return min(found, key=lambda one: one[0])[1] if found else None

    def _order(self, place: Place, request: Request, how: str) -> tuple[Fraction, Fraction, str]:
        room = self.of[place.node]
        free = sum((room.free(index) for index in range(len(room.node.gpus))), NOTHING)
        if how == "gradient":
            room.take(place, request)
            grown = self._lost(room) - self.lost[place.node]
            room.take(place, request, -1)
            return (grown, free, place.node)
        return (NOTHING, -free if how == "spread" else free, place.node)
