"""What one person may have of a course: the service for shares, and what it counts."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.pods.api import ApiError
from bedplate.pods.hub import hours, person, share_service, shares
from bedplate.pods.hub.courses import Course, Profile, Settings
from bedplate.pods.hub.share_service import Service, User, course_of

if TYPE_CHECKING:
    from collections.abc import Mapping

GPU = "nvidia.com/gpu"
#: A Monday, an hour and a quarter before the lesson ends.
NOW = datetime(2026, 11, 30, 10, 45, tzinfo=UTC)
LESSON = ["Mon 10:00-12:00"]
NOTEBOOK = {
    "metadata": {"name": "jupyter-bob", "annotations": {shares.STUDENT: "bob"}},
    "status": {"phase": "Pending"},
}


class Cluster:
    """The few answers of an API server that the service reads, and the Jobs that it makes.

    `offered` are the units of the course's flavour, as the stack writes them.
    """

    def __init__(self, offered: dict[str, Any], pods: list[dict[str, Any]]) -> None:
        self.offered, self.pods, self.jobs = offered, pods, dict[str, dict[str, Any]]()
        self.between: list[dict[str, Any]] = []
        #: What persons have used of this week, by course; None where there is no such table.
        self.used: dict[str, dict[str, float]] | None = None

    def call(self, method: str, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        """Answer one request."""
        where, found = path.partition("?")[0], dict[str, Any]()
        if method == "POST" and body is not None:
            made = {**body["metadata"], "uid": body["metadata"]["name"]}
            found = {**body, "metadata": {**made, "creationTimestamp": "2026-11-30T10:45:00Z"}}
            self.jobs[made["name"]] = found
            self.pods += self.between
        elif method == "DELETE":
            del self.jobs[where.rpartition("/")[2]]
        elif where == hours.TABLE:
            if self.used is None:
                raise ApiError(404, "not found")
            week = {"until": "2026-12-07T00:00:00+00:00", "used": self.used}
            found = {"data": {hours.CONTENT: json.dumps(week)}}
        elif where.endswith("/localqueues/default"):
            found = {"spec": {"clusterQueue": "intro"}}
        elif "/clusterqueues/" in where:
            quotas = [{"name": name, "nominalQuota": "16"} for name in self.offered]
            flavors = [{"name": "pool", "resources": quotas}]
            found = {"spec": {"resourceGroups": [{"flavors": flavors}]}}
        elif "/resourceflavors/" in where:
            units = json.dumps(self.offered)
            found = {"metadata": {"annotations": {shares.UNITS: units}}, "spec": {}}
        else:
            listed = {"jobs": list(self.jobs.values()), "pods": self.pods}
            found = {"items": listed.get(where.rpartition("/")[2], [])}
        return found


#: A node of eight whole GPUs, and GPUs in ten shares.
WHOLE = {GPU: {"gpus": 1, "memory_mib": 16384, "most": 8, "node_memory_mib": 2048}}
TENTHS = {GPU: {"gpus": 0.1, "memory_mib": 1638, "most": 1}}


def service(call: shares.Call, now: datetime = NOW, **more: Any) -> Service:
    """Return the service of a course; a token is the name of a student."""
    profiles = [Profile("jax", "JAX", "", "x/y:1")]
    course = {"profiles": profiles, "limits": {GPU: "1"}, "members": ["bob", "ann"]} | more
    known = Course("intro", "UTC", **course)
    return Service(
        call,
        lambda _: "",
        lambda token: User(token, frozenset()),
        course_of(Settings({"intro": known}, "native", {}, [], {})),
        lambda: now,
    )


def asks(cluster: Cluster, body: dict[str, Any], now: datetime = NOW, **more: Any) -> Any:
    """Ask for a share as a student of the course who has a token of the hub."""
    return service(cluster.call, now, **more).answer("POST", ["intro"], "token bob", body)


def test_a_class_that_waits_is_listed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of forty asks again; the API server lists all Workloads for one, and after a change."""
    cluster, listed = Cluster(TENTHS, []), []

    def call(method: str, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        listed.extend([path] if path.endswith("/workloads") else [])
        return cluster.call(method, path, body)

    monkeypatch.setattr(share_service, "FRESH", 3600)
    asked = service(call, shares=20)

    def named(student: str) -> list[str]:
        found = asked.answer("GET", ["intro"], f"token {student}", {})["shares"]
        return [one["name"] for one in found]

    def made(student: str) -> str:
        answer = asked.answer("POST", ["intro"], f"token {student}", {"share": "0.1"})
        return str(answer["name"])

    bob, ann = made("bob"), made("ann")
    for _ in range(20):
        assert (named("bob"), named("ann")) == ([bob], [ann])
    assert len(listed) == 1
    second = made("bob")
    assert set(named("bob")) == {bob, second}
    asked.answer("DELETE", ["intro", second], "token bob", {})
    assert named("bob") == [bob]
    # A release looks again itself.
    assert len(listed) == 4


@pytest.mark.parametrize(
    ("offered", "asked", "said"),
    [
        (
            WHOLE,
            {"share": "8", "time": "7d"},
            (
                "larger than a share of intro — got 8 / allowed 1 (16Gi), which the course "
                "gives to each student — type %share request 1"
            ),
        ),
        (
            TENTHS,
            {"share": "0.2"},
            (
                "larger than a share of intro — got 0.2 / allowed 0.1 (1638Mi), which the course "
                "gives to each student — type %share request 0.1"
            ),
        ),
        (TENTHS, {"share": "4Gi"}, "larger than a share of intro — got 4Gi / allowed 0.1 (1638Mi)"),
        (
            WHOLE,
            {"share": "1", "time": "7d"},
            (
                "longer than a share of intro — got 7d / allowed up to 1h15m: the lesson ends at "
                "12:00 — write 1h15m or less"
            ),
        ),
        (WHOLE, {"share": "half"}, "no share of a GPU — got half"),
    ],
)
def test_what_is_more_than_the_course_gives_is_refused(
    offered: dict[str, Any], asked: dict[str, str], said: str
) -> None:
    cluster = Cluster(offered, [])
    with pytest.raises(shares.ShareError) as refused:
        asks(cluster, asked, hours=LESSON)
    assert str(refused.value).startswith(said)
    assert cluster.jobs == {}


def test_who_wants_more_reads_where_a_larger_size_is() -> None:
    with pytest.raises(shares.ShareError) as refused:
        asks(Cluster(WHOLE, []), {"share": "2"}, sizes=["intro-large"])
    assert str(refused.value).endswith("type %share request 1, or start a server of intro-large")


def test_a_notebook_is_the_one_share_that_the_plan_counted() -> None:
    """Also where it waits. One that is being deleted does not count, nor another student's."""
    cluster = Cluster(TENTHS, [NOTEBOOK])
    with pytest.raises(shares.ShareError) as refused:
        asks(cluster, {"share": "0.1"})
    assert str(refused.value) == (
        "one share more than intro gives — got your notebook already / allowed 1 for each person, "
        "notebooks and shares together — use the GPU of your notebook, or stop it first"
    )
    assert cluster.jobs == {}
    meta = NOTEBOOK["metadata"]
    for other in (
        {**NOTEBOOK, "metadata": {**meta, "deletionTimestamp": "2026-11-30T10:45:00Z"}},
        {**NOTEBOOK, "metadata": {**meta, "annotations": {shares.STUDENT: "eve"}}},
        {**NOTEBOOK, "status": {"phase": "Failed"}},
    ):
        assert asks(Cluster(TENTHS, [other]), {"share": "0.1"})["time"] == "1h"


def test_who_has_used_the_hours_of_the_week_gets_no_share() -> None:
    """Without a table nobody has used any: the recorder has not begun."""
    cluster = Cluster(TENTHS, [])
    for used in (None, {"intro": {"bob": 4.99, "ann": 5.0}}):
        cluster.used = used
        assert asks(cluster, {"share": "0.1"}, gpu_hours=5, shares=9)["time"] == "1h"
    cluster.used = {"intro": {"bob": 5.0}}
    with pytest.raises(shares.ShareError) as refused:
        asks(cluster, {"share": "0.1"}, gpu_hours=5, shares=9)
    assert str(refused.value) == (
        "no GPU-hours of intro are left in this week — got 5.00 used since Monday / allowed 5 for "
        "each person — start it again from Monday, 7 December, 00:00 UTC on"
    )
    assert len(cluster.jobs) == 2


def test_with_two_shares_for_a_person_there_is_one_with_the_notebook_and_no_third() -> None:
    cluster = Cluster(TENTHS, [NOTEBOOK])
    name = asks(cluster, {"share": "0.1"}, shares=2)["name"]
    with pytest.raises(shares.ShareError) as refused:
        asks(cluster, {"share": "0.1"}, shares=2)
    assert f"got your notebook and {name} already / allowed 2" in str(refused.value)
    assert f"release {name} first" in str(refused.value)
    assert list(cluster.jobs) == [name]
    cluster.jobs[name]["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    assert asks(cluster, {"share": "0.1"}, shares=2)["name"] != name


def test_a_notebook_that_starts_meanwhile_is_counted_too() -> None:
    """The hub makes it between the count and the share: the share is withdrawn."""
    cluster = Cluster(TENTHS, [])
    cluster.between = [NOTEBOOK]
    with pytest.raises(shares.ShareError, match="one share more than intro gives"):
        asks(cluster, {"share": "0.1"})
    assert cluster.jobs == {}


def test_a_share_has_the_size_and_the_memory_that_the_plan_counted() -> None:
    """Of two GPUs of a course each comes with half of what a notebook has of its node."""
    cluster = Cluster(WHOLE, [])
    more = {
        "limits": {GPU: "2"},
        "memory_mib": 6000,
        "cpu_milli": 3000,
        "shm_mib": 1000,
        "disk_mib": 2048,
    }
    asks(cluster, {"share": "1", "time": "30m"}, **more)
    (job,) = cluster.jobs.values()
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    limits = {GPU: "1", "memory": "3000Mi", "ephemeral-storage": "1024Mi"}
    assert container["resources"] == {"requests": limits | {"cpu": "1500m"}, "limits": limits}
    assert pod["volumes"] == [
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "500Mi"}}
    ], "as the course says it, not half of the memory"
    assert job["spec"]["activeDeadlineSeconds"] == 1800
    with pytest.raises(shares.ShareError, match="allowed 1 to 2 GPUs"):
        asks(cluster, {"share": "3"}, **more)


