"""Courses that fit and courses that don't: what the plan proves, and what it proposes instead.

Of one share for each student; several sizes are in test_course_sizes.py.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from bedplate.catalogue import load_catalogue
from bedplate.courses.packing import Answer
from bedplate.courses.sizes import Gpus
from bedplate.resolver import Refusal, course_fit
from bedplate.resolver.course_room import LIMITLESS, Hosts, Room, Taken
from bedplate.resolver.course_shares import Wrong, gpus_of, share_of
from bedplate.site.courses import Course
from bedplate.site.site import Site
from tests.resolver.test_whole_sites import T4, decide, host, planned, rules

if TYPE_CHECKING:
    from bedplate.lock import Lock

QUEUES = {"bedplate_schedulers": ["kueue"]}
#: The same examples each time, however long a loaded machine takes for them.
SAME = settings(deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
TIMES = "×"  # noqa: RUF001


def course(students: int, share: Any, name: str = "intro", **more: Any) -> dict[str, Any]:
    """A course of the pool."""
    return {"name": name, "students": students, "share": share, "pool": "pool_a"} | more


def board(model: str, count: int) -> dict[str, Any]:
    """The GPUs of a host."""
    return {"bedplate_gpu": {"model": model, "count": count}}


def answer(gpus: dict[str, Any], sharing: dict[str, Any], *courses: Any, **more: Any) -> Any:
    """Decide a site of one host with GPUs."""
    everywhere = QUEUES | {"bedplate_courses": list(courses)} | more
    control_plane = host("cp1", ["control_plane"], everywhere)
    node = host("n1", ["gpu_pools", "pool_a"], gpus | {"bedplate_sharing": sharing} | everywhere)
    return decide(control_plane, node)


def said(found: Any, rule: str = "course-fit") -> str:
    """Return the one refusal."""
    assert isinstance(found, Refusal), found
    assert rules(found) == [rule]
    return str(found.problems[0])


def slicing(share: float) -> dict[str, Any]:
    """Time-slicing with shares of a size."""
    return {"mode": "time-slicing", "share": share}


def test_a_class_of_fifty_on_four_gpus() -> None:
    """At 0.08 there are twelve on a GPU and 48 on four; at 0.076 there are thirteen."""
    text = said(answer(T4, slicing(0.08), course(50, 0.08)))
    assert f"got intro 50 {TIMES} 0.08 at once" in text
    assert "48 students of intro on 4 t4-16gb of pool_a: 12 a GPU, bound by compute" in text
    assert "write students: 48; or write share: 0.076 with replicas: 13 for the pool" in text
    assert "add 1 GPU" in text
    planned(answer(T4, slicing(0.08), course(48, 0.08)))
    planned(answer(T4, slicing(0.076), course(50, 0.076)))
    planned(answer(board("t4-16gb", 5), slicing(0.08), course(50, 0.08)))


def test_the_proof_has_room_for_each_share_that_a_person_may_have() -> None:
    """Forty shares are those of twenty students with a notebook and a share on request each."""
    two = {"per_user": {"shares": 2}}
    found = planned(answer(T4, slicing(0.1), course(20, 0.1, **two)))
    line = f"intro: 20 {TIMES} 2 {TIMES} 1187Mi, always; full"
    assert course_fit.lines(found.lock, load_catalogue()) == [("pool_a", line)]
    (one_more,) = course_fit.lines(
        planned(answer(T4, slicing(0.1), course(19, 0.1, **two))).lock, load_catalogue()
    )
    assert one_more[1].endswith("; 1 left"), "a student, not a share"
    text = said(answer(T4, slicing(0.1), course(21, 0.1, **two)))
    assert f"got intro 21 {TIMES} 2 {TIMES} 0.1 at once" in text
    assert "allowed 20 students of intro on 4 t4-16gb" in text
    assert "write students: 20; or write per_user: {shares: 1}; or " in text
    # By claims too, where the queue counts as many.
    claims = course(10, {"memory": "2Gi"}, **two)
    planned(answer(T4, {"mode": "dra"}, claims))
    assert "write students: " in said(answer(T4, {"mode": "dra"}, claims | {"students": 15}))


@pytest.mark.parametrize(("students", "share"), [(20, 0.05), (50, 0.02)])
def test_the_seeds_classes_on_one_v100(students: int, share: float) -> None:
    """By time-slicing or by claims; the device plugin's MPS has 16 shares there."""
    v100 = board("v100-sxm2-32gb", 1)
    planned(answer(v100, slicing(share), course(students, share)))
    planned(answer(v100, {"mode": "dra"}, course(students, share)))
    mps = answer(v100, {"mode": "mps", "share": share}, course(students, share))
    assert rules(mps) == ["mps-clients"]
    text = said(answer(v100, {"mode": "mps", "replicas": 16}, course(students, share)))
    assert "16 students of intro" in text
    assert "16 a GPU, bound by clients of MPS" in text
    assert "write mode: time-slicing or mode: dra for the pool" in text


