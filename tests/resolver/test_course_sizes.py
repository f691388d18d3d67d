"""Courses with several sizes: what is promised to each student, and what of the rest is proved."""

from __future__ import annotations

from typing import Any

import pytest

from bedplate.catalogue import load_catalogue
from bedplate.resolver import Refusal, course_fit
from tests.resolver.test_course_fit import (
    QUEUES,
    T4,
    TIMES,
    answer,
    board,
    course,
    said,
    sized,
    slicing,
)
from tests.resolver.test_whole_sites import decide, host, planned, rules

A100 = "a100-sxm4-80gb"
NONE = {"mode": "none"}


def size(name: str = "large", **more: Any) -> dict[str, Any]:
    """Return one more size: a whole GPU for two at a time."""
    return {"name": name, "share": {"gpus": 1}, "at_once": 2} | more


def two_pools(*courses: Any, hosts: int = 1, **more: Any) -> Any:
    """Decide a site of four T4 in tenths, and of hosts with four A100 that are whole."""
    everywhere = QUEUES | {"bedplate_courses": list(courses)} | more
    tenths = T4 | {"bedplate_sharing": slicing(0.1)}
    return decide(
        host("cp1", ["control_plane"], everywhere),
        host("n1", ["gpu_pools", "pool_a"], tenths | everywhere),
        *(
            host(f"b{number}", ["gpu_pools", "pool_b"], board(A100, 4) | everywhere)
            for number in range(hosts)
        ),
    )


def lines(found: Any) -> list[tuple[str, str]]:
    """Return what the plan says of courses, by pool."""
    return course_fit.lines(planned(found).lock, load_catalogue())


def test_a_size_in_another_pool_is_proved_there() -> None:
    """All forty have their tenth of a T4, whoever has one of the two whole GPUs."""
    found = two_pools(course(40, 0.1, sizes=[size(pool="pool_b")]))
    assert lines(found) == [
        ("pool_a", f"intro: 40 {TIMES} 1187Mi, always; full"),
        ("pool_b", f"intro-large: 2 {TIMES} 1 GPU for who needs more, always; 2 left"),
    ]
    cluster = planned(found).lock.cluster
    assert cluster is not None
    assert (cluster.courses["intro-large"].of, cluster.courses["intro-large"].students) == (
        "intro",
        40,
    )
    quotas = {name: team.gpus for name, team in cluster.teams.items()}
    assert quotas["intro"]["pool_a"]["nvidia.com/gpu"].guaranteed == 40
    assert quotas["intro-large"]["pool_b"]["nvidia.com/gpu"].guaranteed == 2
    assert quotas["intro-large"]["pool_b"]["nvidia.com/gpu"].borrow == 0


def test_a_size_takes_nothing_of_what_each_student_is_promised() -> None:
    """Eight GPUs: four students with one each leave two of two GPUs, and not three."""
    pair = size(share={"gpus": 2})
    planned(answer(board(A100, 8), NONE, course(4, {"gpus": 1}, sizes=[pair])))
    text = said(answer(board(A100, 8), NONE, course(4, {"gpus": 1}, sizes=[pair | {"at_once": 3}])))
    assert "bedplate_courses[0].sizes[0].at_once" in text
    assert f"got intro 4 {TIMES} 1 GPU + intro-large 3 {TIMES} 2 GPUs at once" in text
    assert "allowed 2 shares of intro-large on 8 a100-sxm4-80gb" in text
    assert "write at_once: 2" in text


def test_where_the_students_alone_are_too_many_no_size_is_blamed() -> None:
    text = said(
        answer(board(A100, 8), NONE, course(9, {"gpus": 1}, sizes=[size(share={"gpus": 2})]))
    )
    assert "bedplate_courses[0].students" in text
    assert "write students: 4" in text


def test_a_person_has_no_more_of_a_size_than_the_limit() -> None:
    """Three students with one each need no more than three, and the proof has room for two each."""
    found = planned(two_pools(course(3, 0.1, sizes=[size(at_once=4, pool="pool_b")])))
    assert found.lock.cluster is not None
    assert found.lock.cluster.courses["intro-large"].seats == 3
    limits = {"shares": 2, "time": "1h"}
    found = planned(
        two_pools(course(3, 0.1, sizes=[size(at_once=4, pool="pool_b", per_user=limits)]))
    )
    assert found.lock.cluster is not None
    large = found.lock.cluster.courses["intro-large"]
    assert (large.seats, large.per_user.shares, large.per_user.time_s) == (4, 2, 3600)
    assert found.lock.cluster.courses["intro"].per_user.time_s is None


@pytest.mark.parametrize(
    ("written", "has"), [({"time": "1h"}, (2, 3600)), ({"shares": 1}, (1, 7200)), (None, (2, 7200))]
)
def test_what_a_size_does_not_write_of_a_persons_limits_is_the_courses(
    written: dict[str, Any] | None, has: tuple[int, int]
) -> None:
    more = {} if written is None else {"per_user": written}
    limits = {"shares": 2, "time": "2h", "hours": 5}
    found = planned(two_pools(course(3, 0.1, per_user=limits, sizes=[size(pool="pool_b", **more)])))
    assert found.lock.cluster is not None
    large = found.lock.cluster.courses["intro-large"].per_user
    assert (large.shares, large.time_s) == has
    assert large.hours == 5, "of the course and its sizes together"


def test_a_size_may_be_as_large_as_a_run() -> None:
    """Notebooks of a course with runs hold no GPU; those of its size do."""
    lab = course(10, 0.1, "lab", runs_at_once=4, sizes=[size(share=0.1)])
    assert len(lines(answer(T4, slicing(0.1), lab))) == 2


