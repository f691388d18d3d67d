"""`python -m tests.benchmarks.packing`: the table of policies, and runs of the real scheduler.

    BEDPLATE_TRACE=FOLDER python -m tests.benchmarks.packing simulate [SEED…]
    BEDPLATE_TRACE=FOLDER python -m tests.benchmarks.packing real PART [SEED…]
    BEDPLATE_TRACE=FOLDER python -m tests.benchmarks.packing pace PODS

PART 4 takes every fourth node. Without seeds: 42 to 51.
"""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from statistics import mean
from typing import TYPE_CHECKING

from bedplate.pods.packing.policy import STEP, Gradient
from tests.benchmarks.packing import policies, real, simulation
from tests.benchmarks.packing.trace import SEEDS, Trace, folder, read

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.benchmarks.packing.simulation import Allocated

NAMED = "name"
RANDOM = "random"
FEWEST = "fewest GPUs, then name"


def _by_name(node: object) -> tuple[str, ...]:
    return (str(node.name),)  # type: ignore[attr-defined]


def _scored(name: str, seed: int, trace: Trace) -> Allocated:
    cpu = max(node.cpu for node in trace.nodes)
    gpus = max(node.gpus for node in trace.nodes)
    scores = {
        "best-fit": (policies.best_fit(cpu, gpus), False),
        "dot-product": (policies.dot_product(cpu, gpus), False),
        "first-fit": (policies.equal, False),
        "binpack": (policies.most_allocated, True),
        "spread": (policies.least_allocated, True),
    }
    score, ties = scores[name]
    policy = policies.Scored(score)
    return simulation.run(trace, seed, policy, random_ties=ties, order=_by_name)


def _random(_name: str, seed: int, trace: Trace) -> Allocated:
    return simulation.run(trace, seed, policies.Random(seed), random_ties=True)


def _gradient(name: str, seed: int, trace: Trace) -> Allocated:
    mix = simulation.mix_of(trace.tasks)
    if name == "extender, mix learned":
        return simulation.run(trace, seed, Gradient(mix), learn=Gradient)
    if name == "extender":
        return simulation.run(trace, seed, Gradient(mix))
    return simulation.run(
        trace,
        seed,
        Gradient(mix, 40),
        order=_by_name,
        random_ties=name == "gradient, random ties",
    )


ROWS: dict[str, tuple[str, str, Callable[[str, int, Trace], Allocated]]] = {
    "random": ("any node, any GPU with room", RANDOM, _random),
    "spread": ("presets with `pods: spread`: the node with most GPUs free", RANDOM, _scored),
    "binpack": ("presets with `pods: binpack`: the node with fewest GPUs free", RANDOM, _scored),
    "dot-product": ("least product of free and asked, CPU and GPU", NAMED, _scored),
    "best-fit": ("least left, CPU and GPU", NAMED, _scored),
    "first-fit": ("the first node that has room", NAMED, _scored),
    "gradient, random ties": ("fragmentation gradient, steps of 40", RANDOM, _gradient),
    "gradient": ("fragmentation gradient, steps of 40", NAMED, _gradient),
    "extender, mix learned": (
        f"gradient, steps of {STEP}, typical tasks are those that came so far",
        FEWEST,
        _gradient,
    ),
    "extender": (f"gradient, steps of {STEP}, typical tasks known", FEWEST, _gradient),
}


def one(name: str, seed: int) -> Allocated:
    """Run one policy on one seed."""
    return ROWS[name][2](name, seed, read(folder()))


def simulate(seeds: Sequence[int], names: Sequence[str] = tuple(ROWS)) -> dict[str, float]:
    """Run the policies, print the table and return the means at 100 % arrivals."""
    found: dict[str, list[Allocated]] = {name: [] for name in names}
    with ProcessPoolExecutor(2) as pool:
        runs = {pool.submit(one, name, seed): name for name in names for seed in seeds}
        for run in as_completed(runs):
            found[runs[run]].append(run.result())
            print(".", end="", file=sys.stderr, flush=True)
    print("\n| policy | node and GPU | ties | at 100 % arrivals | least, most | at 130 % |")
    print("|---|---|---|---|---|---|")
    for name, got in found.items():
        at_all = [each.at_all for each in got]
        what, ties, _ = ROWS[name]
        print(
            f"| {name} | {what} | {ties} | {mean(at_all):.2f} "
            f"| {min(at_all):.2f}, {max(at_all):.2f} | {mean(e.at_end for e in got):.2f} |"
        )
    return {name: mean(each.at_all for each in got) for name, got in found.items()}


def main(arguments: list[str]) -> int:
    """Run what was asked for."""
    match arguments:
        case ["simulate", *seeds]:
            simulate([int(seed) for seed in seeds] or SEEDS)
        case ["real", part, *seeds]:
            trace = read(folder()).part(int(part))
            for seed in [int(seed) for seed in seeds] or SEEDS:
                print(seed, real.packed(trace, seed), flush=True)
        case ["pace", pods]:
            print(real.pace(read(folder()), SEEDS[0], int(pods)))
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
