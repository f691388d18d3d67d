"""What the service for classes does with notebooks without a GPU: no queue holds or stops them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.pods.hub import classes, idle
from bedplate.pods.hub.classes import Classes
from bedplate.pods.hub.courses import Course, Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

#: A Monday.
LESSON, NOW = ["Mon 10:00-12:00"], datetime(2026, 11, 30, 11, 0, tzinfo=UTC)
LONG_AGO = "2026-11-30T08:00:00+00:00"


class Cluster:
    """The few answers that one step asks for, and what it changes."""

    def __init__(self) -> None:
        self.deleted: list[str] = []
        self.jobs: list[dict[str, Any]] = []
        self.notes: dict[str, Any] = {}
        self.before: dict[str, str] = {}

    async def get(self, path: str) -> Any:
        if "clusterqueues" in path:
            return {"spec": {}}
        if path == classes.READERS:
            return {"items": [{"spec": {"nodeName": "n1"}, "status": {"podIP": "192.0.2.1"}}]}
        notes = {classes.USER: "bob", classes.SERVER: "", **self.before}
        meta = {"name": "jupyter-bob", "uid": "1", "annotations": notes}
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": LONG_AGO}
        status = {"phase": "Running", "conditions": [ready]}
        pod = {"metadata": meta, "spec": {"nodeName": "n1"}, "status": status}
        if "/jobs" in path:
            return {"items": self.jobs}
        return {"items": [pod] if path.endswith("singleuser-server") else []}

    async def post(self, path: str, body: dict[str, Any]) -> Any:
        raise AssertionError(path, body)

    async def patch(self, path: str, body: dict[str, Any]) -> Any:
        assert path
        self.notes |= body.get("metadata", {}).get("annotations", {})

    async def delete(self, path: str) -> Any:
        self.deleted.append(path.rpartition("/")[2])


class Hub:
    """A hub with one server, whose kernel runs a cell or has done nothing for hours."""

    def __init__(self, state: str, program: float | None = None) -> None:
        self.state, self.program, self.asked = state, program, list[str]()
        self.stopped: list[str] = []

    async def servers(self) -> Mapping[tuple[str, str], Mapping[str, Any]]:
        return {("bob", ""): {"ready": True}}

    async def users(self) -> Mapping[str, frozenset[str]]:
        return {}

    async def start(self, user: str, server: str, profile: str) -> None:
        raise AssertionError(user, server, profile)

    async def stop(self, user: str, server: str) -> None:
        self.stopped.append(user + server)

    async def activity(self, pod: Mapping[str, Any]) -> idle.State | None:
        assert pod["metadata"]["name"] == "jupyter-bob"
        kernel = {"id": "1", "execution_state": self.state, "last_activity": LONG_AGO}
        return idle.state_of([kernel], [])

    async def use(self, address: str) -> dict[str, Any]:
        assert address == "http://192.0.2.1:8083"
        pods = {"1": {"gpu": None, "program": self.program}}
        return {"watched": 7200.0, "gpu": True, "why": "", "pods": pods}

    async def notify(self, pod: Mapping[str, Any], text: str) -> None:
        assert pod
        self.asked.append(text)


def step(
    now: datetime,
    state: str = "idle",
    program: float | None = None,
    jobs: list[dict[str, Any]] | None = None,
    notes: dict[str, str] | None = None,
    **more: Any,
) -> tuple[Cluster, Hub]:
    """Do one step with a course that has a lesson."""
    cluster, hub = Cluster(), Hub(state, program)
    cluster.jobs, cluster.before = jobs or [], notes or {}
    course = Course("lab", "UTC", [], {"gpu": "1"}, hours=LESSON, **more)
    known = Settings({"lab": course}, "native", {}, [], {})
    asyncio.run(Classes(cluster, hub, known).step(now))
    return cluster, hub


def test_the_lessons_end_stops_notebooks_that_no_queue_knows() -> None:
    """Kueue stops those with a GPU."""
    after = NOW.replace(hour=13)
    assert step(after, runs=10)[0].deleted == ["jupyter-bob"]
    assert step(after)[0].deleted == []
    assert step(NOW, runs=10)[0].deleted == []


@pytest.mark.parametrize(
    ("state", "program", "warned"),
    [("busy", None, False), ("idle", None, True), ("idle", 3.0, False)],
)
def test_a_notebook_without_a_gpu_is_idle_without_cells_and_programs(
    state: str, program: float | None, *, warned: bool
) -> None:
    """A cell that waits for its run keeps it, and so does a program in a terminal."""
    cluster, hub = step(NOW, state, program, runs=10)
    assert (idle.WARNED in cluster.notes) is warned
    assert any("no cell and no program runs" in text for text in hub.asked) is warned
    assert "share" not in idle.ended(1800, share=False)


@pytest.mark.parametrize(
    ("program", "warned", "stopped"),
    [(None, "10:50", ["bob"]), (None, "10:58", []), (3.0, "10:50", []), (None, "08:00", [])],
)
def test_who_was_warned_is_stopped_after_the_time_of_a_warning(
    program: float | None, warned: str, stopped: list[str]
) -> None:
    """Not who works again, nor by a warning from before the reader saw anything."""
    notes = {idle.WARNED: f"2026-11-30T{warned}:00+00:00", idle.ENDS: "2026-11-30T10:55:00Z"}
    cluster, hub = step(NOW, "idle", program, notes=notes, runs=10)
    assert hub.stopped == stopped
    assert cluster.notes.get(idle.ENDED) == (idle.ended(1800, share=False) if stopped else None)
    assert bool(hub.asked) is (program is None and not stopped)


@pytest.mark.parametrize(
    ("student", "end", "said"),
    [
        ("bob", "2026-11-30T11:05:00Z", ["share-1 is idle and ends at 11:05."]),
        ("ann", "2026-11-30T11:05:00Z", []),
        ("bob", "soon", []),
    ],
)
def test_a_notebook_says_that_a_share_of_its_student_is_idle(
    student: str, end: str, said: list[str]
) -> None:
    notes = {classes.USER: student, idle.ENDS: end}
    job = {"metadata": {"name": "share-1", "annotations": notes}, "status": {}}
    assert step(NOW, "busy", jobs=[job], runs=10)[1].asked == said
