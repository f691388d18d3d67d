"""Which build of a framework a GPU gets by the real catalogue, and what a refusal names."""

from __future__ import annotations

from typing import Any

import pytest

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
