"""The hub's knowledge of courses: who, when, and the places in the queue."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.pods.hub import memory, prepare
from bedplate.pods.hub.courses import Course, Profile, settings
from bedplate.pods.hub.places import Place, Room, place_of, room_of

if TYPE_CHECKING:
    from pathlib import Path


def course(**more: Any) -> Course:
    """Return a course."""
    given = {"profiles": [Profile("intro", "intro", "", "image")], **more}
    return Course(name="intro", zone="Europe/Berlin", limits={}, **given)


def at(text: str) -> datetime:
    """Return a moment."""
    return datetime.fromisoformat(text)


@pytest.mark.parametrize(
    ("hours", "now", "left"),
    [
        (["Mon 10:00-12:00"], "2026-11-23T08:59:59+00:00", None),
        (["Mon 10:00-12:00"], "2026-11-23T09:00:00+00:00", 120),  # Berlin is an hour ahead
        (["Mon 10:00-12:00"], "2026-11-23T10:50:00+00:00", 10),
        (["Mon 10:00-12:00"], "2026-11-23T11:00:00+00:00", None),
        (["Mon 10:00-12:00"], "2026-07-20T08:00:00+00:00", 120),  # in summer two
        (["Mon 10:00-11:00", "Mon 11:00-12:00"], "2026-11-23T09:30:00+00:00", 90),
        (["Sun 22:00-24:00", "Mon 00:00-01:00"], "2026-11-22T22:30:00+00:00", 90),
        (["Mon 00:00-01:00", "Sun 22:00-24:00"], "2026-11-22T23:30:00+00:00", 30),
        # The night in which the clock goes back: from 1:30 to 3:30 are three hours.
        (["Sun 01:30-03:30"], "2026-10-24T23:30:00+00:00", 180),
    ],
)
def test_a_lesson_is_on_by_the_clock_on_the_wall(
    hours: list[str], now: str, left: int | None
) -> None:
    expected = None if left is None else timedelta(minutes=left)
    found = course(hours=hours)
    assert found.left(at(now)) == expected
    assert found.open(at(now)) == (left is not None)


def test_a_course_without_hours_is_always_on() -> None:
    assert course().open(datetime.now(UTC))
    assert course().left(datetime.now(UTC)) is None


@pytest.mark.parametrize(
    ("hours", "now", "takes_place", "begins"),
    [
        (
            ["Mon 10:00-12:00"],
            "2026-11-23T11:00:00+00:00",
            "Mon 10:00-12:00",
            "Monday, 30 November at 10:00",
        ),
        (
            ["Mon 10:00-12:00", "Wed 08:00-09:00", "Thu 14:00-16:00"],
            "2026-11-23T11:00:00+00:00",
            "Mon 10:00-12:00, Wed 08:00-09:00 and Thu 14:00-16:00",
            "Wednesday, 25 November at 08:00",
        ),
    ],
)
def test_a_student_reads_when_the_course_takes_place(
    hours: list[str], now: str, takes_place: str, begins: str
) -> None:
    assert course(hours=hours).timetable(at(now)) == (
        f"intro takes place {takes_place} (time of Europe/Berlin). "
        f"The next lesson starts on {begins}."
    )
    assert course().timetable(at(now)) == "intro takes place at any time."


def test_environments_are_prepared_half_an_hour_before_a_lesson() -> None:
    homes = {"hours": ["Mon 10:00-12:00"], "volumes": [{"name": "homes"}]}
    moments = ("08:29", "08:30", "08:59", "09:00", "10:30")  # Berlin is an hour ahead
    found = [at(f"2026-11-23T{one}:00+00:00") for one in moments]
    assert [prepare.due(course(**homes), one) for one in found] == [False, True, True, False, False]
    assert not prepare.due(course(hours=homes["hours"]), found[1]), "nothing to prepare"
    assert not prepare.due(course(profiles=[], **homes), found[1]), "its only image is refused"
    assert not prepare.due(course(volumes=homes["volumes"]), found[1]), "it is always on"
    assert not prepare.due(course(of="other", **homes), found[1]), "the course's homes are its own"


def ended(reason: str, where: str = "lastState", name: str = "notebook") -> dict[str, Any]:
    """Return a pod with a container that ended, and was perhaps started again."""
    state = {"terminated": {"reason": reason, "exitCode": 137}}
    return {"status": {"containerStatuses": [{"name": name, "state": {}, where: state}]}}


def test_a_notebook_without_memory_left_is_told_from_others_that_ended() -> None:
    assert memory.ran_out(ended("OOMKilled"))
    assert memory.ran_out(ended("OOMKilled", "state"))
    assert not memory.ran_out(ended("Error"))
    assert not memory.ran_out(ended("OOMKilled", name="sidecar"))
    assert not memory.ran_out({"status": {}})


def test_a_student_reads_how_much_memory_there_was() -> None:
    text = memory.sentence(course(memory_mib=4544))
    assert text.startswith("Your notebook used more than its 4.4375 GiB of memory and was ended.")
    assert memory.sentence(course()).startswith("Your notebook used too much memory and was ended.")


#: What kubelet writes of a pod that it evicts, by why.
EVICTED = {
    "its container": 'Container notebook exceeded its local ephemeral storage limit "20Gi". ',
    "its pod": "Pod ephemeral local storage usage exceeds the total limit of containers 20Gi. ",
    "its node": "The node was low on resource: ephemeral-storage. Threshold quantity: 10%. ",
}


@pytest.mark.parametrize("whose", EVICTED)
def test_a_student_reads_that_too_much_was_written(whose: str) -> None:
    """A node that is full is not the student's doing."""
    status = {"phase": "Failed", "reason": "Evicted", "message": EVICTED[whose]}
    text = memory.why({"status": status}, course(disk_mib=20 * 1024))
    told = "Your notebook wrote more than its 20 GiB to the disk of its node and was ended."
    assert text.startswith(told) == (whose != "its node")
    assert bool(text) == (whose != "its node")
    assert memory.why({"metadata": {}}, None) == ""


