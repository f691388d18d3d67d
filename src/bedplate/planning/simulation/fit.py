"""How many of the jobs could run at once at best: packing, by clingo where counting is not enough.

The order of the queue does not matter here. A greedy packing says how many run at least, a sum over
all GPUs how many at most; where the two differ, clingo looks for more until a limit of its search,
which is counted in conflicts and not in seconds: the answer is the same on every machine.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from math import gcd
from typing import TYPE_CHECKING

import clingo

from bedplate.planning.simulation.refusals import never, now, pools_for
from bedplate.planning.simulation.rooms import NOTHING, Rooms
from bedplate.planning.simulation.supply import use_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bedplate.planning.simulation.jobs import Request, Row
    from bedplate.planning.simulation.rooms import Place
    from bedplate.planning.simulation.supply import Gpu, Node, Supply

type Kind = tuple[str, Request]

CONFLICTS = 20_000
#: Larger programs are not asked: grounding them takes longer than anyone waits.
CHOICES = 20_000
#: With more pools than this, not every set of them is looked at.
SETS = 10
#: Stands in the program for a GPU's memory, where it has no fixed parts.
MEMORY = -1
#: The most that clingo adds up in one sum, a signed number of 32 bits: over it, it raises an error.
LARGEST = 2**31 - 1
#: on(K,C,P,X) and whole(K,N,X): at least X jobs of a kind are there. So each weight stands once for
#: each job, and a sum holds no more than what the GPU or the node has of each kind.
PROGRAM = """
{ on(K,C,P,1..M) } :- most(K,C,P,M).
:- on(K,C,P,X), X > 1, not on(K,C,P,X-1).
{ whole(K,N,1..M) } :- most_whole(K,N,M).
:- whole(K,N,X), X > 1, not whole(K,N,X-1).
busy(C) :- on(_,C,-1,1).
:- part(C,P,R), #sum { 1,K,X : on(K,C,P,X) } > R.
:- most_jobs(C,R), #sum { 1,K,X : on(K,C,-1,X) } > R.
:- memory(C,R), #sum { S,K,X : on(K,C,-1,X), size(K,C,S) } > R.
:- gpus(N,L,R), #sum { G,whole,K,X : whole(K,N,X), asks(K,G), needs(K,N,L);
                       1,busy,C : busy(C), at(C,N), L == 0 } > R.
:- cpu(N,R), #sum { S,K,N,X : whole(K,N,X), cpu_of(K,S);
                    S,K,C,P,X : on(K,C,P,X), at(C,N), cpu_of(K,S) } > R.
:- host(N,R), #sum { S,K,N,X : whole(K,N,X), host_of(K,S);
                     S,K,C,P,X : on(K,C,P,X), at(C,N), host_of(K,S) } > R.
:- pods(N,R), #sum { 1,K,N,X : whole(K,N,X); 1,K,C,P,X : on(K,C,P,X), at(C,N) } > R.
:- kind(K,R), #sum { 1,N,X : whole(K,N,X); 1,C,P,X : on(K,C,P,X) } > R.
:- quota(T,L,R), #sum { G,K,N,X : whole(K,N,X), in(N,L), of(K,T), asks(K,G);
                        1,K,C,P,X : on(K,C,P,X), at(C,N), in(N,L), of(K,T) } > R.
