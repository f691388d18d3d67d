"""GPU-hours of a person in a week: their sums, the table that the hub reads, and its refusals."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

import pytest

from bedplate.accounting.hours import Hours
from bedplate.accounting.records import Amount, Record
from bedplate.accounting.store import Store
from bedplate.pods.api import ApiError
from bedplate.pods.hub import hours
from bedplate.pods.hub.courses import Course
from bedplate.pods.hub.shares import ShareError

if TYPE_CHECKING:
    from bedplate.pods.api import Api

#: A Monday, and the Wednesday of its week at noon.
MONDAY = datetime(2026, 11, 30, tzinfo=UTC)
NOW = MONDAY + timedelta(days=2, hours=12)
HOUR = 3600
LIMITS = {"vision": ("vision", 10.0), "intro": ("intro", 2.0), "intro-large": ("intro", 2.0)}


def at(moment: datetime) -> int:
    """Return a moment in seconds since 1970."""
    return int(moment.timestamp())


def record(queue: str, user: str, begin: datetime, hours_: float | None, gpus: float = 1) -> Record:
    """Return that somebody held GPUs for so many hours, or holds them."""
    start = at(begin)
    return Record(
        uid=f"{queue}-{user}-{start}",
        start=start,
        end=None if hours_ is None else start + round(hours_ * HOUR),
        why="" if hours_ is None else "finished",
        namespace=queue,
        queue=queue,
        workload="Job/a",
        user=user,
        amounts=(Amount("pool-a", "nvidia.com/gpu", 1, gpus),),
    )


def counted(*records: Record, now: datetime = NOW) -> Hours:
    """Return the sums of records."""
    found = Hours(LIMITS)
    found.count(records, now.timestamp())
    return found


def test_who_has_used_the_hours_of_a_week_waits_until_monday() -> None:
    tuesday = MONDAY + timedelta(days=1)
    found = counted(
        record("vision", "alice", tuesday, 4, gpus=2),
        record("vision", "alice", NOW - timedelta(hours=3), None),
        record("vision", "bob", tuesday, 9.9),
        record("vision", "", tuesday, 11),
        record("audio", "bob", tuesday, 30),
    )
    assert found.over("vision", "alice") == (
        "alice has used 11.00 of 10 GPU-hours of team vision in this week: this waits until "
        "Monday, 7 December, 00:00 UTC"
    )
    assert found.over("vision", "bob") == ""
    assert found.over("audio", "bob") == "", "a team without a limit"
    assert found.over("vision", "").startswith("(unknown) has used 11.00")


def test_what_lies_before_monday_is_of_another_week() -> None:
    """Work that reaches over the edge is cut there, as `bedplate usage --since` does."""
    long = record("vision", "alice", MONDAY - timedelta(hours=30), 39.9)
    assert counted(long).over("vision", "alice") == ""
    goes_on = record("vision", "alice", MONDAY - timedelta(hours=30), None)
    assert counted(goes_on, now=MONDAY + timedelta(hours=9)).over("vision", "alice") == ""
    assert counted(goes_on, now=MONDAY + timedelta(hours=10)).over("vision", "alice")


def test_the_sentence_keeps_its_figure_until_the_week_ends() -> None:
    """It is written to all that waits: a figure that grows would change each of them every time."""
    goes_on = record("vision", "alice", MONDAY, None)
    found = counted(goes_on, now=MONDAY + timedelta(hours=10))
    first = found.over("vision", "alice")
    found.count([goes_on], (MONDAY + timedelta(hours=12)).timestamp())
    assert found.over("vision", "alice") == first
    found.count([goes_on], (MONDAY + timedelta(days=7)).timestamp())
    assert found.over("vision", "alice") == ""
    found.count([goes_on], (MONDAY + timedelta(days=7, hours=11)).timestamp())
    assert found.over("vision", "alice") == first.replace("10.00", "11.00").replace("7 D", "14 D")


def course(**more: Any) -> Course:
    """Return the course of which each person has two GPU-hours, or one of its sizes."""
    return Course(**{"name": "intro", "zone": "UTC", "profiles": [], "limits": {}, **more})


def test_sizes_of_a_course_are_counted_together_and_refused_together() -> None:
    found = counted(
        record("intro", "ann", MONDAY, 10, gpus=0.1),
        record("intro-large", "ann", MONDAY + timedelta(days=1), 1.0),
        record("intro", "bob", MONDAY, 10, gpus=0.1),
    )
    table = {"data": found.table()}
    for one in (course(gpu_hours=2), course(name="intro-large", of="intro", gpu_hours=2)):
        with pytest.raises(ShareError) as refused:
            hours.allows(one, table, "ann", NOW)
        assert str(refused.value) == (
            "no GPU-hours of intro are left in this week — got 2.00 used since Monday / allowed 2 "
            "for each person — start it again from Monday, 7 December, 00:00 UTC on"
        )
        hours.allows(one, table, "bob", NOW)
        hours.allows(one, table, "ann", NOW + timedelta(days=7))
        hours.allows(one, {}, "ann", NOW)
    hours.allows(course(), table, "ann", NOW)


class Kept:
    """ConfigMaps by name."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Answer as the API server does."""
        name = path.rpartition("/")[2]
        if method == "POST":
            name = body["metadata"]["name"]
        elif name not in self.found:
            raise ApiError(404, "not found")
        if body is not None:
            version = {"metadata": {**body["metadata"], "resourceVersion": "1"}}
            self.found[name] = {**body, **version}
        return self.found[name]


def test_a_recorder_that_starts_again_reads_what_ended_in_this_week() -> None:
    kept = Kept()
    before, mine = (
        record("vision", "alice", MONDAY + timedelta(hours=when), 1) for when in (-30, 20)
    )
    store = Store(cast("Api", kept))
    store.save([before, mine], [], "1", at(NOW))
    assert set(kept.found) == {"2026-11-28-0", "2026-11-30-0", "open"}
    assert list(store.since(at(MONDAY), NOW.timestamp())) == [mine]


def test_the_table_is_written_where_there_was_none_and_where_there_was() -> None:
    kept = Kept()
    for used in (1, 2):
        found = counted(record("intro", "ann", MONDAY, used))
        Store(cast("Api", kept)).write(hours.NAME, found.table())
        written = json.loads(kept.found["hours"]["data"][hours.CONTENT])
        assert written["used"] == {"intro": {"ann": used}, "vision": {}}
        assert hours.used(kept.found["hours"], "intro", "ann", NOW) == used
