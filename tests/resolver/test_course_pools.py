"""Courses in several pools: in which order they are filled, and what has to be alike in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bedplate.catalogue import load_catalogue
from bedplate.components.schedulers.kueue.queues import cluster_queue, flavor_name
from bedplate.resolver import course_fit
from bedplate.resolver.candidates import compiled
from tests.resolver.test_course_fit import QUEUES, TIMES, board, course, said, slicing
from tests.resolver.test_whole_sites import decide, host, planned
from tests.schedulers.locks import queues_of

if TYPE_CHECKING:
    from bedplate.lock import Lock
    from bedplate.lock.model import Cluster

T4, V100, A100 = "t4-16gb", "v100-sxm2-32gb", "a100-sxm4-80gb"
BOTH = ["pool_b", "pool_a"]
TENTHS = slicing(0.1)
NONE = {"mode": "none"}


def site(*courses: Any, a: Any = (T4, TENTHS), b: Any = (T4, TENTHS), **more: Any) -> Any:
    """Decide a site of two pools with one host and one GPU each, as (model, sharing)."""
    everywhere = QUEUES | {"bedplate_courses": list(courses)} | more
    return decide(
        host("cp1", ["control_plane"], everywhere),
        *(
            host(
                name,
                ["gpu_pools", pool],
                board(has[0], 1) | {"bedplate_sharing": has[1]} | everywhere | dict(*has[2:]),
            )
            for name, pool, has in (("n1", "pool_a", a), ("n2", "pool_b", b))
        ),
    )


def cluster_of(lock: Lock) -> Cluster:
    """Return what all hosts share."""
    assert lock.cluster is not None
    return lock.cluster


def test_the_first_pool_is_filled_and_the_next_one_has_the_rest() -> None:
    """In the site's order, which is not that of the names: in the lock, the queue, the plan."""
    lock = planned(site(course(16, 0.1, pool=BOTH))).lock
    cluster = cluster_of(lock)
    assert cluster.courses["intro"].pools == {"pool_b": 10, "pool_a": 6}
    quotas = {pool: of["nvidia.com/gpu"] for pool, of in cluster.teams["intro"].gpus.items()}
    assert [(pool, one.guaranteed, one.borrow) for pool, one in quotas.items()] == [
        ("pool_b", 10, 0),
        ("pool_a", 6, 0),
    ]
    of = queues_of(lock)
    (group,) = cluster_queue(of, "intro")["spec"]["resourceGroups"]
    flavors = [(one["name"], one["resources"][0]["nominalQuota"]) for one in group["flavors"]]
    assert flavors == [(flavor_name(of, "pool_b"), "10"), (flavor_name(of, "pool_a"), "6")]
    assert course_fit.lines(lock, load_catalogue()) == [
        ("pool_b", f"intro: 16 {TIMES} 1187Mi, always, 10 in pool_b, then 6 in pool_a; 4 left")
    ]


def test_one_student_more_than_both_pools_have_room_for_is_refused() -> None:
    planned(site(course(20, 0.1, pool=BOTH)))
    text = said(site(course(21, 0.1, pool=BOTH)))
    assert f"got intro 21 {TIMES} 0.1 at once" in text
    assert "allowed 20 students of intro on 1 t4-16gb of pool_a" in text
    assert "of pool_a, 10 of them in pools before it: 10 a GPU, bound by compute" in text
    assert "write students: 20" in text


def test_what_others_have_of_the_first_pool_is_left_to_them() -> None:
    """Courses of that pool alone, teams, and courses before it, at the fullest of its hours."""
    hours = {"hours": ["Mon 08:00-12:00"]}
    others = [
        course(4, 0.1, "early", pool="pool_b", hours=["Mon 08:00-10:00"]),
        course(3, 0.1, "late", pool="pool_b", hours=["Mon 10:00-12:00"]),
        course(8, 0.1, "other", pool="pool_b", hours=["Tue 10:00-12:00"]),
    ]
    team = {"bedplate_teams": {"lab": {"gpus": {"pool_b": {"guaranteed": 2}}}}}
    found = planned(site(course(8, 0.1, pool=BOTH, **hours), *others, **team))
    assert cluster_of(found.lock).courses["intro"].pools == {"pool_b": 4, "pool_a": 4}
    two = [course(8, 0.1, one, pool=BOTH) for one in ("first", "second")]
    courses = cluster_of(planned(site(*two)).lock).courses
    assert courses["first"].pools == {"pool_b": 8, "pool_a": 0}
    assert courses["second"].pools == {"pool_b": 2, "pool_a": 6}


