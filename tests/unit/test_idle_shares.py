"""What is idle is warned of, and ends: what is changed in the cluster, and what its owner reads."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from bedplate.accounting import ending
from bedplate.accounting.measured import Measured
from bedplate.accounting.records import Amount, Record
from bedplate.hub import shares
from bedplate.hub.idle import ENDED, ENDS, WARNED, changed
from bedplate.packing.api import ApiError

NOW = datetime(2026, 11, 30, 10, tzinfo=UTC)
HALF_AN_HOUR = 1800


def ago(minutes: float) -> str:
    """Return a time as an annotation has it."""
    return (NOW - timedelta(minutes=minutes)).isoformat()


@pytest.mark.parametrize(
    ("notes", "still", "todo", "expected"),
    [
        ({}, 60, "", {}),
        ({}, None, "", {}),
        ({}, 1500, "warn", {WARNED: NOW.isoformat(), ENDS: "2026-11-30T10:05:00Z"}),
        # Whoever comes late warns for the whole time of a warning.
        ({}, 9000, "warn", {WARNED: NOW.isoformat(), ENDS: "2026-11-30T10:05:00Z"}),
        ({WARNED: ago(1), ENDS: "x"}, 1560, "", {}),
        ({WARNED: ago(6), ENDS: "x"}, 1860, "stop", {ENDED: "it was idle for 30 minutes"}),
        # It is used again, or nobody can say any more whether it is.
        ({WARNED: ago(6), ENDS: "x"}, 3, "", {WARNED: None, ENDS: None}),
        ({WARNED: ago(6), ENDS: "x"}, None, "", {WARNED: None, ENDS: None}),
        # What somebody wrote there is no warning.
        ({WARNED: "soon"}, 1860, "warn", {WARNED: NOW.isoformat(), ENDS: "2026-11-30T10:05:00Z"}),
        ({WARNED: "2026-11-30T09:00:00"}, 1860, "warn", ...),
        ({WARNED: ago(-600)}, 1860, "warn", ...),
    ],
)
def test_what_is_done_with_what_may_be_idle(
    notes: dict[str, str], still: float | None, todo: str, expected: Any
) -> None:
    found = changed(notes, still, HALF_AN_HOUR, NOW)
    assert found[0] == todo
    assert expected in (..., found[1])


def job(name: str, notes: dict[str, str] | None = None, **status: Any) -> dict[str, Any]:
    """Return the Job of a share that runs."""
    meta = {"name": name, "uid": name, "annotations": {shares.ASKED: "0.1", **(notes or {})}}
    begun = {"startTime": "2026-11-30T09:00:00Z", "ready": 1}
    return {"metadata": meta, "spec": {"activeDeadlineSeconds": 7200}, "status": begun | status}


class Cluster:
    """A list of Jobs, and what is changed of them."""

    def __init__(self, *jobs: dict[str, Any]) -> None:
        self.jobs, self.changes = list(jobs), dict[str, Any]()

    def call(self, method: str, path: str, body: Any = None, kind: str = "json") -> Any:
        """Answer for the namespace `intro`; another cannot be read."""
        if "/namespaces/intro/" not in path:
            raise ApiError(403, "forbidden")
        if method == "GET":
            assert path.endswith(f"/jobs?labelSelector={shares.LABEL}")
            return {"items": self.jobs}
        assert (method, kind) == ("PATCH", "merge-patch+json")
        self.changes[path.rpartition("/")[2]] = body
        return {}


def record(name: str, namespace: str = "intro", end: int | None = None) -> Record:
    """Return the record of a share."""
    amounts = (Amount("pool", "nvidia.com/gpu", 1, 0.1),)
    return Record(name, 0, end, "", namespace, "intro", f"Job/{name}", "ann", amounts)


def test_idle_shares_are_warned_of_and_those_that_were_end() -> None:
    warned = {WARNED: ago(6), ENDS: "2026-11-30T09:59:00Z"}
    failed = [{"type": "Failed", "status": "True"}]
    cluster = Cluster(
        job("works"),
        job("sleeps"),
        job("slept", warned),
        job("woke", warned),
        job("over", conditions=failed),
        job("waits"),
    )
    still = {"works": 2.0, "sleeps": 1600.0, "slept": 1900.0, "woke": 2.0, "over": 9000.0}
    going = [*(record(name) for name in still), record("other", "vision"), record("far", "audio")]
    found = {one.uid: Measured(30, 30, still=still.get(one.uid, 9000)) for one in going}
    limits = {name: {ending.SHARES: float(HALF_AN_HOUR)} for name in ("intro", "audio")}
    ending.look(cast("Any", cluster), limits, going, found, NOW.timestamp())
    assert set(cluster.changes) == {"sleeps", "slept", "woke"}
    assert set(cluster.changes["sleeps"]["metadata"]["annotations"]) == {WARNED, ENDS}
    assert cluster.changes["slept"]["spec"] == {"activeDeadlineSeconds": 1}
    assert cluster.changes["woke"]["metadata"]["annotations"] == {WARNED: None, ENDS: None}


class Listed:
    """The lists that a listing of shares reads."""

    def __init__(self, *jobs: dict[str, Any]) -> None:
        self.jobs = [
            {**one, "metadata": {**one["metadata"], "creationTimestamp": "2026"}} for one in jobs
        ]

    def __call__(self, _method: str, path: str, _body: Any) -> dict[str, Any]:
        return {"items": self.jobs if "/jobs" in path else []}


def test_who_has_a_share_reads_that_it_ends_and_why_it_ended() -> None:
    late = [{"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}]
    ended = job("slept", {ENDED: "it was idle for 30 minutes"}, conditions=late)
    sleeps = job("sleeps", {ENDS: "2026-11-30T10:05:00Z"})
    first, second = map(str, shares.shares(Listed(sleeps, ended), "intro"))
    warning = "idle, and ends at 2026-11-30T10:05:00Z unless it is used"
    assert first == f"sleeps: running, until 2026-11-30T11:00:00Z, {warning}"
    assert second == "slept: ended, it was idle for 30 minutes"
