"""Which build of a framework a GPU gets by the real catalogue, and what a refusal names."""

from __future__ import annotations

from typing import Any

import pytest

from bedplate.bill.needs import needs_of
from bedplate.catalogue import load_catalogue
from bedplate.components.frameworks import hub_settings
from bedplate.lock.builds import build_of
from bedplate.resolver import Plan, Refusal
from tests.resolver.test_whole_sites import decide, host, node

UBUNTU = {"bedplate_host": {"os": "ubuntu-24.04"}}


def decided(model: str, framework: str, **wishes: Any) -> Plan | Refusal:
    """Decide a site with one pool of a GPU model that asks for a framework."""
    asked = {
        **UBUNTU,
        "bedplate_gpu": {"model": model, "count": 8},
        "bedplate_frameworks": [framework],
        **wishes,
    }
    return decide(host("cp1", ["control_plane"], UBUNTU), node("a", asked))


@pytest.mark.parametrize(
    ("model", "framework", "build"),
    [
        # CUDA 13 has no kernels for Volta: the builds with CUDA 12 have.
        ("v100-sxm2-32gb", "pytorch-2.11", "2.11.0 cu126"),
        ("v100-sxm2-32gb", "pytorch-2.14", "2.14.0 cu126"),
        ("v100-sxm2-32gb", "jax-0.12", "0.12.0.1 cuda12"),
        ("v100-sxm2-32gb", "tensorflow", "2.21.0 cuda12"),
        ("v100-sxm2-32gb", "paddle", "3.3.1 cu126"),
        ("t4-16gb", "pytorch-2.11", "2.11.0 cu130"),
        ("h100-sxm5-80gb", "pytorch-2.14", "2.14.0 cu130"),
        # What no list of its own release confirms is taken where it is named, and never by default.
        ("h100-sxm5-80gb", "pytorch", "2.14.0 cu130"),
        ("h100-sxm5-80gb", "pytorch-2.15", "2.15.0 cu132"),
        # Builds for CPUs have no kernels for any GPU, and none is asked of them.
        ("v100-sxm2-32gb", "jax-cpu", "0.12.0.1 cpu"),
        ("v100-sxm2-32gb", "jax-cpu-0.6", "0.6.2 cpu"),
        ("b200", "paddle-cpu", "3.3.1 cpu"),
        ("b200", "tensorflow-cpu-2.20", "2.20.0 cpu"),
        ("b200", "pytorch-cpu", "2.9.1 cpu"),
    ],
)
def test_a_gpu_gets_a_build_that_has_kernels_for_it(model: str, framework: str, build: str) -> None:
    plan = decided(model, framework)
    assert isinstance(plan, Plan), plan.problems
    (found,) = plan.lock.pools["pool_a"].frameworks
    assert f"{found.version} {found.variant}" == build
    assert plan.lock.pools["pool_a"].not_yet == []


@pytest.mark.parametrize(
    ("model", "framework", "fix"),
    [
        ("v100-sxm2-32gb", "pytorch-2.15", "write pytorch-2.14"),
        ("b200", "paddle", "remove it"),
    ],
)
def test_a_framework_without_kernels_is_refused_with_the_newest_that_has_them(
    model: str, framework: str, fix: str
) -> None:
    refusal = decided(model, framework)
    assert isinstance(refusal, Refusal)
    (problem,) = refusal.problems
    assert problem.rule == "framework-gpu"
    assert problem.got is not None
    assert framework in problem.got
    assert problem.fix.startswith(fix)


def test_a_driver_that_does_not_run_the_build_s_cuda_is_named() -> None:
    """R535 runs CUDA 12, so the newest build of CUDA 12 is taken, and one of CUDA 13 refused."""
    old = {"bedplate_driver": {"branch": "535", "source": "runfile"}}
    plan = decided("h100-pcie-80gb", "pytorch-2.14", **old)
    assert isinstance(plan, Plan), plan.problems
    (found,) = plan.lock.pools["pool_a"].frameworks
    assert (found.version, found.variant) == ("2.14.0", "cu126")
    refusal = decided("h100-pcie-80gb", "pytorch-2.15", **old)
    assert isinstance(refusal, Refusal)
    assert {problem.rule for problem in refusal.problems} == {"framework-driver"}


def test_builds_for_cpus_and_gpus_are_decided_beside_each_other() -> None:
    """And a driver that no CUDA of today runs on does not matter to the one for CPUs."""
    old = {"bedplate_driver": {"branch": "535", "source": "runfile"}}
    plan = decided("h100-pcie-80gb", "jax-cpu", **old, bedplate_pins={"jax_cpu": "0.6.2"})
    assert isinstance(plan, Plan), plan.problems
    (found,) = plan.lock.pools["pool_a"].frameworks
    assert found.identity == "jax-cpu-0.6.2-cpu"
    assert (found.cuda, found.cudnn, found.nccl) == (None, None, None)
    both = {"bedplate_frameworks": ["jax-0.12", "jax-cpu"]}
    plan = decided("h100-pcie-80gb", "jax", **both)
    assert isinstance(plan, Plan), plan.problems
    pool = plan.lock.pools["pool_a"]
    assert [one.name for one in pool.frameworks] == ["jax", "jax-cpu"]
    names = {
        asked: build_of(pool.frameworks, asked)
        for asked in ("jax", "jax-0.12", "jax-cpu", "jax-cpu-0")
    }
    assert {asked: one.name if one else None for asked, one in names.items()} == {
        "jax": "jax",
        "jax-0.12": "jax",
        "jax-cpu": "jax-cpu",
        "jax-cpu-0": "jax-cpu",
    }
    assert build_of(pool.frameworks, "jax-0.1") is None


