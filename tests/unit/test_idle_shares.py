"""What is idle is warned of, and ends: what is changed in the cluster, and what its owner reads."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from bedplate.accounting import ending
from bedplate.accounting.measured import Measured
from bedplate.accounting.records import Amount, Record
from bedplate.pods.api import ApiError
from bedplate.pods.hub import shares
from bedplate.pods.hub.idle import ENDED, ENDS, WARNED, changed
from bedplate.pods.remote.claims import Claim

NOW = datetime(2026, 11, 30, 10, tzinfo=UTC)
HALF_AN_HOUR = 1800
JOBS = "/apis/batch/v1/namespaces/intro/jobs"
WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/namespaces/intro/workloads"


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
        ({WARNED: ago(1), ENDS: ago(-4)}, 1560, "warn", {}),
        ({WARNED: ago(6), ENDS: "x"}, 1860, "stop", {ENDED: "it was idle for 30 minutes"}),
        # It is used again, or nobody can say any more whether it is.
        ({WARNED: ago(6), ENDS: "x"}, 3, "", {WARNED: None, ENDS: None}),
        ({WARNED: ago(6), ENDS: "x"}, None, "", {WARNED: None, ENDS: None}),
        # It was started again.
        ({ENDED: "x"}, 3, "", {ENDED: None}),
        # A warning of another idle time, in between it was in use.
        ({WARNED: ago(40), ENDS: ago(35)}, 1860, "warn", ...),
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
    meta = {
        "name": name,
        "namespace": "intro",
        "uid": name,
        "annotations": {shares.ASKED: "0.1", **(notes or {})},
    }
    begun = {"startTime": "2026-11-30T09:00:00Z", "ready": 1}
    return {"metadata": meta, "spec": {"activeDeadlineSeconds": 7200}, "status": begun | status}


class Cluster:
    """Objects of the API server by path, lists of them by label, and what is changed of them."""

    def __init__(self, *shares_: dict[str, Any], **more: dict[str, Any]) -> None:
        self.lists: dict[str, Any] = {f"{JOBS}?labelSelector={shares.LABEL}": list(shares_)}
        self.found, self.changes, self.events = more, dict[str, Any](), dict[str, Any]()

    def call(self, method: str, path: str, body: Any = None, kind: str = "json") -> Any:
        """Answer for the namespace `intro`, and for its remote one; another cannot be read."""
        if "/namespaces/intro/" not in path and "/namespaces/remote-intro/" not in path:
            raise ApiError(403, "forbidden")
        if method == "GET" and "?" in path:
            return {"items": self.lists.get(path, [])}
        name = path.rpartition("/")[2]
        if method == "GET":
            if name not in self.found:
                raise ApiError(404, "not found")
            return self.found[name]
        if method == "POST":
            self.events[body["involvedObject"]["name"]] = body["message"]
            return {}
        assert (method, kind) == ("PATCH", "merge-patch+json")
        self.changes[name] = body
        return {}


def record(name: str, namespace: str = "intro", kind: str = "Job") -> Record:
    """Return the record of something that holds a share."""
    amounts = (Amount("pool", "nvidia.com/gpu", 1, 0.1),)
    return Record(name, 0, None, "", namespace, "intro", f"{kind}/{name}", "ann", amounts)


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


def look(
    cluster: Cluster,
    kind: str,
    still: dict[str, float | None],
    *of: Record,
    makers: dict[str, str] | None = None,
) -> None:
    """Look at what has such a limit of half an hour."""
    found = {
        one.uid: Measured(30, 30, still=still[one.uid], maker=(makers or {}).get(one.uid, ""))
        for one in of
    }
    limits = {one.namespace: {kind: float(HALF_AN_HOUR)} for one in of}
    ending.look(cast("Any", cluster), limits, of, found, NOW.timestamp())


def test_idle_jobs_of_teams_are_warned_of_and_deactivated() -> None:
    """One that works is not even read, one whose figure is lost is not ended, nor one of before."""
    warned = {WARNED: ago(6), ENDS: "2026-11-30T09:59:00Z"}
    lost, share = job("lost", warned), job("share")
    share["metadata"]["labels"] = {shares.LABEL: "asked"}
    cluster = Cluster(share=share, sleeps=job("sleeps"), set=job("set", warned))
    cluster.lists[f"{JOBS}?labelSelector={ending.LABEL}"] = [job("slept", warned), lost]
    at = f"{WORKLOADS}?labelSelector={ending.JOB_UID}"
    cluster.lists[f"{at}=slept"] = [{"metadata": {"name": "job-slept", "uid": "slept"}}]
    cluster.lists[f"{at}=set"] = [{"metadata": {"name": "jobset-set", "uid": "another one"}}]
    still = {"works": 2.0, "sleeps": 1600.0, "slept": 1900.0, "lost": None, "share": 1900.0}
    still |= {"set": 1900.0, "gone": 1900.0}
    going = [record(name, kind="JobSet" if name == "set" else "Job") for name in still]
    look(cluster, ending.JOBS, still, *going)
    assert set(cluster.changes) == {"sleeps", "slept", "job-slept", "lost", "set"}
    assert cluster.changes["job-slept"] == {"metadata": {"uid": "slept"}, "spec": {"active": False}}
    assert "spec" not in cluster.changes["slept"]
    assert cluster.changes["slept"]["metadata"]["labels"] == {ending.LABEL: "ended"}
    cleared = {"uid": "lost", "annotations": {WARNED: None, ENDS: None}, "labels": ...}
    assert cluster.changes["lost"]["metadata"] == cleared | {"labels": {ending.LABEL: None}}
    again = "it was idle for 30 minutes; to run it again, delete it and submit it again"
    assert cluster.events == {
        "sleeps": "its GPU is not used and no program runs: it ends at 2026-11-30T10:05:00Z "
        "unless it is used",
        "slept": again,
        "set": again,
    }


def test_an_idle_pod_fails_and_keeps_its_log_and_a_deployment_goes_to_no_replicas() -> None:
    """A Deployment would make another pod: it ends where all that hold a GPU are idle.

    Pods of a StatefulSet and of a group are left alone.
    """
    warned = {WARNED: ago(6), ENDS: "2026-11-30T09:59:00Z"}
    sets = {"web-1": "web", "web-2": "web", "half-1": "half", "half-2": "half", "new-1": "new"}
    owners = {
        name: [{"kind": "Deployment", "name": of, "controller": True}] for name, of in sets.items()
    }
    known = {
        name: {"metadata": {"name": name, "ownerReferences": of}} for name, of in owners.items()
    }
    of_user = ("alone", "sleeps", "web", "half", "new")
    cluster = Cluster(**known, **{name: job(name, warned) for name in of_user if name != "sleeps"})
    left_alone = ("db-0", "one", "web-1-x")
    cluster.found |= {name: job(name) for name in ("sleeps", *left_alone)}
    still: dict[str, float | None] = {"alone": 1900.0, "sleeps": 1600.0, "works": 2.0}
    makers = {f"{name}-x": f"ReplicaSet/{name}" for name in sets}
    still |= {f"{name}-x": 1900.0 for name in sets} | {"half-1-x": 2.0, "new-1-y": None}
    makers |= {"new-1-y": "ReplicaSet/new-1", "db-0": "StatefulSet/db", "one": "group/two"}
    still |= {"db-0": 1900.0, "one": 1900.0, "gone-x": 1900.0}
    makers["gone-x"] = "ReplicaSet/gone"
    going = [record(name, kind="Pod") for name in still]
    look(cluster, ending.JOBS, still, *going, makers=makers)
    assert set(cluster.changes) == {"alone", "sleeps", "web"}
    assert cluster.changes["alone"]["spec"] == {"activeDeadlineSeconds": 1}
    assert cluster.changes["web"]["spec"] == {"replicas": 0}
    again = "it was idle for 30 minutes; to run it again, "
    assert cluster.events["alone"] == f"{again}delete it and submit it again"
    assert cluster.events["web"] == f"{again}scale it up"
    assert "unless it is used" in cluster.events["sleeps"]


def test_an_idle_remote_claim_is_released_by_the_name_that_its_engine_s_job_has() -> None:
    """Its Job is where no member of the team writes; a claim of another UID is left alone."""
    warned = {WARNED: ago(6), ENDS: "2026-11-30T09:59:00Z"}
    known = {name: job(name, warned) for name in ("one", "other")}
    engines = {
        f"claim-{name}": job(f"claim-{name}", {ending.CLAIM: f"intro/{of}"})
        for name, of in (("one", "one"), ("another", "other"), ("third", "gone"))
    }
    cluster = Cluster(**known, **engines)
    going = [record(name, "remote-intro") for name in engines]
    look(cluster, ending.CLAIMS, dict.fromkeys(engines, 1900.0), *going)
    assert set(cluster.changes) == {"one"}
    assert cluster.changes["one"]["spec"] == {"release": True}
    assert cluster.events == {"one": "it was idle for 30 minutes"}
    claim = {"uid": "one", "name": "one", "namespace": "intro", "creationTimestamp": "2026"}
    spec = {"resource": "nvidia.com/gpu", "limitSeconds": 60}
    for notes, end, warning in (
        ({}, "released", ""),
        ({ENDED: "it was idle"}, "it was idle", ""),
        ({ENDS: ago(-5)}, "released", f"; idle, and ends at {ago(-5)} unless it is used"),
    ):
        found = Claim.of({"metadata": claim | {"annotations": notes}, "spec": spec})
        assert (found.ended, found.warning) == (end, warning)


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