def test_what_is_left_is_counted_over_all_pools() -> None:
    solo = course(10, 0.1, "solo", pool="pool_a")
    intro, _ = course_fit.lines(
        planned(site(course(4, 0.1, pool=BOTH), solo)).lock, load_catalogue()
    )
    assert intro[1].endswith("4 in pool_b, then 0 in pool_a; 6 left")


def test_a_course_without_a_share_in_a_pool_disturbs_no_order_there() -> None:
    large = course(4, 2, pool=BOTH) | {"share": {"gpus": 2}}
    small = course(8, 1, "two", pool="pool_a") | {"share": {"gpus": 1}}
    eight = board(T4, 8).items()
    plan = planned(site(large, small, a=(T4, NONE, eight), b=(T4, NONE, eight)))
    assert cluster_of(plan.lock).courses["intro"].pools == {"pool_b": 4, "pool_a": 0}
    assert [one for one in plan.warnings if "not in every order" in one] == []


def test_whole_gpus_and_a_size_in_several_pools() -> None:
    whole = {"share": {"gpus": 1}, "pool": BOTH}
    found = planned(site(course(2, **whole), a=(T4, NONE), b=(V100, NONE)))
    assert cluster_of(found.lock).courses["intro"].pools == {"pool_b": 1, "pool_a": 1}
    said(site(course(3, **whole), a=(T4, NONE), b=(V100, NONE)))
    size = {"name": "more", "share": 0.1, "at_once": 12, "pool": BOTH, "memory": "1Gi"}
    found = planned(site(course(5, 0.1, sizes=[size], pool="pool_b", per_user={"shares": 2})))
    assert cluster_of(found.lock).courses["intro-more"].pools == {"pool_b": 0, "pool_a": 10}


def test_notebooks_without_a_gpu_are_in_the_first_pool() -> None:
    found = planned(site(course(30, 0.1, runs_at_once=15, pool=BOTH)))
    intro = cluster_of(found.lock).courses["intro"]
    assert (intro.pool, intro.pools) == ("pool_b", {"pool_b": 10, "pool_a": 5})


def test_a_share_has_the_memory_that_it_has_in_each_pool() -> None:
    """What a program is told to keep to is right wherever the queue puts it."""
    alone = {
        pool: cluster_of(planned(site(course(1, 0.1, pool=pool), b=(A100, TENTHS))).lock)
        for pool in BOTH
    }
    shares = {pool: one.courses["intro"].share for pool, one in alone.items()}
    assert (shares["pool_a"].user_mib or 0) < (shares["pool_b"].user_mib or 0)
    both = cluster_of(planned(site(course(1, 0.1, pool=BOTH), b=(A100, TENTHS))).lock)
    share = both.courses["intro"].share
    assert share.user_mib == shares["pool_a"].user_mib
    assert share.user_part == min(one.user_part or 1 for one in shares.values())


def test_one_build_has_code_for_the_gpus_of_all_pools() -> None:
    """By itself the newer GPU has another build, without code for the older one."""
    intro = {"share": {"gpus": 1}, "frameworks": ["pytorch"]}
    gpus = {"a": (V100, NONE), "b": (A100, NONE)}
    images = {"bedplate_sources": {"mode": "mirror", "url": "http://mirror.example"}}

    def builds(pool: Any) -> dict[str, str]:
        lock = planned(site(course(1, pool=pool, **intro), **gpus, **images)).lock
        return {name: one.frameworks[0].identity for name, one in lock.pools.items()
                if one.frameworks}  # fmt: skip

    alone = builds("pool_b")["pool_b"]
    both = builds(BOTH)
    assert both["pool_a"] == both["pool_b"] != alone
    known = {f"{b.framework}-{b.version}-{b.variant}": b
             for b in (fact.value for fact in load_catalogue().frameworks.values())}  # fmt: skip
    assert not compiled(known[alone], "7.0")
    assert compiled(known[both["pool_a"]], "7.0")
    assert compiled(known[both["pool_a"]], "8.0")


