"""What queues cost: jobs admitted by Kueue and bound, against the bare scheduler, taking turns.

One control plane of processes with 63 nodes of eight GPUs, room for all. The same jobs of one pod
are created in the namespace of one team, of four teams in turn, where Kueue admits them and chooses
their nodes, and in one that is no team's. The clock runs from the first job to the last binding;
nothing is ever started. On a machine whose processors are all in use the pace is that of the CPU a
job takes, which is counted too, by program.
`python -m tests.benchmarks.queueing` prints the figures. With `--own` controllers and scheduler
have their own limits of requests, as in a cluster that the stack sets up; `--jobs 300` is far more
than their burst. `--controllers 40` is the same with another limit of each controller. `--pods 8`
makes each job a gang of eight pods: a queue's work is done once for a job, a scheduler's for a pod.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from datetime import UTC, datetime
from statistics import median
from typing import NamedTuple

from tests.benchmarks import spent
from tests.schedulers.api import eventually
from tests.schedulers.control_plane import FAST, OWN, Limits
from tests.schedulers.kueue import RunningKueue, holds, kueue_of
from tests.schedulers.locks import lock_of
from tests.schedulers.workloads import job

JOBS, NODES, GPUS, ROUNDS = 60, 63, 8, 3
TEAMS = ("one", "two", "three", "four")
WAYS = {"bare scheduler": ("bare",), "Kueue, one team": TEAMS[:1], "Kueue, four teams": TEAMS}
BARE, ONE, FOUR = WAYS
GOAL = 0.95


class Round(NamedTuple):
    """Jobs that were bound a second, and milliseconds of CPU a job by program."""

    pace: float
    cpu: dict[str, float]


def once(
    kueue: RunningKueue,
    namespaces: tuple[str, ...],
    jobs: int,
    pause: float = 0.2,
    pods: int = 1,
) -> Round:
    """Create jobs of so many pods in these namespaces in turn, and wait until all are bound."""
    api = kueue.api

    def bound() -> bool:
        found = [pod for name in namespaces for pod in api.get("pods", "v1", name)]
        return len(found) == jobs * pods and all(one["spec"].get("nodeName") for one in found)

    before, started = spent.so_far(kueue.plane), time.monotonic()
    api.create_all(
        job(f"job-{number:04}", namespaces[number % len(namespaces)], pods=pods)
        for number in range(jobs)
    )
    eventually(bound, 600, pause)
    took = time.monotonic() - started
    cpu = spent.since(kueue.plane, before, jobs)
    admitted = kueue.workloads(*namespaces)
    assert sum(holds(one, "Admitted") for one in admitted) == (jobs if admitted else 0)
    assert bool(admitted) == (namespaces != WAYS[BARE])
    kueue.clear(*namespaces)
    return Round(jobs / took, cpu)


def measure(
    jobs: int = JOBS,
    count: int = ROUNDS,
    limits: Limits = FAST,
    ways: tuple[str, ...] = tuple(WAYS),
    pods: int = 1,
) -> tuple[dict[str, float], dict[str, float]]:
    """Return jobs a second of each way, their ratio, and the CPU that a job takes."""
    teams = {name: {"gpus": {"pool_a": (GPUS * NODES // len(TEAMS), None)}} for name in TEAMS}
    lock = lock_of({"pool_a": [{}] * NODES}, teams, gpus=GPUS)
    found: dict[str, list[Round]] = {way: [] for way in ways}
    # Looking is work of the API server too; where jobs take a minute, once a second is enough.
    pause = 0.2 if limits is FAST else 1.0
    with kueue_of(lock, limits=limits) as kueue:
        kueue.plane.namespace(*WAYS[BARE])
        for way in ways:
            once(kueue, WAYS[way], 20)  # warms caches up, and is not counted
        for _ in range(count):
            for way, rounds in found.items():
                rounds.append(once(kueue, WAYS[way], jobs, pause, pods))
                load, last = os.getloadavg()[0], rounds[-1]
                spent_on = sum(last.cpu.values())
                print(f"{way}: {last.pace:.2f} a second, {spent_on:.0f} ms of CPU, load {load:.1f}")
    paces = {way: median(one.pace for one in rounds) for way, rounds in found.items()}
    cpu = {
        way: {name: median(one.cpu[name] for one in rounds) for name in rounds[0].cpu}
        for way, rounds in found.items()
    }
    whole = {way: median(sum(one.cpu.values()) for one in rounds) for way, rounds in found.items()}
    ratios = {
        **{f"jobs bound a second, {way}": pace for way, pace in paces.items()},
        f"Kueue, one team / bare scheduler (goal {GOAL})": paces[ONE] / paces[BARE],
        **{f"CPU ms a job, {way}": value for way, value in whole.items()},
        f"CPU of {BARE} / Kueue, one team": whole[BARE] / whole[ONE],
        **{
            f"CPU ms a job, {way}: {name}": value
            for way in (BARE, ONE)
            for name, value in cpu[way].items()
        },
        "load of the machine": os.getloadavg()[0],
    }
    return {}, ratios


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.queueing")
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--pods", type=int, default=1, help="of each job")
    parser.add_argument("--own", action="store_true", help="the programs' own limits; one team")
    parser.add_argument("--controllers", type=int, help="the same, with requests a second")
    given = parser.parse_args()
    limits, ways = FAST, tuple(WAYS)
    if given.own or given.controllers:
        limits, ways = OWN, (BARE, ONE)
    if given.controllers:
        burst = given.controllers * 3 // 2  # as their own are, 20 and 30
        flags = (f"--kube-api-qps={given.controllers}", f"--kube-api-burst={burst}")
        limits = OWN._replace(controllers=flags)
    if given.jobs * given.pods > NODES * GPUS:
        parser.error(f"{given.jobs} jobs of {given.pods} pods: {NODES * GPUS} have a GPU")
    _, ratios = measure(given.jobs, given.rounds, limits, ways, given.pods)
    print(f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores")
    for label, value in ratios.items():
        print(f"{label:60} {value:10.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
