"""Own images against the driver and GPUs of their pool, and in courses: the real catalogue."""

from __future__ import annotations

from typing import Any

import pytest

from bedplate.bill.needs import NeededImage, needs_of
from bedplate.catalogue import load_catalogue
from bedplate.components.frameworks import hub_settings
from bedplate.courses.fractions import FRACTION
from bedplate.resolver import Plan, Refusal
from tests.resolver.test_whole_sites import V100, decide, host, node

UBUNTU = {"bedplate_host": {"os": "ubuntu-24.04"}}
IMAGE = f"registry.example/team/sim@sha256:{'a' * 64}"


def decided(**says: Any) -> Plan | Refusal:
    """Decide a site with V100s and one image, which says this of itself."""
    images = {"bedplate_images": {"sim": {"image": IMAGE, "pool": "pool_a", **says}}}
    shared = UBUNTU | images
    return decide(host("cp1", ["control_plane"], shared), node("a", shared | V100))


@pytest.mark.parametrize(
    "says",
    [
        {},
        {"cuda": "12.6", "built_for": ["7.0", "8.0"]},
        {"cuda": "12.6", "built_for": ["6.0"], "ptx": True},
        {"cuda": "13.0"},
        {"requires": "cuda>=12.6 brand=tesla,driver>=535"},
    ],
)
def test_an_image_that_goes_with_its_pool_is_in_the_lock(says: dict[str, Any]) -> None:
    plan = decided(**says)
    assert isinstance(plan, Plan), plan.problems
    assert plan.lock.cluster is not None
    assert plan.lock.cluster.images["sim"].model_dump() == {"image": IMAGE, "pool": "pool_a"}


@pytest.mark.parametrize(
    ("says", "got", "allowed"),
    [
        (
            {"built_for": ["7.5", "8.0"], "ptx": True},
            "image has no code for the GPU: compute capabilities 7.5, 8.0 and newer",
            "7.0 (v100-sxm2-32gb)",
        ),
        (
            {"cuda": "14.0"},
            "driver is too old for the image's CUDA: CUDA 14.0",
            "CUDA 11 or 12 or 13 with driver 580.178.04",
        ),
        (
            {"requires": "cuda>=13.1"},
            "driver does not meet NVIDIA_REQUIRE_CUDA: cuda>=13.1",
            "driver 580.178.04, CUDA 13.0",
        ),
    ],
)
def test_an_image_that_does_not_is_refused_at_its_setting(
    says: dict[str, Any], got: str, allowed: str
) -> None:
    refusal = decided(**says)
    assert isinstance(refusal, Refusal)
    (problem,) = refusal.problems
    assert (problem.rule, problem.got, problem.allowed) == ("image-runs", got, allowed)
    assert problem.key == "bedplate_images.sim"
    assert (problem.file, problem.line) == ("group_vars/pool_a.yml", 1)


def test_an_image_of_no_pool_is_refused() -> None:
    refusal = decided(pool="pool_b")
    assert isinstance(refusal, Refusal)
    (problem,) = refusal.problems
    assert (problem.rule, problem.got, problem.fix) == ("image-pool", "pool_b", "write pool_a")


EASY = {"bedplate_gpu": {"model": "t4-16gb", "count": 4}}
SHARED = EASY | {"bedplate_sharing": {"mode": "time-slicing", "replicas": 10}}
OWN = f"registry.example:5000/lab/own:autumn@sha256:{'b' * 64}"


def taught(*frameworks: str, **images: dict[str, Any]) -> Plan | Refusal:
    """Decide a site of two pools with T4s, where a course of 20 in pool_a has these frameworks."""
    course = {"name": "intro", "students": 20, "share": 0.1, "pool": "pool_a"}
    everywhere = UBUNTU | {
        "bedplate_courses": [course | {"frameworks": list(frameworks)}],
        "bedplate_schedulers": ["kueue"],
        "bedplate_images": images,
    }
    nodes = [node(pool, everywhere | SHARED) for pool in ("a", "b")]
    return decide(host("cp1", ["control_plane"], everywhere), *nodes)