def test_the_other_classes_of_the_page_fit() -> None:
    """docs/courses.md has a table of classes and modes; those above and here are its rows."""
    mps = {"mode": "mps", "share": 0.05}
    planned(answer(board("t4-16gb", 2), mps, course(40, 0.05)))
    planned(answer(board("t4-16gb", 2), slicing(0.05), course(40, 0.05)))
    cut = {"mode": "mig", "profile": "1g.5gb"}
    planned(answer(board("a100-pcie-40gb", 2), cut, course(14, 0.142)))
    planned(answer(T4, {"mode": "none"}, course(4, {"gpus": 1})))


def test_fifty_on_a_smaller_v100_lack_memory_for_the_framework_itself() -> None:
    asked = course(50, 0.02, frameworks=["pytorch"])
    text = said(answer(board("v100-sxm2-16gb", 1), slicing(0.02), asked), "course-share")
    assert "a share of v100-sxm2-16gb has 301Mi of memory" in text
    assert "more than 400Mi, which the framework itself takes" in text
    assert "write replicas: 37 for the pool, and share: 0.027" in text


def test_what_is_left_for_a_student_is_in_the_lock() -> None:
    lock = planned(answer(T4, slicing(0.1), course(36, 0.1, frameworks=["jax"]))).lock
    assert lock.cluster is not None
    share = lock.cluster.courses["intro"].share
    # A tenth of 16 GiB less 8 %, of which JAX itself takes 512 MiB; all ten have room together.
    assert (share.resource, share.count, share.user_mib) == ("nvidia.com/gpu", 1, 995)
    assert share.user_part == 0.06
    line = f"intro: 36 {TIMES} 995Mi, always; 4 left"
    assert course_fit.lines(lock, load_catalogue()) == [("pool_a", line)]


def test_claims_have_the_frameworks_memory_in_them() -> None:
    asked = course(10, {"memory": "2Gi"}, frameworks=["pytorch"])
    lock = planned(answer(T4, {"mode": "dra"}, asked)).lock
    assert lock.cluster is not None
    share = lock.cluster.courses["intro"].share
    assert (share.memory_mib, share.user_mib, share.user_part) == (2448, 2048, 0.125)
    # What is claimed by memory is no quota of whole GPUs.
    quota = lock.cluster.teams["intro"].gpus["pool_a"]["nvidia.com/gpu"]
    assert quota.guaranteed == 0


def test_courses_by_claims_are_installable() -> None:
    """In what is not installable of mode dra here, no course is named."""
    small, large = course(4, {"memory": "1Gi"}), course(2, {"memory": "6Gi"}, "large")
    for asked in ([course(10, 0.1)], [small, course(1, {"gpus": 1}, "whole"), large]):
        plan = planned(answer(T4, {"mode": "dra"}, *asked))
        assert not [one for one in plan.not_installable if "bedplate_courses" in (one.key or "")]


def test_claims_of_several_sizes() -> None:
    """A GPU has room for two of 6 GiB and one of 1 GiB, each with the memory of CUDA itself."""
    small, large = course(4, {"memory": "1Gi"}), course(8, {"memory": "6Gi"}, "large")
    planned(answer(T4, {"mode": "dra"}, small, large))
    text = said(answer(T4, {"mode": "dra"}, small, large | {"students": 9}))
    assert f"intro 4 {TIMES} 1Gi + large 9 {TIMES} 6Gi at once" in text
    assert "8 students of large on 4 t4-16gb of pool_a: 2 a GPU, bound by memory" in text
    assert "write students: 8; or write share: {memory: " in text
    assert "add 1 GPU" in text


