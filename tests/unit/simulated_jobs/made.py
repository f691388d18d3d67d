"""Sites and jobs that are made for a test, and what every simulation of them must keep to."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING

from bedplate.planning.simulation.jobs import Request, Row
from bedplate.planning.simulation.supply import Gpu, Node, Part, Policy, Supply, Team, equal_parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bedplate.planning.simulation.rooms import Place
    from bedplate.planning.simulation.run import Outcome

GIB = 1024
WHOLE = Gpu("t4", "none", 16 * GIB, whole=True)
TENTHS = Gpu("t4", "time-slicing", 16 * GIB, parts=(equal_parts(10, 16 * GIB),))
HALVES = Gpu("t4", "mps", 16 * GIB, parts=(equal_parts(2, 16 * GIB),))
MIXED = Gpu(
    "h100",
    "mig",
    80 * GIB,
    parts=(
        Part("1g.10gb", 4, Fraction(1, 7), 10 * GIB),
        Part("3g.40gb", 1, Fraction(1, 2), 40 * GIB),
    ),
)
SIZES = Gpu("t4", "dra", 16 * GIB, sizes=True)
THREE = Gpu("t4", "hami", 16 * GIB, sizes=True, most=3)


def site(
    *pools: Sequence[Gpu], policy: Policy | None = None, teams: dict[str, Team] | None = None
) -> Supply:
    """Return a site with one node for each list of GPUs, pools by the first GPU's mode."""
    nodes = [
        Node(f"node{number}", f"pool_{gpus[0].mode}", tuple(gpus))
        for number, gpus in enumerate(pools, 1)
    ]
    return Supply(tuple(nodes), teams or {}, policy or Policy(place="binpack"))


def row(
    name: str,
    *,
    gpus: int = 0,
    share: str = "",
    memory: int = 0,
    count: int = 1,
    team: str = "",
    duration: int | None = 100,
    arrival: int = 0,
    priority: int | None = None,
    pool: str = "",
    cpu: int = 0,
) -> Row:
    """Return a row of the file; `memory` is GiB, `cpu` whole CPUs."""
    request = Request(
        gpus=gpus,
        share=Fraction(share) if share else Fraction(0),
        memory=memory * GIB,
        cpu=cpu * 1000,
        pool=pool,
    )
    return Row(name, abs(hash(name)) % 10**9, request, count, team, duration, arrival, priority)


def overfull(supply: Supply, outcome: Outcome) -> list[str]:
    """Return every GPU and node that has more than it holds at some second, by sums of its own."""
    runs: list[tuple[int, int, Place, Request]] = []
    for job in outcome.jobs:
        request = job.row.request
        runs += [(start, end, place, request) for place, start, end in job.past]
        if job.place is not None and job.started is not None:
            end = job.ended if job.ended is not None else outcome.end + 1
            runs.append((job.started, end, job.place, request))
    found = []
    nodes = {node.name: node for node in supply.nodes}
    for second in sorted({start for start, _, _, _ in runs}):
        now = [(place, request) for start, end, place, request in runs if start <= second < end]
        whole: Counter[tuple[str, int]] = Counter()
        part: Counter[tuple[str, int, int]] = Counter()
        memory: Counter[tuple[str, int]] = Counter()
        jobs: Counter[tuple[str, int]] = Counter()
        cpu: Counter[str] = Counter()
        for place, request in now:
            cpu[place.node] += request.cpu
            for index in place.gpus:
                at = (place.node, index)
                jobs[at] += 1
                if place.use.gpus:
                    whole[at] += 1
                elif place.part is not None:
                    part[*at, place.part] += 1
                else:
                    memory[at] += place.use.memory
        for name, node in nodes.items():
            if node.cpu is not None and cpu[name] > node.cpu:
                found.append(f"{name} at {second}: {cpu[name]} of {node.cpu} CPUs")
            for index, gpu in enumerate(node.gpus):
                at = (name, index)
                if whole[at] and jobs[at] > 1:
                    found.append(f"{at} at {second}: a whole GPU is not alone")
                if memory[at] > gpu.memory:
                    found.append(f"{at} at {second}: {memory[at]} of {gpu.memory} MiB")
                if gpu.most is not None and not whole[at] and jobs[at] > gpu.most:
                    found.append(f"{at} at {second}: {jobs[at]} of {gpu.most} jobs")
                found += [
                    f"{at} at {second}: {part[*at, number]} of {one.count} {one.name}"
                    for number, one in enumerate(gpu.parts)
                    if part[*at, number] > one.count
                ]
    return found
