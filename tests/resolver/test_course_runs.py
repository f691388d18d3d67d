"""Courses whose notebooks hold no GPU: what is proved, counted and said of their runs."""

from __future__ import annotations

from typing import Any

import pytest

from bedplate.catalogue import load_catalogue
from bedplate.resolver import course_fit
from tests.resolver.test_course_fit import (
    T4,
    TIMES,
    answer,
    board,
    course,
    notebooks,
    said,
    sized,
    slicing,
)
from tests.resolver.test_whole_sites import planned


def runs(students: int, at_once: int, share: Any = 0.1, **more: Any) -> dict[str, Any]:
    """Return a course with more students than shares."""
    return course(students, share, "lab", runs_at_once=at_once, **more)


def line(found: Any) -> str:
    """Return what the plan says of the only course."""
    ((_, text),) = course_fit.lines(planned(found).lock, load_catalogue())
    return text


def test_thirty_students_with_ten_shares_fit_on_one_gpu() -> None:
    """With a share for each notebook there would be room for ten students."""
    one = board("t4-16gb", 1)
    found = answer(one, slicing(0.1), runs(30, 10))
    assert line(found) == (
        f"lab: 30 students, runs queue for 10 {TIMES} 1187Mi at a time, always; full"
    )
    cluster = planned(found).lock.cluster
    assert cluster is not None
    quota = cluster.teams["lab"].gpus["pool_a"]["nvidia.com/gpu"]
    assert quota.model_dump() == {"guaranteed": 10, "borrow": 0}
    assert line(answer(T4, slicing(0.1), runs(30, 10))).endswith("; 30 left"), "shares for runs"
    assert "10 students of lab" in said(answer(one, slicing(0.1), course(30, 0.1, "lab")))


def test_more_runs_than_the_pool_has_shares_are_refused() -> None:
    text = said(answer(board("t4-16gb", 1), slicing(0.1), runs(30, 11)))
    assert "bedplate_courses[0].runs_at_once" in text
    assert f"got lab 30 notebooks without a GPU and 11 runs {TIMES} 0.1 at once" in text
    assert "allowed 10 runs of lab on 1 t4-16gb of pool_a" in text
    assert "write runs_at_once: 10; or " in text


def test_notebooks_that_are_too_many_are_named_and_not_their_runs() -> None:
    """Without runs_at_once each of them would want a share: that is no way out."""
    text = said(answer(T4, slicing(0.1), runs(500, 12)))
    assert "bedplate_courses[0].students" in text
    assert "allowed 86 students of lab" in text
    assert "write students: 86" in text
    planned(answer(T4, slicing(0.1), runs(86, 12)))


def test_more_runs_than_students_may_have_are_not_counted() -> None:
    found = planned(answer(T4, slicing(0.1), runs(20, 100, per_user={"shares": 2})))
    assert found.lock.cluster is not None
    assert found.lock.cluster.courses["lab"].seats == 40


def test_notebooks_and_runs_share_what_as_many_shares_have_of_the_node() -> None:
    """Ten of forty shares have a quarter of the node: forty pods have it together."""
    has = notebooks(sized(course(40, 0.1), sharing=slicing(0.1), memory="64Gi", cpus=16))
    memory, cpu, _ = has["intro"]
    found = sized(runs(30, 10), sharing=slicing(0.1), memory="64Gi", cpus=16)
    assert notebooks(found)["lab"][:2] == (memory // 4, cpu // 4)
    planned(found)


@pytest.mark.parametrize("sharing", [slicing(0.1), {"mode": "dra"}])
def test_notebooks_without_a_gpu_need_memory_of_the_hosts(sharing: dict[str, Any]) -> None:
    """60,756 MiB are for students: 29 pods of 2 GiB, of notebooks and runs."""
    fits = runs(20, 9, memory="2Gi")
    planned(sized(fits, sharing=sharing, memory="64Gi", cpus=16))
    text = said(sized(fits | {"students": 25}, sharing=sharing, memory="64Gi", cpus=16))
    assert "bound by memory of the hosts" in text
    assert "write runs_at_once: 4; or write memory: " in text
    text = said(sized(fits | {"students": 35}, sharing=sharing, memory="64Gi", cpus=16))
    assert "write runs_at_once" not in text, "the notebooks alone are too many"


def test_runs_by_claims_are_counted_as_claims() -> None:
    """Seven claims of 2 GiB are on one T4, whatever the number of students."""
    one = board("t4-16gb", 1)
    planned(answer(one, {"mode": "dra"}, runs(30, 7, {"memory": "1536Mi"})))
    assert "write runs_at_once: " in said(
        answer(one, {"mode": "dra"}, runs(30, 12, {"memory": "1536Mi"}))
    )


def test_runs_with_less_memory_of_the_host_than_of_the_gpu_are_reported() -> None:
    """Sixty notebooks and twelve runs divide what twelve of forty shares have of 64 GiB."""
    host = {"sharing": slicing(0.1), "memory": "64Gi", "cpus": 64}
    few = planned(sized(runs(60, 12), **host)).notices
    (told,) = (one for one in few if "have 245Mi of their host each" in one.text)
    assert told.text == (
        "notebooks and runs of lab have 245Mi of their host each, and 1187Mi of a GPU"
    )
    assert told.hint.startswith(
        "write memory of lab, where the default divides what 12 shares have of the host over 72 "
        "pods"
    )
    enough = planned(sized(runs(60, 12, memory="1200Mi"), **host | {"memory": "128Gi"})).notices
    assert not [one for one in enough if "of their host each" in one.text]