@pytest.mark.parametrize(
    ("course", "text", "now", "expected"),
    [
        ({}, "", NOW, 3600),
        ({}, "7d", NOW, 7 * 86400),
        ({"hours": LESSON}, "", NOW, 3600),
        ({"hours": LESSON}, "", NOW.replace(hour=11), 900),
        ({"hours": LESSON}, "1h15m", NOW, 4500),
        ({"longest": 600}, "", NOW, 600),
        ({"longest": 600}, "10m", NOW, 600),
        ({"longest": 600}, "11m", NOW, "allowed up to 10m: the longest time of a share of intro"),
        ({"hours": LESSON, "longest": 600}, "1h", NOW, "allowed up to 10m"),
        (
            {"hours": LESSON},
            "1h",
            NOW.replace(hour=13),
            "intro does not take place now — got Mon 13:45 / allowed Mon 10:00-12:00 — intro takes",
        ),
        ({}, "0m", NOW, "no time for a share"),
    ],
)
def test_a_share_lasts_no_longer_than_the_lesson(
    course: dict[str, Any], text: str, now: datetime, expected: int | str
) -> None:
    asked = Course("intro", "UTC", [], {}, **course)
    if isinstance(expected, int):
        assert person.length(asked, text, now) == expected
    else:
        with pytest.raises(shares.ShareError) as refused:
            person.length(asked, text, now)
        assert expected in str(refused.value)


