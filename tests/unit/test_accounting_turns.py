"""Requests of a team's members get into the queue one by one, as far as each person has room."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pytest

from bedplate.accounting.turns import Turns
from bedplate.pods.api import ApiError
from bedplate.pods.hub.shares import HELD

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bedplate.pods.api import Api

LIMITS = {"lab": ("lab", 4), "lab-two": ("lab", 4)}


def work(name: str, gpus: int, *, user: str = "ann", held: bool = True, **more: Any) -> Any:
    """Return a Workload as an API server has it; the version of all is in `more`, 1 without."""
    container = {"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "namespace": more.get("namespace", "lab"),
            "creationTimestamp": more.get("came", f"2026-11-28T10:00:{len(name):02}Z"),
            "resourceVersion": more.get("version", "1"),
            "annotations": {"of": user, **({HELD: "it waits"} if held else {})},
        },
        "spec": {
            "active": more.get("active", not held),
            "podSets": [{"count": 1, "template": {"spec": {"containers": [container]}}}],
        },
        "status": more.get("status", {}),
    }


@dataclass
class Server:
    """Workloads, and what was let in, in order."""

    found: list[Any] = field(default_factory=list)
    let_in: list[str] = field(default_factory=list)
    answers: int = 0
    away: bool = False

    def call(self, method: str, path: str, body: Any = None, _kind: str = "") -> dict[str, Any]:
        """List a namespace, or let one in as it is asked for."""
        space, _, name = path.partition("/namespaces/")[2].partition("/workloads")
        if method == "GET":
            return {"items": [one for one in self.found if one["metadata"]["namespace"] == space]}
        if self.away:
            raise ApiError(0, "no answer")
        if self.answers:
            raise ApiError(self.answers, "no")
        (one,) = (one for one in self.found if one["metadata"]["name"] == name[1:])
        if body["metadata"]["resourceVersion"] != one["metadata"]["resourceVersion"]:
            raise ApiError(409, "changed")
        assert body["metadata"]["uid"] == one["metadata"]["uid"]
        notes, why = one["metadata"]["annotations"], body["metadata"]["annotations"][HELD]
        assert body.get("spec") == (None if HELD in notes and why else {"active": why is None})
        if why is None:
            self.let_in.append(name[1:])
            notes.pop(HELD)
        else:
            notes[HELD] = why
        one["metadata"]["resourceVersion"] = "9"
        one["spec"]["active"] = why is None
        return cast("dict[str, Any]", one)


def turns(server: Server, over: Mapping[str, str] | None = None) -> Turns:
    """Return what counts, with the owners' names in the Workloads themselves."""

    def owner(one: Mapping[str, Any]) -> str:
        return str(one["metadata"]["annotations"]["of"])

    def why(_team: str, user: str) -> str:
        return (over or {}).get(user, "")

    return Turns(cast("Api", server), LIMITS, ["nvidia.com/gpu"], owner, why)


@pytest.mark.parametrize(
    ("kind", "gpus", "fits"),
    [
        ({"restartPolicy": "Always"}, 2, False),
        ({}, 4, True),
        ({}, 5, False),
        ({"name": "a network card", "of": "rdma/hca"}, 9, True),
    ],
)
def test_what_a_pod_has_is_counted_as_the_queue_counts(
    kind: dict[str, str], gpus: int, *, fits: bool
) -> None:
    """A sidecar has its GPUs next to the others, and an init container that ends before them."""
    one = work("a", 3)
    resource = kind.get("of", "nvidia.com/gpu")
    first = {**kind, "resources": {"requests": {resource: str(gpus)}}}
    one["spec"]["podSets"][0]["template"]["spec"]["initContainers"] = [first]
    server = Server([one])
    turns(server).read()
    assert server.let_in == (["a"] if fits else [])


def test_what_fits_gets_in_as_it_came_and_nothing_smaller_passes() -> None:
    server = Server([work("a", 2), work("bb", 3), work("ccc", 1), work("dd", 4, user="bob")])
    turns(server).read()
    assert set(server.let_in) == {"a", "dd"}


def test_all_namespaces_of_a_team_are_counted_together() -> None:
    server = Server([work("a", 3, namespace="lab-two"), work("bb", 2)])
    turns(server).read()
    assert server.let_in == ["a"]


