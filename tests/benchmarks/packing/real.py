"""A trace's tasks as pods of a real scheduler: what gets allocated, and how fast."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import requests

from bedplate.components.schedulers.packing_config import NAME
from bedplate.pods.packing.shares import RESOURCE, WHOLE
from tests.benchmarks import spent
from tests.schedulers.api import ApiError
from tests.schedulers.control_plane import ControlPlane
from tests.schedulers.nodes import add_nodes
from tests.schedulers.packing import Packing, packed_node
from tests.schedulers.workloads import IMAGE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.benchmarks.packing.trace import Task, Trace

NAMESPACE = "trace"
BARE = "default-scheduler"
CLIENTS = 3
PATIENCE = 1200
WARM, ROUNDS = 50, 2
ANSWERS = 'bedplate_packing_answers_total{{verb="filter",result="{}"}}'
PATIENT = {"leaseDuration": "300s", "renewDeadline": "240s", "retryPeriod": "2s"}
"""A busy machine answers late, and a scheduler that loses its Lease ends."""


class Ran(NamedTuple):
    """Per cent allocated at 100 % arrivals and at the end, bindings and their pace, and load."""

    at_all: float
    at_end: float
    bound: int
    a_second: float
    decision_ms: float
    load: float


class Watcher:
    """Knows of each pod whether it was bound or refused, and when the last was bound."""

    def __init__(self, plane: ControlPlane) -> None:
        self._api = plane.api
        self.bound: set[str] = set()
        self.refused: set[str] = set()
        self.last = 0.0
        self._changed = threading.Condition()
        self._closed = threading.Event()

    def __enter__(self) -> Self:
        threading.Thread(target=self._follow, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()

    def _follow(self) -> None:
        """List and watch, again whenever a busy API server has cut the watch off."""
        path = self._api.path("pods", "v1", NAMESPACE)
        while not self._closed.is_set():
            try:
                listed = self._api.call("GET", path)
                for pod in listed["items"]:
                    self._saw(pod)
                for event in self._api.watch(path, listed["metadata"]["resourceVersion"]):
                    if event["type"] == "ERROR":
                        break
                    self._saw(event["object"])
            except (ApiError, requests.RequestException, ConnectionError):
                self._closed.wait(0.5)

    def _saw(self, pod: dict[str, Any]) -> None:
        name = pod["metadata"]["name"]
        with self._changed:
            if pod["spec"].get("nodeName"):
                if name not in self.bound:
                    self.bound.add(name)
                    self.last = time.monotonic()
                self.refused.discard(name)
            elif any(c["reason"] == "Unschedulable" for c in _conditions(pod)):
                self.refused.add(name)
            self._changed.notify_all()

    def decided(self, count: int, patience: float = PATIENCE) -> None:
        """Wait until so many pods were bound or refused."""
        with self._changed:
            done = self._changed.wait_for(
                lambda: len(self.bound) + len(self.refused) >= count, patience
            )
        if not done:
            raise RuntimeError(
                f"{len(self.bound)} bound and {len(self.refused)} refused of {count} "
                f"after {patience} s"
            )


def _conditions(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for one in pod["status"].get("conditions") or [] if one.get("reason")]


def nodes(trace: Trace) -> list[dict[str, Any]]:
    """Return the trace's nodes as Node objects whose GPUs the extender counts."""
    return [
        packed_node(
            one.name,
            one.gpus,
            cpu=f"{one.cpu}m",
            memory=f"{one.memory}Mi",
            **{RESOURCE: str(WHOLE * one.gpus)},
        )
        for one in trace.nodes
    ]


def pod(name: str, task: Task, scheduler: str) -> dict[str, Any]:
    """Return a task as a pod."""
    asked = {"cpu": f"{task.request.cpu}m", "memory": f"{task.memory}Mi"}
    if task.milli:
        asked[RESOURCE] = str(task.milli)
    resources = {"requests": asked, "limits": asked}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "schedulerName": scheduler,
            "containers": [{"name": "main", "image": IMAGE, "resources": resources}],
            "restartPolicy": "Never",
        },
    }


def _create(plane: ControlPlane, pods: Iterable[dict[str, Any]]) -> None:
    with ThreadPoolExecutor(CLIENTS) as pool:
        for _ in pool.map(plane.api.create, pods):
            pass