def test_a_courses_own_image_is_a_profile_beside_its_frameworks() -> None:
    """In the course's order; a framework of the same course is decided as ever."""
    asked = {"image": OWN, "pool": "pool_a", "cuda": "12.2"}
    plan = taught("mycourse", "pytorch", "mycourse", mycourse=asked)
    assert isinstance(plan, Plan), plan.problems
    lock = plan.lock
    (build,) = lock.pools["pool_a"].frameworks
    assert build.name == "pytorch"
    assert lock.pools["pool_b"].frameworks == []
    profiles = hub_settings.settings(lock, str)["courses"]["intro"]["profiles"]
    assert [(one["slug"], one["title"], one["image"]) for one in profiles] == [
        ("intro--mycourse", "intro with mycourse", OWN),
        ("intro-pytorch", f"intro with pytorch {build.version}", f"notebook-{build.identity}"),
    ]
    assert profiles[0]["about"].startswith("Mycourse on 1 of 10 shares of a t4-16gb, ")
    variables = set(FRACTION.values())
    assert variables <= set(profiles[0]["environment"])
    assert not variables & set(profiles[1]["environment"])


def test_an_own_image_alone_is_the_courses_only_profile_and_reserves_the_most() -> None:
    """It may hold any framework: no student is promised memory that one of them takes."""
    own, known = taught("mycourse", mycourse={"image": OWN, "pool": "pool_a"}), taught("jax")
    for plan in (own, known):
        assert isinstance(plan, Plan), plan.problems
    clusters = [plan.lock.cluster for plan in (own, known) if isinstance(plan, Plan)]
    mine, theirs = (one.courses["intro"].share.user_mib for one in clusters if one is not None)
    assert mine is not None
    assert theirs is not None
    assert mine <= theirs
    (profile,) = hub_settings.settings(own.lock, str)["courses"]["intro"]["profiles"]  # type: ignore[union-attr]
    assert (profile["slug"], profile["title"]) == ("intro--mycourse", "intro")


@pytest.mark.parametrize("pool", ["pool_a", "pool_b"])
def test_a_bill_has_every_own_image_by_its_digest(pool: str) -> None:
    """Those of jobs too: a mirror that lacks one leaves its pods without it."""
    plan = taught(mycourse={"image": OWN, "pool": pool})
    assert isinstance(plan, Plan), plan.problems
    needed = needs_of(plan.lock, load_catalogue()).images
    assert {name: one for name, one in needed.items() if "own" in name} == {
        f"registry.example:5000/lab/own:bedplate-{'b' * 16}": NeededImage(
            "bedplate_images.mycourse", "nobody", digest=f"sha256:{'b' * 64}"
        )
    }


@pytest.mark.parametrize(
    ("named", "images", "rule", "got", "allowed", "fix"),
    [
        (
            "mycurse",
            {"mycourse": "pool_a", "other": "pool_b"},
            "framework-known",
            "mycurse",
            (
                "jax, jax-cpu, mycourse, paddle, paddle-cpu, pytorch, pytorch-cpu, tensorflow, "
                "tensorflow-cpu"
            ),
            "write mycourse",
        ),
        (
            "mycourse",
            {"mycourse": "pool_b"},
            "course-own-image",
            "mycourse, an image for pool_b",
            "images for pool_a",
            "add the image to bedplate_images once more, by another name, with pool: pool_a",
        ),
        (
            "pytorch",
            {"pytorch": "pool_a"},
            "course-own-image",
            "pytorch, which is a framework and one of bedplate_images",
            "one of both",
            "give the image another name in bedplate_images",
        ),
    ],
)
def test_what_a_course_cannot_start_is_refused(
    named: str, images: dict[str, str], rule: str, got: str, allowed: str, fix: str
) -> None:
    refusal = taught(named, **{name: {"image": OWN, "pool": pool} for name, pool in images.items()})
    assert isinstance(refusal, Refusal)
    (problem,) = refusal.problems
    assert (problem.rule, problem.got, problem.allowed, problem.fix) == (rule, got, allowed, fix)
    assert problem.key == "bedplate_courses[0].frameworks[0]"


def test_a_courses_image_of_a_newer_cuda_than_its_driver_is_refused() -> None:
    refusal = taught("mycourse", mycourse={"image": OWN, "pool": "pool_a", "cuda": "99.0"})
    assert isinstance(refusal, Refusal)
    (problem,) = refusal.problems
    assert (problem.rule, problem.key) == ("image-runs", "bedplate_images.mycourse")
    assert problem.got == "driver is too old for the image's CUDA: CUDA 99.0"