def test_courses_count_at_the_times_at_which_they_overlap() -> None:
    monday = course(30, 0.1, hours=["Mon 10:00-12:00"])
    later = course(30, 0.1, "later", hours=["Mon 12:00-14:00", "Tue 08:00-10:00"])
    planned(answer(T4, slicing(0.1), monday, later))
    over = later | {"hours": ["Mon 11:00-13:00"]}
    text = said(answer(T4, slicing(0.1), monday, over))
    assert f"intro 30 {TIMES} 0.1 + later 30 {TIMES} 0.1 at once, Mon 11:00" in text
    assert "10 students of later" in text
    assert "write replicas" not in text, "shares of a fifteenth are smaller than what is asked"
    assert "move one to other hours" in text


def test_teams_keep_what_they_are_guaranteed() -> None:
    lab = {"lab": {"gpus": {"pool_a": {"guaranteed": 4}}}}
    planned(answer(T4, slicing(0.1), course(36, 0.1), bedplate_teams=lab))
    text = said(answer(T4, slicing(0.1), course(37, 0.1), bedplate_teams=lab))
    assert "+ teams 4 at once" in text
    assert "write students: 36" in text


def test_whole_gpus_of_hosts() -> None:
    """A host of four has room for one who asks for three, and for one who asks for one."""
    none = {"mode": "none"}
    planned(answer(T4, none, course(1, {"gpus": 3}), course(1, {"gpus": 1}, "one")))
    text = said(answer(T4, none, course(2, {"gpus": 2}), course(1, {"gpus": 1}, "one")))
    assert "bound by GPUs of the pool" in text
    assert "add 4 GPUs" in text


def test_instances_of_mig() -> None:
    h100, cut = board("h100-pcie-80gb", 2), {"mode": "mig", "profile": "1g.10gb"}
    planned(answer(h100, cut, course(14, 0.125)))
    text = said(answer(h100, cut, course(15, 0.125)))
    assert "14 students of intro" in text
    assert "instances of the pool, 14 in all" in text
    assert "1/7 with 9536Mi" in said(answer(h100, cut, course(1, 0.2)), "course-share")


@pytest.mark.parametrize(
    ("sharing", "share", "words"),
    [
        (
            {"mode": "none"},
            0.1,
            "write share: {gpus: 1}, or bedplate_sharing: {mode: time-slicing, share: 0.1}",
        ),
        ({"mode": "none"}, {"gpus": 8}, "write share: {gpus: 4}"),
        (slicing(0.1), {"gpus": 1}, "write share: 0.1, or mode: none for the pool"),
        (slicing(0.1), 0.2, "write replicas: 5 for the pool, or share: 0.1"),
        (
            slicing(0.1),
            {"memory": "4Gi"},
            "write replicas: 3 for the pool, or share: {memory: 1187Mi}",
        ),
        ({"mode": "dra"}, {"memory": "16Gi"}, "write share: {memory: 14753Mi}"),
        ({"mode": "dra"}, 0.01, "write share: 0.021"),
    ],
)
def test_a_share_that_the_pool_does_not_have(sharing: Any, share: Any, words: str) -> None:
    assert words in said(answer(T4, sharing, course(4, share)), "course-share")


def test_what_a_refusal_proposes_is_accepted() -> None:
    """The largest class, the largest share and the other mode, each taken by itself."""
    for students, share in ((50, 0.08), (90, 0.045), (41, 0.1)):
        found = answer(T4, slicing(share), course(students, share))
        fix = found.problems[0].fix
        largest = int(fix.split("students: ")[1].split(";")[0])
        planned(answer(T4, slicing(share), course(largest, share)))
        assert rules(answer(T4, slicing(share), course(largest + 1, share))) == ["course-fit"]
        smaller = float(fix.split("share: ")[1].split(" ")[0])
        planned(answer(T4, slicing(smaller), course(students, smaller)))
        finer = round(smaller + 0.001, 3)
        assert isinstance(answer(T4, slicing(finer), course(students, finer)), Refusal)


def test_the_room_that_the_plan_names_is_there_and_no_more() -> None:
    small, large = {"memory": "1Gi"}, {"memory": "5Gi"}
    for sharing, first, other in (
        (slicing(0.1), course(17, 0.1), course(9, 0.1, "other")),
        ({"mode": "dra"}, course(9, small), course(3, large, "other")),
        ({"mode": "none"}, course(1, {"gpus": 1}), course(1, {"gpus": 2}, "other")),
    ):
        lock = planned(answer(T4, sharing, first, other)).lock
        line = course_fit.lines(lock, load_catalogue())[0][1]
        more = int(line.split("; ")[1].split(" ")[0])
        fuller = first | {"students": first["students"] + more}
        full = planned(answer(T4, sharing, fuller, other)).lock
        assert course_fit.lines(full, load_catalogue())[0][1].endswith("; full")
        said(answer(T4, sharing, fuller | {"students": fuller["students"] + 1}, other))


