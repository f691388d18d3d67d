"""Teams' own images against the driver and GPUs of their pool, with the real catalogue."""

from __future__ import annotations

from typing import Any

import pytest

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