:- alike(C,D,K,P), on(K,D,P,X), not on(K,C,P,X).
:- alike_nodes(N,M,K), whole(K,M,X), not whole(K,N,X).
#maximize { 1,K,N,X : whole(K,N,X); 1,K,C,P,X : on(K,C,P,X) }.
"""


@dataclass(frozen=True)
class Fit:
    """How many of all jobs run at once: at least and, where it is not proved, at most."""

    jobs: int
    least: int
    most: int
    impossible: int

    @property
    def proved(self) -> bool:
        """Tell whether no more can be had."""
        return self.least == self.most

    def __str__(self) -> str:
        return str(self.least) if self.proved else f"{self.least} to {self.most}"


def best_fit(supply: Supply, rows: Sequence[Row], conflicts: int = CONFLICTS) -> Fit:
    """Return how many of the jobs could run at once, however they are ordered and placed."""
    wanted: Counter[Kind] = Counter()
    impossible = 0
    for row in rows:
        if never(supply, row.team, row.request) is None:
            wanted[row.team, row.request] += row.count
        else:
            impossible += row.count
    total = wanted.total() + impossible
    kinds = sorted(wanted.items())
    order = sorted(kinds, key=lambda one: (-_least(supply, one[0]), one[0]))
    least = max(greedy(supply, order), greedy(supply, order[::-1]))
    most = _bound(supply, kinds)
    if least < most:
        asked = Program(supply, kinds)
        if asked.choices <= CHOICES and asked.largest <= LARGEST:
            found, proved = asked.best(conflicts)
            least = max(least, found)
            most = least if proved else most
    return Fit(total, least, most, impossible)


def greedy(supply: Supply, kinds: Sequence[tuple[Kind, int]]) -> int:
    """Return how many jobs run when each kind in turn takes what it can."""
    rooms = Rooms(supply.nodes, [])
    units: Counter[tuple[str, str]] = Counter()
    running = 0
    for (team, request), count in kinds:
        for _ in range(count):
            place = _first(supply, rooms, units, team, request)
            if place is None:
                break
            rooms.take(place, request)
            units[team, place.pool] += place.use.units
            running += 1
    return running


def _first(
    supply: Supply,
    rooms: Rooms,
    units: Mapping[tuple[str, str], int],
    team: str,
    request: Request,
) -> Place | None:
    for pool in pools_for(supply, team, request):
        if now(supply, rooms, units, team, request, pool) is None:
            return rooms.best(request, pool or None, "binpack")
    return None


def _least(supply: Supply, kind: Kind) -> Fraction:
    pools = pools_for(supply, *kind) if kind[1].on_gpu else []
    return min((_weight(supply, kind[1], pool) for pool in pools), default=NOTHING)


def _weight(supply: Supply, request: Request, pool: str) -> Fraction:
    """Return the least that a job takes of a pool, in GPUs."""
    found = []
    for gpu in supply.kinds(pool):
        use = use_of(gpu, request)
        if use is None:
            continue
        if use.gpus:
            found.append(Fraction(use.gpus))
        elif use.memory:
            found.append(Fraction(use.memory, gpu.memory))
        else:
            found.append(Fraction(1, sum(part.count for part in gpu.parts)))
    return min(found)


def _bound(supply: Supply, kinds: Sequence[tuple[Kind, int]]) -> int:
    """Return how many run at most, by sums alone.

    Of no kind there are more than there would be if it had the site for itself. For each set of
    pools: the jobs in them are no more than the smallest ones that fill their GPUs, cut anywhere;
    the others are at most all that may be elsewhere. The least of these sums holds.
    """
    counts = {kind: min(count, greedy(supply, [(kind, count)])) for kind, count in kinds}
    pools = {kind: set(pools_for(supply, *kind)) for kind in counts}
    filled = {}
    for pool in supply.pools:
        sized = sorted(
            (_weight(supply, kind[1], pool), count)
            for kind, count in counts.items()
            if pool in pools[kind] and kind[1].on_gpu
        )
        left, filled[pool] = Fraction(supply.total(pool)), 0
        for weight, count in sized:
            fits = min(count, int(left / weight))
            filled[pool] += fits
            left -= fits * weight
    sizes = range(len(supply.pools) + 1) if len(supply.pools) <= SETS else (0, len(supply.pools))
    return min(
        sum(filled[pool] for pool in some)
        + sum(count for kind, count in counts.items() if not pools[kind] <= set(some))
        for size in sizes
        for some in combinations(supply.pools, size)
    )


def crowded(node: Node, kinds: Sequence[tuple[Kind, int]]) -> bool:
    """Tell whether a node could have more of some jobs than it takes pods."""
    if node.pods is None or sum(count for _, count in kinds) <= node.pods:
        return False
    if not all(request.on_gpu for (_, request), _ in kinds):
        return True
    most = 0
    for gpu in node.gpus:
        uses = [use for (_, request), _ in kinds if (use := use_of(gpu, request))]
        sizes = [use.memory for use in uses if use.memory]
        free = gpu.memory // min(sizes) if sizes else 0
        parts = sum(part.count for part in gpu.parts)
        most += min(free, gpu.most) if free and gpu.most is not None else max(free, parts, 1)
    return most > node.pods


def merged(nodes: Sequence[Node], *, apart: bool) -> list[Node]:
    """Return fewer nodes on which as much can run: it does not matter which of equal parts one has.

    GPUs in equal parts become one with all the parts. Where CPUs and memory do not count, so do
    those of all nodes of a pool, and where no job needs several whole GPUs (*apart*), its nodes.
    A node whose pods are limited stays one, too.
    """
    found: dict[str, Node] = {}
    for node in nodes:
        counted = (node.cpu, node.memory, node.pods) != (None, None, None)
        whole = tuple(gpu for gpu in node.gpus if not gpu.parts)
        cut = tuple(gpu for gpu in node.gpus if gpu.parts)
        homes = [(f"{node.name} ", whole + cut)]
        if not counted and apart:
            homes = [(f"{node.name} ", whole), (node.pool, cut)]
        elif not counted:
            homes = [(node.pool, whole + cut)]
        for name, gpus in homes:
            if gpus or not node.gpus:
                home = found.setdefault(name, replace(node, name=name, gpus=()))
                found[name] = replace(home, gpus=home.gpus + gpus)
    return [replace(node, gpus=_together(node.gpus)) for node in found.values()]


def _together(gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
    times = Counter(gpu for gpu in gpus if gpu.parts)
    return tuple(gpu for gpu in gpus if not gpu.parts) + tuple(
        replace(
            gpu,
            parts=tuple(replace(part, count=part.count * number) for part in gpu.parts),
        )
        for gpu, number in times.items()
    )


class Program:
    """The packing as a logic program: how many of each kind are on each GPU and each node.

    `choices` is how many atoms the solver chooses from, `largest` the most that one of its sums
    can come to.
    """

    def __init__(self, supply: Supply, kinds: Sequence[tuple[Kind, int]]) -> None:
        self.supply, self.kinds = supply, kinds
        self.choices = 0
        self.facts: list[str] = []
        #: Amounts are counted in the largest unit that divides them all: sums stay exact and small.
        self.cpu_unit = gcd(*(request.cpu for (_, request), _ in kinds)) or 1
        self.host_unit = gcd(*(request.memory_host for (_, request), _ in kinds)) or 1
        self.sums: Counter[tuple[str, int]] = Counter()
        self._kinds()
        nodes = [one if crowded(one, kinds) else replace(one, pods=None) for one in supply.nodes]
        self.nodes = merged(nodes, apart=any(kind[1].gpus > 1 for kind, _ in kinds))
        gpu = 0
        for index, node in enumerate(self.nodes):
            before = self.nodes[index - 1] if index else node
            alike = index > 0 and replace(before, name=node.name) == node
            self._node(index, node, alike=alike)
            for here, one in enumerate(node.gpus):
                alike = here > 0 and one == node.gpus[here - 1]
                self._gpu(gpu, index, one, alike=alike)
                gpu += 1

    @property
    def largest(self) -> int:
        """Return the most that one sum of the program can come to."""
        return max(self.sums.values(), default=0)

    def best(self, conflicts: int) -> tuple[int, bool]:
        """Return the most jobs that were found to run at once, and whether that is proved."""
        control = clingo.Control(["--warn=none", "--seed=1", f"--solve-limit={conflicts}"])
        control.add("base", [], PROGRAM + "\n".join(self.facts))
        control.ground([("base", [])])
        found = 0
        with control.solve(yield_=True) as handle:
            for model in handle:
                found = -model.cost[0] if model.cost else 0
            result = handle.get()
        return found, bool(result.exhausted) and not result.interrupted

    def _kinds(self) -> None:
        supply = self.supply
        teams = sorted({team for (team, _), _ in self.kinds})
        for number, ((team, request), count) in enumerate(self.kinds):
            # What is larger than any node stands in no sum that counts.
            cpu = min(request.cpu // self.cpu_unit, LARGEST)
            host = min(request.memory_host // self.host_unit, LARGEST)
            self.facts += [
                f"kind({number},{count}). of({number},{teams.index(team)}).",
                f"cpu_of({number},{cpu}). host_of({number},{host}).",
                f"asks({number},{request.gpus or int(request.on_gpu)}).",
            ]
        for team in teams:
            for index, pool in enumerate(supply.pools):
                quota = supply.quota(team, pool)
                if quota is not None and quota.most is not None:
                    most = min(quota.most, LARGEST)
                    self.facts.append(f"quota({teams.index(team)},{index},{most}).")

    def _most(self, node: int, request: Request, room: int) -> int:
        """Return how many jobs of a kind a node's CPUs and memory allow, and count their sums."""
        here = self.nodes[node]
        asked = (
            ("cpu", here.cpu, request.cpu, self.cpu_unit),
            ("host", here.memory, request.memory_host, self.host_unit),
        )
        rooms = [have // takes for _, have, takes, _ in asked if have is not None and takes]
        most = min([room, *rooms])
        self.choices += most
        for name, have, takes, unit in asked:
            if have is not None:
                self.sums[name, node] += most * takes // unit
        return most

    def _node(self, index: int, node: Node, *, alike: bool) -> None:
        facts = self.facts
        if node.gpus:
            facts.append(f"in({index},{self.supply.pools.index(node.pool)}).")
        if node.cpu is not None:
            facts.append(f"cpu({index},{min(node.cpu // self.cpu_unit, LARGEST)}).")
        if node.memory is not None:
            facts.append(f"host({index},{min(node.memory // self.host_unit, LARGEST)}).")
        if node.pods is not None:
            facts.append(f"pods({index},{node.pods}).")
        wholes = [gpu for gpu in node.gpus if gpu.whole or gpu.sizes]
        # Where GPUs differ, what only the larger ones can give must find room among them.
        levels = sorted({0, *(gpu.memory for gpu in wholes)})
        for level in levels:
            facts.append(f"gpus({index},{level},{sum(gpu.memory >= level for gpu in wholes)}).")
        for number, ((_, request), count) in enumerate(self.kinds):
            if request.pool not in {"", node.pool}:
                continue
            most = count
            if request.on_gpu:
                able = [gpu for gpu in wholes if (use := use_of(gpu, request)) and use.gpus]
                most = min(count, len(able) // (request.gpus or 1))
                needed = min((gpu.memory for gpu in able), default=0)
                facts += [f"needs({number},{index},{one})." for one in levels if one <= needed]
            if most := self._most(index, request, most):
                facts.append(f"most_whole({number},{index},{most}).")
                if alike:
                    # Which of two equal nodes has more of a kind does not matter: the first.
                    facts.append(f"alike_nodes({index - 1},{index},{number}).")
                    alike = False

    def _gpu(self, number: int, node: int, gpu: Gpu, *, alike: bool) -> None:
        self.facts.append(f"at({number},{node}).")
        if gpu.most is not None:
            self.facts.append(f"most_jobs({number},{gpu.most}).")
        for part, one in enumerate(gpu.parts):
            self.facts.append(f"part({number},{part},{one.count}).")
        uses = {
            kind: use
            for kind, ((_, request), _) in enumerate(self.kinds)
            if request.pool in {"", self.nodes[node].pool}
            and request.on_gpu
            and (use := use_of(gpu, request)) is not None
            and not use.gpus
        }
        unit = gcd(*(use.memory for use in uses.values())) or 1
        if gpu.sizes:
            self.facts.append(f"memory({number},{gpu.memory // unit}).")
        for kind, use in uses.items():
            (_, request), count = self.kinds[kind]
            takes = {part: gpu.parts[part].count for part in use.parts}
            if use.memory:
                takes = {MEMORY: gpu.memory // use.memory}
                self.facts.append(f"size({kind},{number},{use.memory // unit}).")
            for part, room in takes.items():
                most = self._most(node, request, min(room, count))
                self.sums["memory", number] += most * use.memory // unit
                self.facts.append(f"most({kind},{number},{part},{most}).")
                if alike:
                    # Which of two equal GPUs has more of a kind does not matter: the first.
                    self.facts.append(f"alike({number - 1},{number},{kind},{part}).")
                    alike = False