def test_the_page_shows_the_refusals() -> None:
    page = (Path(__file__).parents[2] / "docs" / "courses.md").read_text(encoding="utf-8")
    for pods, asked in (
        ([], {"share": "8", "time": "7d"}),
        ([], {"share": "1", "time": "7d"}),
        ([NOTEBOOK], {"share": "1"}),
    ):
        with pytest.raises(shares.ShareError) as refused:
            asks(Cluster(WHOLE, pods), asked, hours=LESSON)
        assert f"\n{refused.value}\n" in page


@pytest.mark.parametrize(
    ("seconds", "text"), [(45, "45s"), (60, "1m"), (3659, "1h"), (3660, "1h1m"), (90000, "25h")]
)
def test_a_time_is_shown_as_it_is_typed(seconds: int, text: str) -> None:
    assert person.span(seconds) == text
    assert shares.seconds(text) <= seconds


def test_a_notebook_without_a_gpu_is_no_share() -> None:
    """A run is the one that the plan counted, and there is no second."""
    cluster = Cluster(TENTHS, [NOTEBOOK])
    name = asks(cluster, {"code": "1"}, runs=10)["name"]
    with pytest.raises(shares.ShareError) as refused:
        asks(cluster, {"code": "1"}, runs=10)
    assert f"got {name} already / allowed 1 for each person, runs and shares together" in str(
        refused.value
    )