def _placed(watcher: Watcher, tasks: dict[str, Task]) -> int:
    return sum(tasks[name].milli for name in watcher.bound)


def packed(trace: Trace, seed: int, *, whole: bool = True) -> Ran:
    """Run a seed's arrivals through the packing scheduler, to 100 % and then to the end."""
    arrivals = trace.arrivals(seed)
    tasks = {f"task-{at:05}": task for at, task in enumerate(arrivals)}
    names = list(tasks)
    asked = 0
    until = next(
        at for at, task in enumerate(arrivals, 1) if (asked := asked + task.milli) >= trace.capacity
    )
    with tempfile.TemporaryDirectory() as folder, ControlPlane(Path(folder)) as plane:
        one = Packing(plane, "trace", lease=PATIENT)
        one.start()
        one.leads()
        add_nodes(plane.api, nodes(trace))
        plane.namespace(NAMESPACE)
        with Watcher(plane) as watcher:
            started = time.monotonic()
            _create(plane, (pod(name, tasks[name], NAME) for name in names[:until]))
            watcher.decided(until)
            at_all = _placed(watcher, tasks)
            pace = len(watcher.bound) / (watcher.last - started)
            filters = one.metric(ANSWERS.format("placed"))
            seconds = one.metric('bedplate_packing_seconds_total{verb="filter"}')
            if whole:
                _create(plane, (pod(name, tasks[name], NAME) for name in names[until:]))
                watcher.decided(len(names))
            return Ran(
                100 * at_all / trace.capacity,
                100 * _placed(watcher, tasks) / trace.capacity,
                len(watcher.bound),
                pace,
                1000 * seconds / max(1.0, filters),
                os.getloadavg()[0],
            )


class Pace(NamedTuple):
    """Bindings a second by one scheduler, and milliseconds of CPU of one binding, by program."""

    a_second: float
    cpu: dict[str, float]

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {value:.2f}" for name, value in self.cpu.items())
        return f"{self.a_second:.1f} a second, {sum(self.cpu.values()):.2f} ms of CPU each: {parts}"


class Paces(NamedTuple):
    """The bare scheduler and the packing one, in turns on one control plane."""

    bare: list[Pace]
    packed: list[Pace]
    asked: float
    """Questions to the extender's filter for one binding."""
    load: float

    def __str__(self) -> str:
        rounds = [
            *(f"bare scheduler: {one}" for one in self.bare),
            *(f"with the extender: {one}" for one in self.packed),
        ]
        ratio = median(one.a_second for one in self.packed) / median(
            one.a_second for one in self.bare
        )
        found = f"ratio {ratio:.2f}, {self.asked:.2f} questions a binding, load {self.load:.1f}"
        return "\n".join([*rounds, found])


def pace(trace: Trace, seed: int, count: int) -> Paces:
    """Bind the same pods by the bare scheduler and by the packing one."""
    tasks = [task for task in trace.arrivals(seed) if task.milli][:count]
    found: dict[str, list[Pace]] = {BARE: [], NAME: []}
    with tempfile.TemporaryDirectory() as folder, ControlPlane(Path(folder)) as plane:
        one = Packing(plane, "pace", lease=PATIENT)
        one.start()
        one.leads()
        add_nodes(plane.api, nodes(trace))
        plane.namespace(NAMESPACE)
        for scheduler in found:
            _pace(plane, scheduler, tasks[:WARM])  # is not counted
        asked = _asked(one)
        for _ in range(ROUNDS):
            for scheduler, paces in found.items():
                paces.append(_pace(plane, scheduler, tasks))
        asked = (_asked(one) - asked) / (ROUNDS * count)
        return Paces(found[BARE], found[NAME], asked, os.getloadavg()[0])


def _asked(one: Packing) -> float:
    return sum(one.metric(ANSWERS.format(result)) for result in ("placed", "full", "refused"))


def _pace(plane: ControlPlane, scheduler: str, tasks: Sequence[Task]) -> Pace:
    with Watcher(plane) as watcher:
        before, started = spent.so_far(plane), time.monotonic()
        _create(plane, (pod(f"p{at}", task, scheduler) for at, task in enumerate(tasks)))
        watcher.decided(len(tasks))
        found = len(watcher.bound) / (watcher.last - started)
        cpu = spent.since(plane, before, len(tasks))
    plane.clear(NAMESPACE)
    return Pace(found, cpu)
