"""How many run at once at best: against brute force, and against greedy packings that succeed."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import combinations
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bedplate.planning.simulation.fit import best_fit
from bedplate.planning.simulation.jobs import Request, Row
from bedplate.planning.simulation.supply import Gpu, Node, Policy, Quota, Supply, Team
from tests.unit.simulated_jobs.made import (
    HALVES,
    MIXED,
    SIZES,
    TENTHS,
    THREE,
    WHOLE,
    row,
    site,
)

TEAMS = {"a": Team("a", {"pool_none": Quota(1, 1), "pool_dra": Quota(2, 2)})}

#: What is left of a GPU: its parts, its memory, how many jobs it has; and of a node its CPUs.
type Left = tuple[tuple[int, ...], int, int]


def brute_force(supply: Supply, rows: list[Row]) -> int:
    """Try everything: each job on every node and GPU that could have it, or nowhere."""
    nodes = supply.nodes
    jobs = sorted((one.team, one.request) for one in rows for _ in range(one.count))

    @cache
    def most(
        number: int, gpus: tuple[Left, ...], cpus: tuple[int, ...], used: tuple[int, ...]
    ) -> int:
        if number == len(jobs):
            return 0
        team, request = jobs[number]
        best = most(number + 1, gpus, cpus, used)
        for after in placed(supply, team, request, (gpus, cpus, used)):
            best = max(best, 1 + most(number + 1, *after))
        return best

    gpus = tuple(
        (tuple(part.count for part in gpu.parts), gpu.memory, 0)
        for node in nodes
        for gpu in node.gpus
    )
    limits = tuple(node.cpu if node.cpu is not None else 10**9 for node in nodes)
    return most(0, gpus, limits, (0,) * len(supply.pools))


type State = tuple[tuple[Left, ...], tuple[int, ...], tuple[int, ...]]


def placed(supply: Supply, team: str, request: Request, state: State) -> list[State]:
    """Return every state after one more job; written without the simulation's own arithmetic."""
    gpus, cpus, used = state
    found = []
    first = 0
    for index, node in enumerate(supply.nodes):
        here = range(first, first + len(node.gpus))
        first += len(node.gpus)
        if request.pool not in {"", node.pool} or cpus[index] < request.cpu:
            continue
        pool = supply.pools.index(node.pool)
        limit = supply.teams[team].quotas.get(node.pool, Quota(0, 0)).most if team else None
        for taken, units in ways(request, node, gpus, here):
            if limit is not None and used[pool] + units > limit:
                continue
            after = list(gpus)
            for number, left in taken.items():
                after[number] = left
            in_use = used[pool] + (units if team else 0)
            found.append(
                (
                    tuple(after),
                    (*cpus[:index], cpus[index] - request.cpu, *cpus[index + 1 :]),
                    (*used[:pool], in_use, *used[pool + 1 :]),
                )
            )
    return found


def ways(
    request: Request, node: Node, gpus: tuple[Left, ...], here: range
) -> list[tuple[dict[int, Left], int]]:
    """Return what a job could take of a node's GPUs, and what that counts."""
    found: list[tuple[dict[int, Left], int]] = []
    start = here.start
    wants_whole = request.gpus or 1
    able = [
        number
        for number in here
        if not gpus[number][2]
        and not node.gpus[number - start].parts
        and (request.gpus or (node.gpus[number - start].whole
                              and request.memory <= node.gpus[number - start].memory))
    ]  # fmt: skip
    taken: Left = ((), 0, 99)
    found += [(dict.fromkeys(some, taken), wants_whole) for some in combinations(able, wants_whole)]
    for number in here if not request.gpus else ():
        gpu: Gpu = node.gpus[number - start]
        parts, memory, jobs = gpus[number]
        if gpu.sizes and jobs < (gpu.most if gpu.most is not None else 98):
            asked = request.memory or ceil(request.share * gpu.memory)
            if asked <= memory:
                found.append(({number: (parts, memory - asked, jobs + 1)}, 1))
        for one, part in enumerate(gpu.parts):
            enough = part.share >= request.share if request.share else part.memory >= request.memory
            if enough and parts[one]:
                left = (*parts[:one], parts[one] - 1, *parts[one + 1 :])
                found.append(({number: (left, memory, jobs + 1)}, 1))
    return found


@st.composite
def small_sites(draw: st.DrawFn) -> Supply:
    """At most two nodes with at most two GPUs each."""
    kinds = draw(
        st.lists(st.sampled_from((WHOLE, HALVES, MIXED, SIZES, THREE)), min_size=1, max_size=2)
    )
    nodes = []
    for number, kind in enumerate(kinds):
        gpus = (kind,) * draw(st.integers(1, 2))
        cpu = draw(st.sampled_from([None, None, 4000]))
        nodes.append(Node(f"node{number}", f"pool_{kind.mode}", gpus, cpu))
    teams = draw(st.sampled_from([{}, TEAMS]))
    return Supply(tuple(nodes), teams, Policy(place="binpack"))


