"""The public trace cluster-trace-gpu-v2023 (github.com/alibaba/clusterdata), read from a folder."""

from __future__ import annotations

import csv
import os
import random
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bedplate.pods.packing.node import Node
from bedplate.pods.packing.shares import WHOLE, Request

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIABLE = "BEDPLATE_TRACE"
SEEDS = range(42, 52)
OVER = 1.3
"""Tasks are repeated until they ask for this many times the cluster's GPUs."""


@dataclass(frozen=True, slots=True)
class Task:
    """One task: what it asks for, and MiB of memory."""

    request: Request
    memory: int

    @property
    def milli(self) -> int:
        """Thousandths of a GPU in all."""
        return self.request.gpus * self.request.milli


@dataclass(frozen=True)
class Trace:
    """Nodes with GPUs, and the tasks that came."""

    nodes: tuple[Node, ...]
    tasks: tuple[Task, ...]

    @property
    def capacity(self) -> int:
        """Thousandths of a GPU in all."""
        return WHOLE * sum(node.gpus for node in self.nodes)

    def fresh(self) -> list[Node]:
        """Return the nodes, with nothing taken."""
        return [Node(node.name, node.gpus, node.cpu, node.memory) for node in self.nodes]

    def part(self, every: int) -> Trace:
        """Return the trace with every n-th node of its order, and all tasks."""
        return Trace(self.nodes[::every], self.tasks)

    def arrivals(self, seed: int) -> list[Task]:
        """Return tasks in the order of their arrival, until they ask for OVER times the GPUs.

        Each task of the trace once and random repeats, shuffled; of a cluster that is smaller than
        the trace's, a random part of the tasks.
        """
        chance = random.Random(seed)  # noqa: S311 - an order, no secret
        wanted = OVER * self.capacity
        tasks: list[Task] = []
        asked = 0
        for task in self._drawn(chance):
            if asked >= wanted:
                break
            tasks.append(task)
            asked += task.milli
        chance.shuffle(tasks)
        return tasks

    def _drawn(self, chance: random.Random) -> Iterator[Task]:
        yield from chance.sample(self.tasks, len(self.tasks))
        while True:
            yield chance.choice(self.tasks)


def folder() -> Path:
    """Return the folder that the environment points at, or stop with what to do."""
    place = os.environ.get(VARIABLE)
    if not place:
        raise SystemExit(
            f"no trace — environment — got no {VARIABLE} / allowed the folder of "
            "cluster-trace-gpu-v2023 — get it from github.com/alibaba/clusterdata and set "
            f"{VARIABLE}=FOLDER"
        )
    return Path(place)


def read(place: Path) -> Trace:
    """Return the trace: nodes with GPUs, and the tasks of its default list."""
    with (place / "openb_node_list_gpu_node.csv").open() as text:
        nodes = tuple(
            Node(row["sn"], int(row["gpu"]), int(row["cpu_milli"]), int(row["memory_mib"]))
            for row in csv.DictReader(text)
        )
    with (place / "openb_pod_list_default.csv").open() as text:
        tasks = tuple(
            Task(
                Request(int(row["cpu_milli"]), int(row["num_gpu"]), int(row["gpu_milli"])),
                int(row["memory_mib"]),
            )
            for row in csv.DictReader(text)
        )
    return Trace(nodes, tasks)