@pytest.mark.parametrize(
    ("asked", "pools", "got", "fix"),
    [
        (
            {"share": {"gpus": 1}},
            {"a": (T4, {"mode": "dra"}), "b": (T4, {"mode": "dra"})},
            "dra in pool_b, dra in pool_a",
            "sizes, each with a pool",
        ),
        (
            {"share": 0.1},
            {"a": (T4, {"mode": "mps", "replicas": 10})},
            "time-slicing in pool_b, mps in pool_a",
            "write the same bedplate_sharing for pool_b and pool_a",
        ),
        (
            {"share": {"memory": "2Gi"}},
            {
                "a": (A100, {"mode": "mig", "profiles": {"1g.10gb": 7}}),
                "b": (A100, {"mode": "mig", "profiles": {"2g.20gb": 3}}),
            },
            "1 nvidia.com/mig-2g.20gb in pool_b, 1 nvidia.com/mig-1g.10gb in pool_a",
            "write one bedplate_sharing for pool_b and pool_a",
        ),
    ],
)
def test_pools_that_no_one_notebook_can_ask_for_are_refused(
    asked: dict[str, Any], pools: dict[str, Any], got: str, fix: str
) -> None:
    text = said(site(course(1, asked["share"], pool=BOTH), **pools), "course-pools")
    assert "course cannot be in all these pools" in text
    assert "bedplate_courses[0].pool " in text
    assert got in text
    assert fix in text
    assert "write pool: pool_b" in text


def test_builds_that_differ_are_refused() -> None:
    """No build of this version has code for both: another one has, or one pool is enough."""
    intro = course(1, {"gpus": 1}, pool=BOTH, frameworks=["pytorch-2.14"])
    images = {"bedplate_sources": {"mode": "mirror", "url": "http://mirror.example"}}
    old = {"bedplate_driver": {"branch": "535"}}
    text = said(site(intro, a=(A100, NONE, old), b=(A100, NONE), **images), "course-pools")
    assert "bedplate_courses[0].frameworks[0]" in text
    assert "write the same bedplate_driver for pool_b and pool_a, or write pool: pool_b" in text


def test_a_pool_is_known_and_named_once() -> None:
    said(site(course(1, 0.1, pool=["pool_a", "pool_c"])), "course-pool")
    assert "name each pool once" in said(site(course(1, 0.1, pool=["pool_a"] * 2)), "course-pool")


def test_homes_are_seen_from_all_pools() -> None:
    storage = {"bedplate_storage": {"homes": {"path": "/srv/homes"}}}
    text = said(site(course(1, 0.1, pool=BOTH, storage="1Gi"), **storage), "course-data")
    assert "2 hosts of pool_a and pool_b" in text
    shared = {"bedplate_storage": {"homes": {"path": "/srv/homes", "shared": True}}}
    planned(site(course(1, 0.1, pool=BOTH, storage="1Gi"), **shared))


def test_teams_try_pools_in_the_order_that_the_site_writes() -> None:
    quota = {"guaranteed": 1}
    team = {"bedplate_teams": {"lab": {"gpus": {"pool_b": quota, "pool_a": quota}}}}
    lock = planned(site(**team)).lock
    of = queues_of(lock)
    (group,) = cluster_queue(of, "lab")["spec"]["resourceGroups"]
    assert [one["name"] for one in group["flavors"]] == [flavor_name(of, one) for one in BOTH]
    other = {"bedplate_teams": {"lab": {"gpus": {"pool_a": quota, "pool_b": quota}}}}
    assert planned(site(**other)).lock.site_digest != lock.site_digest, "a lock that is not stale"