ASKS = st.sampled_from(
    [{"gpus": 1}, {"gpus": 2}, {"share": "0.4"}, {"memory": 5}, {"memory": 7}, {"memory": 12}]
)
ROWS = st.tuples(ASKS, st.integers(1, 3), st.booleans(), st.integers(0, 2))


@settings(max_examples=120, deadline=None)
@given(small_sites(), st.lists(ROWS, min_size=1, max_size=3))
def test_the_best_is_what_brute_force_finds(
    supply: Supply, asked: list[tuple[dict[str, str], int, bool, int]]
) -> None:
    rows = [
        row(
            f"job{number}", **asks, count=count, team="a" if named and supply.teams else "", cpu=cpu
        )
        for number, (asks, count, named, cpu) in enumerate(asked)
    ]
    fit = best_fit(supply, rows)
    best = brute_force(supply, rows)
    assert fit.least <= best <= fit.most
    assert fit.proved, "so small a question has a proof"


@settings(max_examples=60, deadline=None)
@given(small_sites(), st.lists(ROWS, min_size=1, max_size=3), st.integers(0, 4))
def test_pods_of_a_node_are_counted_as_a_cpu_of_each_job_would_be(
    supply: Supply, asked: list[tuple[dict[str, str], int, bool, int]], pods: int
) -> None:
    jobs = [
        row(f"job{number}", **asks, count=count, team="a" if named and supply.teams else "", cpu=1)
        for number, (asks, count, named, _) in enumerate(asked)
    ]
    nodes = [replace(node, cpu=None, pods=pods) for node in supply.nodes]
    same = [replace(node, cpu=pods * 1000, pods=None) for node in supply.nodes]
    found = best_fit(replace(supply, nodes=tuple(nodes)), jobs)
    assert found == best_fit(replace(supply, nodes=tuple(same)), jobs)
    assert found.least == brute_force(replace(supply, nodes=tuple(same)), jobs)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(1, 16), min_size=1, max_size=40), st.integers(1, 12))
def test_what_a_greedy_packing_places_is_never_said_to_wait(sizes: list[int], gpus: int) -> None:
    free = [16] * gpus
    for size in sorted(sizes, reverse=True):
        first = next((number for number, left in enumerate(free) if left >= size), None)
        if first is None:
            return  # this packing does not succeed: nothing is said
        free[first] -= size
    rows = [row(f"job{number}", memory=size) for number, size in enumerate(sizes)]
    fit = best_fit(site([SIZES] * gpus), rows)
    assert fit.least == fit.most == len(sizes)


def test_equal_shares_are_counted() -> None:
    rows = [row("student", share="0.08", count=50)]
    assert str(best_fit(site([SIZES] * 4), rows)) == "48"
    assert str(best_fit(site([SIZES] * 4), [row("student", share="0.076", count=50)])) == "50"
    assert str(best_fit(site([TENTHS] * 4), rows)) == "40"


@pytest.mark.parametrize("gpus", [4, 16])
def test_a_class_of_three_sizes_on_many_gpus(gpus: int) -> None:
    rows = [
        row("small", memory=2, count=3 * gpus),
        row("middle", memory=5, count=gpus),
        row("large", memory=5, count=gpus),
    ]
    assert str(best_fit(site([SIZES] * gpus), rows)) == str(5 * gpus)


def test_what_is_not_proved_is_a_range() -> None:
    sizes = [7, 6, 5, 5, 5, 4, 4, 4, 3, 3] * 4
    rows = [row(f"job{number}", memory=size) for number, size in enumerate(sizes)]
    fit = best_fit(site([SIZES] * 11), rows, conflicts=1)
    assert fit.least < fit.most
    assert str(fit) == f"{fit.least} to {fit.most}"


def farm(nodes: int, *, cpus: int, memory: int) -> Supply:
    """Return nodes of eight whole GPUs with so many CPUs and MiB of memory."""
    gpu = Gpu("h100", "none", 80 * 1024, whole=True)
    each = [
        Node(f"n{number}", "pool_gpu", (gpu,) * 8, cpus * 1000, memory) for number in range(nodes)
    ]
    return Supply(tuple(each), {}, Policy())


@given(
    counts=st.lists(st.integers(1, 5_000), min_size=1, max_size=8),
    sizes=st.lists(st.integers(1, 8 * 1024 * 1024), min_size=8, max_size=8),
    memory=st.integers(1, 8 * 1024 * 1024),
    nodes=st.integers(1, 20),
)
@settings(max_examples=40, deadline=None)
def test_every_count_and_size_has_an_answer(
    counts: list[int], sizes: list[int], memory: int, nodes: int
) -> None:
    """Up to 40,000 jobs, in sizes of 1 MiB to 8 TiB that have no common unit."""
    supply = farm(nodes, cpus=128, memory=memory)
    rows = [
        Row(f"r{number}", number, Request(cpu=1, memory_host=size), count)
        for number, (count, size) in enumerate(zip(counts, sizes, strict=False))
    ]
    fit = best_fit(supply, rows, conflicts=50)
    assert 0 <= fit.least <= fit.most <= fit.jobs - fit.impossible