DAYS = ("Mon", "Sun")
LESSONS = st.builds(
    lambda day, begin, length: (day, begin, min(begin + length, 48)),
    st.sampled_from(DAYS),
    # Few of them, so that one often begins when another ends.
    st.sampled_from((20, 22, 24, 44)),
    st.sampled_from((2, 4)),
)
CLASSES = st.lists(
    st.tuples(st.integers(10, 30), st.lists(LESSONS, max_size=3)), min_size=1, max_size=5
)


def clock(halves: int) -> str:
    """The time after so many half hours."""
    return f"{halves // 2:02}:{halves % 2 * 30:02}"


@settings(SAME, max_examples=80)
@given(CLASSES)
@example([(30, [("Mon", 20, 22)]), (30, [("Mon", 22, 24)])])
def test_classes_are_refused_where_some_half_hour_has_too_many(
    classes: list[tuple[int, list[tuple[str, int, int]]]],
) -> None:
    """Every half hour of the week is counted here; the proof looks at beginnings alone."""
    courses = [
        course(
            students,
            0.1,
            f"c{number}",
            hours=[f"{day} {clock(begin)}-{clock(end)}" for day, begin, end in lessons],
        )
        for number, (students, lessons) in enumerate(classes)
    ]
    most = max(
        sum(
            students
            for students, lessons in classes
            if not lessons or any(d == day and b <= half < e for d, b, e in lessons)
        )
        for day in DAYS
        for half in range(48)
    )
    found = list(course_fit.problems(site_of(courses), empty_lock(), load_catalogue()))
    assert bool(found) == (most > 40), (most, found)


@cache
def empty_lock() -> Lock:
    """The decision about 40 shares, before there are courses."""
    return planned(answer(T4, slicing(0.1))).lock


def site_of(courses: list[dict[str, Any]]) -> Site:
    """The same site with courses."""
    wishes = QUEUES | {"bedplate_courses": courses} | T4 | {"bedplate_sharing": slicing(0.1)}
    node = host("n1", ["gpu_pools", "pool_a"], wishes)
    return Site(Path("site"), {"n1": node}, frozenset(node.groups))


def told(found: Any) -> list[str]:
    """Return what a plan says of courses, without its weak facts."""
    notices = planned(found).notices
    return [str(one) for one in notices if "every order" in one.text or "quotas of" in one.text]


def test_the_plan_says_where_the_order_of_students_matters() -> None:
    """Four small claims spread over the GPUs leave room for no large one; few of them do not."""
    small, large = course(4, {"memory": "4Gi"}), course(4, {"memory": "9Gi"}, "large")
    (text,) = told(answer(T4, {"mode": "dra"}, small, large))
    assert "pool_a: intro, large fit together (always), but not in every order" in text
    assert "give each size a pool of its own" in text
    few = [one | {"students": 1} for one in (small, large)]
    assert told(answer(T4, {"mode": "dra"}, *few)) == []
    lab = {"lab": {"gpus": {"pool_a": {"guaranteed": 2, "borrow": 0}}}}
    spread = {"name": "classroom", "placement": {"pods": "spread"}}
    beside = {"bedplate_teams": lab, "bedplate_preset": spread}
    (text,) = told(answer(T4, {"mode": "dra"}, small, **beside))
    assert "pool_a: intro, teams fit together (always), but not in every order" in text
    assert told(answer(T4, slicing(0.1), course(20, 0.1), course(20, 0.1, "other"))) == []


def test_a_build_without_an_image_is_not_installable_and_says_what_makes_it() -> None:
    """Without a mirror, hosts pull images from registries alone. The decision itself stands."""
    twice = [course(10, 0.1, frameworks=["pytorch"]), course(10, 0.1, "b", frameworks=["pytorch"])]
    upstream = {"bedplate_sources": {"mode": "upstream"}}
    board_ = board("v100-sxm2-32gb", 4)
    plan = planned(answer(board_, slicing(0.1), *twice, **upstream))
    (build,) = plan.lock.pools["pool_a"].frameworks
    (problem,) = plan.not_installable
    assert (problem.rule, problem.key) == ("course-image", "bedplate_courses[0].frameworks[0]")
    assert problem.got == build.identity
    assert "bedplate frameworks SITE --output FOLDER" in str(problem)
    assert f"facts/images.yml with notebook: {build.identity}" in str(problem)
    for asked, sources in (({}, upstream), ({"frameworks": ["pytorch"]}, {})):
        found = planned(answer(board_, slicing(0.1), course(10, 0.1, **asked), **sources))
        assert not found.not_installable


