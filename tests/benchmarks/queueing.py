"""What queues cost: jobs admitted by Kueue and bound, against the bare scheduler, taking turns.

One control plane of processes with 63 nodes of eight GPUs, room for all. The same jobs of one pod
are created in a team's namespace, where Kueue admits them and chooses their nodes, and in one that
is no team's. The clock runs from the first job to the last binding; nothing is ever started.
`python -m tests.benchmarks.queueing [JOBS]` prints the figures alone.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from tests.schedulers.api import eventually
from tests.schedulers.control_plane import ControlPlane
from tests.schedulers.kueue import RunningKueue, holds
from tests.schedulers.locks import lock_of, nodes_of
from tests.schedulers.nodes import add_nodes
from tests.schedulers.workloads import job

JOBS, NODES, ROUNDS = 300, 63, 3
TEAM, BARE = "queued", "bare"
GOAL = 0.95


def once(kueue: RunningKueue, namespace: str, jobs: int) -> float:
    """Return how many jobs were bound a second."""
    api = kueue.api

    def bound() -> bool:
        pods = api.get("pods", "v1", namespace)
        return len(pods) == jobs and all(one["spec"].get("nodeName") for one in pods)

    started = time.monotonic()
    api.create_all(job(f"job-{number:04}", namespace) for number in range(jobs))
    eventually(bound, 600, pause=0.2)
    took = time.monotonic() - started
    if namespace == TEAM:
        admitted = kueue.workloads(TEAM)
        assert sum(holds(one, "Admitted") for one in admitted) == jobs
    kueue.clear(namespace)
    return jobs / took


def measure(jobs: int = JOBS) -> tuple[dict[str, float], dict[str, float]]:
    """Return jobs a second of either way, and their ratio."""
    teams = {TEAM: {"gpus": {"pool_a": (8 * NODES, 0)}}}
    lock = lock_of({"pool_a": [{}] * NODES}, teams)
    found: dict[str, list[float]] = {BARE: [], TEAM: []}
    with (
        tempfile.TemporaryDirectory(prefix="bedplate-queueing-") as folder,
        ControlPlane(Path(folder)) as plane,
    ):
        kueue = RunningKueue(plane, lock)
        add_nodes(plane.api, nodes_of(lock))
        kueue.configure(lock)
        plane.namespace(BARE)
        for namespace in found:
            once(kueue, namespace, 20)  # warms caches up, and is not counted
        for _ in range(ROUNDS):
            for namespace, paces in found.items():
                paces.append(once(kueue, namespace, jobs))
    bare, queued = median(found[BARE]), median(found[TEAM])
    ratios = {
        "jobs bound a second, bare scheduler": bare,
        "jobs admitted and bound a second, Kueue": queued,
        f"Kueue / bare scheduler (goal {GOAL})": queued / bare,
        "load of the machine": os.getloadavg()[0],
    }
    return {}, ratios


def main() -> int:
    """Measure and print."""
    _, ratios = measure(*map(int, sys.argv[1:]))
    print(f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores")
    for label, value in ratios.items():
        print(f"{label:52} {value:10.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
