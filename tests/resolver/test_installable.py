"""What is planned and not installable: the setting that the site wrote, and what to do with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bedplate.resolver import installable
from bedplate.resolver.outcome import Kind
from tests.resolver.test_whole_sites import T4, decide, host, planned

if TYPE_CHECKING:
    from bedplate.resolver.answer import Plan

RELEASE = {"version": "1.35", "endpoint": "k8s.example:6443"}
#: What a site writes for all hosts and for its pool, with what its plan says of it.
WRITTEN: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[str, str, str], str]] = {
    "operator": (
        {"bedplate_operators": ["gpu-operator"]},
        {},
        (
            "bedplate_operators[0]",
            "gpu-operator",
            "remove gpu-operator from bedplate_operators",
        ),
        "addon gpu-operator",
    ),
    "operator-of-rdma": (
        {"bedplate_kubernetes": RELEASE},
        {"bedplate_rdma": {"stack": "doca", "operator": "network-operator"}},
        ("bedplate_rdma.operator", "network-operator", "remove bedplate_rdma.operator"),
        "addon network-operator",
    ),
    "scheduler": (
        {"bedplate_schedulers": ["kueue", "hami"]},
        {},
        ("bedplate_schedulers[1]", "hami", "choose one of these, or remove it"),
        "addon hami",
    ),
    "mode-below-a-runtime": (
        {"bedplate_container_runtime": {"name": "cri-o"}},
        {"bedplate_sharing": {"mode": "dra"}},
        (
            "bedplate_sharing.mode",
            "mode dra below CRI-O",
            "choose another mode, or containerd as bedplate_container_runtime.name",
        ),
        "mode dra below CRI-O",
    ),
    "mode-on-a-system": (
        {},
        {"bedplate_host": {"os": "ubuntu-24.04"}}
        | {"bedplate_sharing": {"mode": "mps", "replicas": 4}},
        (
            "bedplate_sharing.mode",
            "mode mps on ubuntu-24.04",
            "write time-slicing, or one of these systems as bedplate_host.os of the pool",
        ),
        "mode mps on ubuntu-24.04",
    ),
}


def plan(everywhere: dict[str, Any], pool: dict[str, Any]) -> Plan:
    """Decide a site of one pool."""
    return planned(
        decide(
            host("cp1", ["control_plane"], everywhere),
            host("n1", ["gpu_pools", "pool_a"], T4 | everywhere | pool),
        )
    )


@pytest.mark.parametrize("case", WRITTEN)
def test_what_cannot_be_installed_names_the_setting_that_was_written(case: str) -> None:
    everywhere, pool, right, part = WRITTEN[case]
    found = plan(everywhere, pool)
    assert [(one.key, one.got, one.fix) for one in found.not_installable] == [right]
    assert [installable.described(one) for one, _ in installable.parts(found.lock)] == [part]


def test_whole_gpus_are_among_what_a_runtime_has_in_place_of_claims() -> None:
    everywhere, pool, _, _ = WRITTEN["mode-below-a-runtime"]
    (one,) = plan(everywhere, pool).not_installable
    assert one.allowed == "mig, mps, none, time-slicing"


@pytest.mark.parametrize(
    ("system", "branch", "named"),
    [("debian-12", "535", ()), ("debian-13", "535", ("mode mps on debian-13",))],
)
def test_a_mode_that_pods_got_is_named_where_another_system_has_it(
    system: str, branch: str, named: tuple[str, ...]
) -> None:
    """Pods got shares by MPS on Debian 12: tests/mixes/test_gpus_by_share.py."""
    pool = {"bedplate_sharing": {"mode": "mps", "replicas": 4}}
    pool |= {"bedplate_host": {"os": system}, "bedplate_driver": {"branch": branch}}
    notices = plan({}, pool).notices
    (told,) = [one.items for one in notices if one.kind is Kind.UNTRIED] or [()]
    assert tuple(told) == named


def test_instances_of_several_sizes_are_warned_of_by_nothing_untried() -> None:
    """Pods got them: tests/mixes/test_gpus_by_mig.py."""
    a100 = {"bedplate_gpu": {"model": "a100-pcie-80gb", "count": 2}}
    cut = {"bedplate_sharing": {"mode": "mig", "profiles": {"3g.40gb": 1, "1g.10gb": 2}}}
    found = [one.items for one in plan({}, a100 | cut).notices if one.kind is Kind.UNTRIED]
    assert found == [("source vendor-repo",)]


@pytest.mark.parametrize("name", ["kai", "kai-scheduler-0.14.2", "koordinator"])
def test_a_scheduler_that_is_not_in_this_version_is_refused_with_a_way_out(name: str) -> None:
    refusal = decide(host("n1", ["pool_a"], T4 | {"bedplate_schedulers": [name]}))
    said = next(str(one) for one in refusal.problems if one.rule == "addon-known")
    assert f"got {name} / allowed dcgm-exporter" in said
    assert said.endswith("remove it; volcano has gangs and packing")