def test_the_plan_says_where_quotas_of_other_hours_can_be_borrowed() -> None:
    lessons = [["Mon 10:00-12:00"], ["Tue 10:00-12:00"]]
    both = [course(36, 0.1, f"c{n}", hours=hours) for n, hours in enumerate(lessons)]
    lab = {"gpus": {"pool_a": {"guaranteed": 4, "borrow": 10}}}
    (text,) = told(answer(T4, slicing(0.1), *both, bedplate_teams={"lab": lab}))
    assert "courses of different hours have quotas of 76 where there are 40" in text
    alone = {"lab": {"gpus": {"pool_a": {"guaranteed": 4, "borrow": 0}}}}
    assert told(answer(T4, slicing(0.1), *both, bedplate_teams=alone)) == []


@settings(SAME, max_examples=200)
@given(
    st.integers(2, 60),
    st.integers(2_000, 80_000),
    st.one_of(
        st.integers(1, 999).map(lambda thousandths: thousandths / 1000),
        st.integers(1, 20_000).map(lambda size: {"memory": f"{size}Mi"}),
    ),
    st.sampled_from([[], ["jax"], ["pytorch"]]),
)
def test_a_student_gets_what_is_asked_for_and_a_gpu_never_gives_more_than_it_has(
    shares: int, memory: int, share: Any, frameworks: list[str]
) -> None:
    pool = empty_lock().pools["pool_a"]
    gpus = replace(gpus_of(pool, 1, load_catalogue()), shares=shares, memory=memory)
    asked = Course.model_validate(course(1, share, frameworks=frameworks))
    reserve = {"": 320, "jax": 512, "pytorch": 400}["".join(frameworks)]
    each = memory // shares
    if isinstance(share, float):
        enough = Fraction(str(share)) * shares <= 1 and each > reserve
    else:
        enough = each >= reserve + int(share["memory"][:-2])
    found = share_of(asked, pool, gpus, load_catalogue())
    assert isinstance(found, Wrong) == (not enough), found
    if isinstance(found, Wrong):
        return
    assert found.user_mib is not None
    assert shares * (found.user_mib + reserve) <= memory


MANY = {"mode": "time-slicing", "replicas": 50}


class Pods:
    """Pods on GPUs of hosts, tried out one after the other."""

    def __init__(self, per_host: int, memory: int, pods: list[int]) -> None:
        self.per_host, self.memory, self.pods = per_host, memory, pods

    def fit(self, sizes: tuple[int, ...]) -> bool:
        """Try every GPU for each pod."""

        @cache
        def rest(index: int, free: tuple[int, ...], pods: tuple[int, ...]) -> bool:
            if index == len(sizes):
                return True
            for gpu, has in enumerate(free):
                node = gpu // self.per_host
                if has >= sizes[index] and pods[node]:
                    left = (*free[:gpu], has - sizes[index], *free[gpu + 1 :])
                    fewer = (*pods[:node], pods[node] - 1, *pods[node + 1 :])
                    if rest(index + 1, left, fewer):
                        return True
            return False

        return rest(0, (self.memory,) * (self.per_host * len(self.pods)), tuple(self.pods))


@SAME
@given(
    st.integers(1, 3),
    st.lists(st.integers(0, 5), min_size=1, max_size=3),
    st.lists(st.integers(1, 6), min_size=1, max_size=9),
)
def test_claims_on_hosts_with_few_pods_are_never_judged_wrongly(
    per_host: int, pods: list[int], sizes: list[int]
) -> None:
    gpus = Gpus(per_host * len(pods), per_host, 6, 6, 48, None, "dra", "t4")
    hosts = tuple(Hosts(1, (many, LIMITLESS, LIMITLESS, LIMITLESS)) for many in pods)
    room = Room("pool_a", gpus, {"gpu": per_host * len(pods)}, {}, hosts)
    taken = [Taken(sizes.count(size), "gpu", size) for size in sorted(set(sizes))]
    found, truth = room.proved(taken), Pods(per_host, 6, pods).fit(tuple(sorted(sizes)))
    assert found is not (Answer.TOO_MUCH if truth else Answer.FITS)