@pytest.mark.parametrize("ends", ["finished", "deleted", "deactivated"])
def test_what_ends_makes_room(ends: str) -> None:
    server = Server([work("a", 4, held=False), work("bb", 4)])
    counted = turns(server)
    counted.read()
    assert server.let_in == []
    done = {
        "conditions": [
            {"type": kind, "status": "True", "lastTransitionTime": "2026-11-28T10:01:00Z"}
            for kind in ("Admitted", "Finished")
        ]
    }
    over = {"version": "2", "held": False, "active": ends != "deactivated"}
    last = work("a", 4, **over, **({"status": done} if ends == "finished" else {}))
    counted.see(last, deleted=ends == "deleted")
    assert server.let_in == ["bb"]


def test_what_was_deactivated_counts_until_its_quota_is_free() -> None:
    server = Server([work("a", 4, held=False), work("bb", 4)])
    counted = turns(server)
    counted.read()
    holds = {"admission": {"podSetAssignments": [{"resourceUsage": {"nvidia.com/gpu": "4"}}]}}
    counted.see(work("a", 4, held=False, active=False, version="2", status=holds))
    assert server.let_in == []
    counted.see(work("a", 4, held=False, active=False, version="3"))
    assert server.let_in == ["bb"]


def test_events_of_before_what_was_read_change_nothing() -> None:
    """A recorder that starts again sees once more how a request waited that has been let in."""
    server = Server([work("a", 4, held=False, version="5"), work("bb", 4)])
    counted = turns(server)
    counted.read()
    counted.see(work("a", 4, version="3"))
    counted.see(work("a", 4, version="4"), deleted=True)
    assert server.let_in == []


@pytest.mark.parametrize("status", [404, 409])
def test_one_that_was_changed_meanwhile_is_looked_at_again(status: int) -> None:
    server = Server([work("a", 4)], answers=status)
    counted = turns(server)
    counted.read()
    server.answers = 0
    server.found = [work("a", 4, version="2")]
    counted.see(server.found[0])
    assert server.let_in == ["a"]


def test_an_api_server_that_is_away_is_said() -> None:
    with pytest.raises(ApiError):
        turns(Server([work("a", 4)], away=True)).read()


@pytest.mark.parametrize("status", [403, 500])
def test_what_is_refused_holds_up_nobody_else_and_is_tried_again(status: int) -> None:
    server = Server([work("a", 4), work("bb", 4, user="bob")], answers=status)
    counted = turns(server)
    counted.read()
    assert server.let_in == []
    server.answers = 0
    counted.again()
    assert set(server.let_in) == {"a", "bb"}


def test_what_is_larger_than_a_limit_that_was_lowered_holds_up_no_other() -> None:
    server = Server([work("a", 5), work("bb", 4)])
    turns(server).read()
    assert server.let_in == ["bb"]


def test_an_event_of_before_the_start_makes_nothing_active() -> None:
    """Somebody has let it in and stopped it while the recorder was down."""
    server = Server([work("a", 4, held=False, active=False, version="7")])
    counted = turns(server)
    counted.read()
    counted.see(work("a", 4, version="3"))
    assert server.let_in == []


SPENT = "ann has used 10.00 of 10 GPU-hours of team lab in this week: this waits until Monday"


def test_who_has_used_the_weeks_hours_gets_nothing_more_and_keeps_what_runs() -> None:
    """What is in the queue waits outside of it again: it would start there at any time."""
    runs = {"admission": {"podSetAssignments": []}}
    server = Server(
        [
            work("a", 1, held=False, status=runs),
            work("bb", 1, held=False),
            work("ccc", 1),
            work("dd", 1, user="bob"),
            work("no-gpu", 0, held=False),
        ]
    )
    over = {"ann": SPENT}
    counted = turns(server, over)
    counted.read()
    assert server.let_in == ["dd"]
    texts = [one["metadata"]["annotations"].get(HELD) for one in server.found]
    assert texts == [None, SPENT, SPENT, None, None]
    assert [one["spec"]["active"] for one in server.found] == [True, False, False, True, True]
    over.clear()
    counted.again()
    assert server.let_in == ["dd", "bb", "ccc"]


def test_on_monday_what_still_has_no_room_says_so() -> None:
    server = Server([work("a", 3), work("bb", 3)])
    over = {"ann": SPENT}
    counted = turns(server, over)
    counted.read()
    over.clear()
    counted.again()
    assert server.let_in == ["a"]
    assert server.found[1]["metadata"]["annotations"][HELD] == (
        "one person has at most 4 GPUs or shares of team lab at once: this waits until enough of "
        "theirs have ended"
    )


def test_a_team_with_hours_alone_has_no_other_limit() -> None:
    server = Server([work("a", 300), work("bb", 300)])
    counted = turns(server)
    counted.limits = {"lab": ("lab", None)}
    counted.read()
    assert server.let_in == ["a", "bb"]