@pytest.mark.parametrize("share", [0.2, {"gpus": 1}])
def test_another_share_in_a_pool_of_equal_ones_needs_another_pool(share: Any) -> None:
    """Other replicas would make the size what the course has, which is refused too."""
    found = answer(T4, slicing(0.1), course(9, 0.1, sizes=[size(share=share)]))
    text = said(found, "course-share")
    assert "write pool: another one for the size, or mode: dra for the pool" in text


def test_claims_of_several_sizes_lie_on_the_same_gpus() -> None:
    """Thirteen claims of 2 GiB, one of 10 GiB and a whole GPU fill four T4."""
    sizes = [size(share={"memory": "10Gi"}, at_once=1), size("whole", at_once=1)]
    asked = course(12, {"memory": "2Gi"}, sizes=sizes)
    found = planned(answer(T4, {"mode": "dra"}, asked))
    assert found.lock.cluster is not None
    claims = {name: one.share.memory_mib for name, one in found.lock.cluster.courses.items()}
    assert claims == {"intro": 2368, "intro-large": 10560, "intro-whole": None}
    planned(answer(T4, {"mode": "dra"}, asked | {"students": 13}))
    text = said(answer(T4, {"mode": "dra"}, asked | {"students": 14}))
    assert "bedplate_courses[0].sizes[1].at_once" in text


def test_a_size_that_is_the_courses_own_is_refused() -> None:
    """With more memory of the host it is another one."""
    same = size(share=0.1)
    text = said(answer(T4, slicing(0.1), course(10, 0.1, sizes=[same])), "course-share")
    assert "bedplate_courses[0].sizes[0].share" in text
    assert "got 0.1 of pool_a, which is a share of intro" in text
    planned(answer(T4, slicing(0.1), course(10, 0.1, sizes=[same | {"memory": "16Gi"}])))


def test_two_sizes_of_one_name_are_refused() -> None:
    twice = [size(pool="pool_b"), size(pool="pool_b", share={"gpus": 2})]
    text = said(two_pools(course(10, 0.1, sizes=twice)), "team-namespace")
    assert "bedplate_courses[0].sizes[1].name" in text
    assert "got intro-large, the namespace of course intro-large" in text


def test_the_name_of_a_size_is_that_of_a_namespace() -> None:
    text = said(two_pools(course(10, 0.1, sizes=[size("x" * 58, pool="pool_b")])), "team-namespace")
    assert "allowed up to 63 characters, its course's name in them — shorten it" in text


@pytest.mark.parametrize(
    ("wrong", "rule", "where"),
    [
        ({"pool": "pool_c"}, "course-pool", "sizes[0].pool — got pool_c"),
        ({"share": {"gpus": 9}, "pool": "pool_b"}, "course-share", "sizes[0].share — got 9 GPUs"),
        ({"frameworks": ["pytorch-1.0"]}, "framework-known", "sizes[0].frameworks[0]"),
    ],
)
def test_what_is_wrong_in_a_size_is_found_there(
    wrong: dict[str, Any], rule: str, where: str
) -> None:
    found = two_pools(course(10, 0.1, sizes=[size(pool="pool_b") | wrong]))
    assert isinstance(found, Refusal)
    assert rules(found) == [rule]
    assert where in str(found.problems[0])


def test_the_pool_of_a_size_has_the_courses_frameworks() -> None:
    """Each pool has its own build: another driver or GPU has another."""
    found = planned(two_pools(course(10, 0.1, frameworks=["jax"], sizes=[size(pool="pool_b")])))
    assert [one.name for one in found.lock.pools["pool_b"].frameworks] == ["jax"]
    own = size(pool="pool_b", frameworks=["pytorch"])
    found = planned(two_pools(course(10, 0.1, frameworks=["jax"], sizes=[own])))
    assert [one.name for one in found.lock.pools["pool_b"].frameworks] == ["pytorch"]
    assert [one.name for one in found.lock.pools["pool_a"].frameworks] == ["jax"]


def test_homes_are_seen_by_the_hosts_of_all_sizes() -> None:
    asked = course(10, 0.1, storage="2Gi", sizes=[size(pool="pool_b")])
    homes = {"path": "/srv/homes"}
    text = said(two_pools(asked, bedplate_storage={"homes": homes}), "course-data")
    assert "got homes in /srv/homes of each of 2 hosts of pool_a and pool_b" in text
    planned(two_pools(asked, bedplate_storage={"homes": homes | {"shared": True}}))


def test_what_a_size_has_of_its_node_follows_from_its_share() -> None:
    """Whatever the course writes of its own notebooks; the limit of disk is the same."""
    asked = course(2, {"gpus": 1}, memory="4Gi", disk="10Gi", sizes=[size(share={"gpus": 2})])
    found = planned(
        sized(asked, sharing=NONE, gpus=board(A100, 8), memory="512Gi", cpus=64, disk="1Ti")
    )
    assert found.lock.cluster is not None
    has = {name: one.notebook for name, one in found.lock.cluster.courses.items()}
    assert (has["intro"].memory_mib, has["intro"].disk_mib) == (4096, 10240)
    assert (has["intro-large"].memory_mib or 0) > 100 * 1024
    assert has["intro-large"].disk_mib == 10240


def test_a_size_of_a_course_without_gpus_in_its_notebooks_has_some() -> None:
    """Thirty notebooks without one, ten runs at once, and four servers that keep a whole GPU."""
    lab = course(30, 0.1, "lab", runs_at_once=10, sizes=[size(at_once=4, pool="pool_b")])
    assert lines(two_pools(lab)) == [
        (
            "pool_a",
            f"lab: 30 students, runs queue for 10 {TIMES} 1187Mi at a time, always; 30 left",
        ),
        ("pool_b", f"lab-large: 4 {TIMES} 1 GPU for who needs more, always; full"),
    ]