def test_few_claims_with_whole_gpus_beside_them_need_no_proof_by_parts_of_a_host() -> None:
    """Fifty claims on a GPU are more than its eighth of a node's pods, and not too many for it."""
    gpus = Gpus(32, 8, 100, 100, 48, None, "dra", "t4")
    hosts = (Hosts(4, (106, LIMITLESS, LIMITLESS, LIMITLESS)),)
    room = Room("pool_a", gpus, {"gpu": 32}, {}, hosts)
    assert room.proved([Taken(200, "gpu", 2), Taken(28, "gpu", 100)]) is Answer.FITS
    assert room.proved([Taken(200, "gpu", 2), Taken(29, "gpu", 100)]) is Answer.TOO_MUCH
    assert room.proved([Taken(425, "gpu", 2)]) is Answer.TOO_MUCH


def sized(*courses: Any, sharing: dict[str, Any], gpus: dict[str, Any] = T4, **size: Any) -> Any:
    """Decide courses on one host of which memory and CPUs are known, as far as they are given."""
    own = {"bedplate_host": {"os": "debian-12", **size}}
    return answer(gpus | own, sharing, *courses)


def notebooks(found: Any) -> dict[str, tuple[int | None, int | None, int | None]]:
    """Return MiB, thousandths of CPUs and MiB of /dev/shm of each course."""
    cluster = planned(found).lock.cluster
    assert cluster is not None
    return {
        name: (one.notebook.memory_mib, one.notebook.cpu_milli, one.notebook.shm_mib)
        for name, one in cluster.courses.items()
    }