SIZE = {"name": "large", "share": {"gpus": 2}, "at_once": 1}


def taught(*frameworks: str, **more: Any) -> Plan | Refusal:
    """Decide a site whose course has these frameworks, on four T4s."""
    course = {"name": "intro", "students": 30, "share": {"gpus": 1}, "pool": "pool_a", **more}
    everywhere = UBUNTU | {
        "bedplate_courses": [course | {"frameworks": list(frameworks)}],
        "bedplate_schedulers": ["kueue"],
    }
    gpus = {"bedplate_gpu": {"model": "t4-16gb", "count": 4}}
    return decide(host("cp1", ["control_plane"], everywhere), node("a", everywhere | gpus))


def test_a_notebook_for_cpus_has_its_runs_in_the_build_for_gpus() -> None:
    """Of its own version where the course has that."""
    plan = taught("jax-cpu-0.6", "jax-0.12", "jax-0.6", "jax-cpu-0.12", runs_at_once=4)
    assert isinstance(plan, Plan), plan.problems
    profiles = hub_settings.settings(plan.lock, str)["courses"]["intro"]["profiles"]
    assert [(one["slug"], one["image"], one["runs"]) for one in profiles] == [
        ("intro-jax-cpu-0-6-2", "notebook-jax-cpu-0.6.2-cpu", "intro-jax-0-6-2"),
        ("intro-jax-0-12-0-1", "notebook-jax-0.12.0.1-cuda12", "intro-jax-0-12-0-1"),
        ("intro-jax-0-6-2", "notebook-jax-0.6.2-cuda12", "intro-jax-0-6-2"),
        ("intro-jax-cpu-0-12-0-1", "notebook-jax-cpu-0.12.0.1-cpu", "intro-jax-0-12-0-1"),
    ]
    assert profiles[0]["title"] == "intro with jax-cpu 0.6.2"
    assert profiles[0]["about"].startswith("Jax-cpu 0.6.2 without a GPU. A run by %%share has ")
    plan = taught("jax-cpu", "jax-0.6", runs_at_once=4)
    assert isinstance(plan, Plan), plan.problems
    profiles = hub_settings.settings(plan.lock, str)["courses"]["intro"]["profiles"]
    assert [one["runs"] for one in profiles] == ["intro-jax", "intro-jax"]
    (other,) = (one for one in plan.warnings if "and their runs" in one)
    assert "notebooks of intro have jax-cpu 0.12.0.1, and their runs jax 0.6.2; name both" in other
    assert other.endswith("as jax-cpu-0.6 and jax-0.6")
    needed = dict(needs_of(plan.lock, load_catalogue()).images)
    assert needed["images.bedplate.internal/notebook-jax-cpu:0.12.0.1-cpu"].built


@pytest.mark.parametrize(
    ("frameworks", "more", "got", "fix"),
    [
        (
            ("jax", "jax-cpu"),
            {"students": 4},
            "jax-cpu, in notebooks that each hold a share of a GPU",
            "write jax, or runs_at_once: N with jax as a further framework",
        ),
        (
            ("pytorch", "jax-cpu-0.6"),
            {"runs_at_once": 4},
            "jax-cpu-0.6, without a build for the runs by %%share",
            "add jax to frameworks: runs have its image",
        ),
        (
            ("jax", "jax-cpu"),
            {"runs_at_once": 2, "sizes": [SIZE]},
            "jax-cpu, in notebooks that each hold a share of a GPU",
            "write frameworks in size intro-large too, without jax-cpu",
        ),
        (
            ("jax", "jax-cpu"),
            {"students": 1, "sizes": [SIZE]},
            "jax-cpu, in notebooks that each hold a share of a GPU",
            "write jax, or runs_at_once: N with jax as a further framework",
        ),
    ],
)
def test_a_course_without_a_use_for_a_build_for_cpus_is_refused(
    frameworks: tuple[str, ...], more: dict[str, Any], got: str, fix: str
) -> None:
    refusal = taught(*frameworks, **more)
    assert isinstance(refusal, Refusal)
    (problem,) = refusal.problems
    assert (problem.rule, problem.got, problem.fix) == ("course-cpu-build", got, fix)
    assert problem.key == "bedplate_courses[0].frameworks[1]"


def test_a_size_may_have_no_build_for_cpus() -> None:
    sizes = [SIZE | {"frameworks": ["jax"]}]
    plan = taught("jax", "jax-cpu", runs_at_once=2, sizes=sizes)
    assert isinstance(plan, Plan), plan.problems
    courses = hub_settings.settings(plan.lock, str)["courses"]
    assert [len(courses[name]["profiles"]) for name in ("intro", "intro-large")] == [2, 1]
    refusal = taught(
        "jax", "jax-cpu", runs_at_once=2, sizes=[SIZE | {"frameworks": ["jax", "jax-cpu"]}]
    )
    assert isinstance(refusal, Refusal)
    (problem,) = refusal.problems
    assert (problem.key, problem.fix) == ("bedplate_courses[0].sizes[0].frameworks[1]", "write jax")