def test_a_notebook_has_its_disk_as_request_and_limit() -> None:
    assert memory.of_disk(2048) == {"ephemeral-storage": "2048Mi"}
    assert memory.of_disk(0) == {}


def test_a_notebook_has_its_memory_as_request_and_limit() -> None:
    assert memory.of_node(course(memory_mib=4096, cpu_milli=590)) == {
        "mem_limit": 4 * 2**30,
        "mem_guarantee": 4 * 2**30,
        "cpu_guarantee": 0.59,
    }
    assert memory.of_node(course()) == {}, "the hub's own small requests stay"


def test_few_environments_are_prepared_at_once_and_each_once() -> None:
    def pod(user: str, phase: str) -> dict[str, Any]:
        return {"metadata": {"annotations": {prepare.USER: user}}, "status": {"phase": phase}}

    found = course(members=["group:physics", "zoe"], teachers=["ada"])
    users = {f"s{number}": frozenset({"course-intro"}) for number in range(9)}
    users |= {"bob": frozenset({"physics"}), "eve": frozenset({"course-other"})}
    assert prepare.missing(found, users, []) == ["ada", "bob", "s0", "s1", "s2"]
    pods = [pod("ada", "Succeeded"), pod("bob", "Failed"), pod("s0", "Running"), pod("s1", "")]
    assert prepare.missing(found, users, pods) == ["s2", "s3", "s4"]
    pods += [pod(f"s{number}", "Pending") for number in range(2, 9)]
    assert prepare.missing(found, users, pods) == []
    ended = [pod(name, "Succeeded") for name in ("ada", "bob", *(f"s{n}" for n in range(9)))]
    assert prepare.missing(found, users, ended) == ["zoe"]


@pytest.mark.parametrize(
    ("user", "groups", "admitted"),
    [
        ("bob", set(), True),
        ("ada", set(), True),
        ("eve", set(), False),
        ("eve", {"students"}, True),
        ("eve", {"course-intro"}, True),
        ("eve", {"course-other", "student"}, False),
        ("students", set(), False),
        ("group:students", set(), False),
        ("course-intro", set(), False),
    ],
)
def test_who_is_in_a_course(user: str, groups: set[str], admitted: bool) -> None:
    found = course(members=["bob", "group:students"], teachers=["ada"])
    assert found.admits(user, frozenset(groups)) == admitted


def test_who_is_in_a_course_is_in_its_sizes() -> None:
    large = course(of="physics")
    assert large.admits("eve", frozenset({"course-physics"}))
    assert not large.admits("eve", frozenset({"course-intro"}))


def test_a_place_counts_from_one() -> None:
    def waiting(uid: str, position: int) -> dict[str, Any]:
        return {"metadata": {"ownerReferences": [{"uid": uid}]}, "positionInLocalQueue": position}

    pending = {"items": [waiting("a", 0), waiting("b", 1)]}
    assert place_of(pending, "a") == Place(1, 2)
    assert str(place_of(pending, "b")) == "place 2 of 2"
    assert place_of(pending, "c") is None
    assert place_of({"items": None}, "a") is None


def test_room_says_what_would_happen() -> None:
    queue = {
        "spec": {
            "resourceGroups": [
                {"flavors": [{"resources": [{"name": "nvidia.com/gpu", "nominalQuota": "4"}]}]}
            ]
        },
        "status": {
            "conditions": [{"type": "Active", "status": "True"}],
            "pendingWorkloads": 3,
            "flavorsReservation": [{"resources": [{"name": "nvidia.com/gpu", "total": "4"}]}],
        },
    }
    room = room_of(queue, "nvidia.com/gpu")
    assert room == Room(used=4, quota=4, waiting=3, active=True)
    assert room.describe(2) == "2 of 2 in use: you would wait in place 4"
    assert Room(2, 4, 0, active=True).describe(1) == "2 of 4 in use: starts at once"


def test_settings_come_from_one_file(tmp_path: Path) -> None:
    profile = {"slug": "s", "title": "t", "about": "a", "image": "i"}
    content = {
        "zone": "UTC",
        "sign_in": "native",
        "admins": ["root"],
        "courses": {
            "intro": {
                "limits": {"nvidia.com/gpu": "1"},
                "profiles": [profile],
                "teachers": ["ada"],
                "members": ["bob", "group:students"],
            }
        },
    }
    path = tmp_path / "hub.json"
    path.write_text(json.dumps(content))
    found = settings(str(path))
    assert found.named() == {"root", "ada", "bob"}
    assert [one.name for one in found.of("bob", frozenset())] == ["intro"]
    assert found.courses["intro"].profiles[0].image == "i"