def test_a_notebook_has_its_part_of_the_node() -> None:
    """Of 64 GiB 3,648 MiB are kept, 100 are left free and the cluster has 1,212 itself.

    The fortieth part of the rest is 1,514 MiB, in whole 64 MiB. Of 16 CPUs 240 m are kept and 795
    requested by the cluster. flannel 100 m and 50 MiB, images 5 m and 10 MiB; CoreDNS twice 100 m
    and 70 MiB, Kueue twice 100 m and 192 MiB, hub and proxy 150 m and 352 MiB, usage 20 and 64.
    """
    found = sized(course(36, 0.1), sharing=slicing(0.1), memory="64Gi", cpus=16)
    own = (50 + 10 + 140 + 384 + 352 + 64, 100 + 5 + 200 + 200 + 150 + 20)
    memory = (64 * 1024 - 3648 - 100 - own[0]) // 40 // 64 * 64
    cpu = (16000 - 240 - own[1]) // 40 // 10 * 10
    assert notebooks(found) == {"intro": (memory, cpu, memory // 2)} == {"intro": (1472, 370, 736)}
    line = course_fit.lines(planned(found).lock, load_catalogue())[0][1]
    assert line == f"intro: 36 {TIMES} 1187Mi and 1472Mi of the host, always; 4 left"


def test_of_a_host_of_unknown_size_only_what_is_asked_for_is_had() -> None:
    """And the plan says whose notebooks could fill their node."""
    found = sized(
        course(36, 0.1), course(4, 0.1, "own", memory="8Gi", cpus=1.5), sharing=slicing(0.1)
    )
    assert notebooks(found) == {"intro": (None, None, None), "own": (8192, 1500, 4096)}
    told = [one for one in planned(found).notices if "no limit of memory" in one.text]
    assert [one.text for one in told] == ["notebooks of intro have no limit of memory"]


def test_memory_of_the_hosts_is_proved_beside_their_gpus() -> None:
    """60,756 MiB are for notebooks: 29 of 2 GiB, where the GPUs have forty shares."""
    asked = course(30, 0.1, memory="2Gi")
    text = said(sized(asked, sharing=slicing(0.1), memory="64Gi", cpus=16))
    assert "29 students of intro on 4 t4-16gb of pool_a: bound by memory of the hosts" in text
    assert "60756Mi of one are for notebooks" in text
    assert "write students: 29; or write memory: 2025Mi" in text
    planned(sized(asked | {"students": 29}, sharing=slicing(0.1), memory="64Gi", cpus=16))
    planned(sized(asked | {"memory": "2025Mi"}, sharing=slicing(0.1), memory="64Gi", cpus=16))


def test_cpus_of_the_hosts_are_proved_too() -> None:
    asked = course(30, 0.1, cpus=0.6)
    text = said(sized(asked, sharing=slicing(0.1), memory="64Gi", cpus=16))
    assert "25 students of intro" in text
    assert "bound by CPUs of the hosts: 15.075 of one are for notebooks" in text
    assert "write students: 25; or write cpus: 0.502" in text


def test_disk_of_the_hosts_is_proved_too() -> None:
    """Of 100 GiB kubelet keeps a tenth free: nine notebooks of 10 GiB, where 40 shares are."""
    asked, known = course(10, 0.1, disk="10Gi"), {"disk": "100Gi"}
    text = said(sized(asked, sharing=slicing(0.1), **known))
    assert "9 students of intro on 4 t4-16gb of pool_a" in text
    assert "bound by disk of the hosts: 92160Mi of one are for notebooks" in text
    assert "write students: 9; or write disk: 9216Mi" in text
    planned(sized(asked | {"students": 9}, sharing=slicing(0.1), **known))
    found = planned(sized(asked | {"disk": "9Gi"}, sharing=slicing(0.1), **known))
    assert not [one for one in found.notices if "disk" in one.text]
    assert found.lock.cluster is not None
    assert found.lock.cluster.courses["intro"].notebook.disk_mib == 9 * 1024
    line = course_fit.lines(found.lock, load_catalogue())[0][1]
    assert line.endswith(" and 9Gi of disk, always; full")


def test_disk_that_the_site_or_kubelet_keeps_is_no_notebooks() -> None:
    """The threshold of evictionHard in place of the tenth, and what is reserved."""
    kubelet = {
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "20%"},
        "kubeReserved": {"ephemeral-storage": "30Gi"},
    }
    cluster = {"bedplate_kubernetes": {"endpoint": "10.0.0.1:6443", "kubelet": kubelet}}
    own = {"bedplate_host": {"os": "debian-12", "disk": "100Gi"}}
    asked = course(5, 0.1, disk="10Gi")
    planned(answer(T4 | own, slicing(0.1), asked, **cluster))
    text = said(answer(T4 | own, slicing(0.1), asked | {"students": 6}, **cluster))
    assert "51200Mi of one are for notebooks" in text


def test_disk_of_hosts_of_unknown_size_is_limited_and_not_proved() -> None:
    found = planned(sized(course(10, 0.1, disk="10Gi"), sharing=slicing(0.1)))
    told = [(one.text, one.hint) for one in found.notices if "disk" in one.text]
    assert told == [
        (
            "whether hosts have the disk for notebooks of intro is not known",
            "write bedplate_host.disk of pool_a",
        )
    ]


def test_a_node_that_keeps_all_its_disk_is_refused() -> None:
    kubelet = {"kubeReserved": {"ephemeral-storage": "100Gi"}}
    cluster = {"bedplate_kubernetes": {"endpoint": "10.0.0.1:6443", "kubelet": kubelet}}
    own = {"bedplate_host": {"os": "debian-12", "disk": "100Gi"}}
    found = answer(T4 | own, slicing(0.1), course(1, 0.1), **cluster)
    assert isinstance(found, Refusal)
    assert "100Gi in kubeReserved / allowed less than the 100Gi of pool_a" in str(found.problems[0])


def test_shm_is_a_part_of_the_memory() -> None:
    asked = course(4, 0.1, memory="2Gi", shm="2Gi")
    text = said(sized(asked, sharing=slicing(0.1)), "course-share")
    assert "got 2048Mi for /dev/shm of a notebook with 2048Mi of memory" in text
    assert "write shm: 1024Mi" in text
    assert notebooks(sized(asked | {"shm": "512Mi"}, sharing=slicing(0.1))) == {
        "intro": (2048, None, 512)
    }


def test_claims_have_the_nodes_part_that_they_have_of_its_gpus() -> None:
    """Half of one of four GPUs, or all of one: an eighth and a quarter of the node."""
    half, whole = course(1, 0.5, "half"), course(1, {"gpus": 1}, "whole")
    found = notebooks(sized(half, whole, sharing={"mode": "dra"}, memory="64Gi", cpus=16))
    assert found["half"][0] == 60788 // 8 // 64 * 64
    assert found["whole"][0] == 60788 // 4 // 64 * 64
