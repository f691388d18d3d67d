"""Control planes of a site: which of them take pods, and what the plan says of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.common.connection import Connection
from bedplate.lock import content_of
from tests.resolver.test_whole_sites import CP, T4, decide, host, node, planned

if TYPE_CHECKING:
    from bedplate.resolver import Plan
    from bedplate.site.site import SiteHost


def kubernetes(**settings: Any) -> dict[str, Any]:
    """Return a setting of the cluster, for every host of a site."""
    return {"bedplate_kubernetes": {"endpoint": "k8s.example:6443"} | settings}


def with_gpus(name: str, **settings: Any) -> SiteHost:
    """A control plane that is in a GPU pool, too."""
    return host(name, ["control_plane", "gpu_pools", "pool_a"], T4 | kubernetes(**settings))


def said(plan: Plan) -> tuple[list[str], list[str], list[str]]:
    """Return which control planes take pods, why, and what is warned of."""
    why = [one.because for one in plan.reasons if one.component == "pods on control planes"]
    warned = [one for one in plan.warnings if "taint" in one]
    return plan.lock.cluster.kubernetes.untainted, why, warned


def test_a_control_plane_beside_workers_keeps_its_taint() -> None:
    assert said(planned(decide(CP, node("a", T4)))) == ([], [], [])


@pytest.mark.parametrize(
    ("endpoint", "by", "number", "warned"),
    [
        ("cp1.example:6443", "external", 3, "cp1.example is cp1 alone"),
        ("cp2:6443", "external", 3, "cp2 is cp2 alone"),
        ("k8s.example:6443", "external", 3, None),
        ("cp1.example:6443", "external", 1, None),
    ],
)
def test_an_endpoint_that_is_one_of_several_control_planes_is_warned_of(
    endpoint: str, by: str, number: int, warned: str | None
) -> None:
    settings = kubernetes(endpoint=endpoint, endpoint_by=by)
    hosts = [host(f"cp{one}", ["control_plane"], settings) for one in range(1, number + 1)]
    plan = planned(decide(*hosts, host("n1", ["gpu_pools", "pool_a"], T4 | settings)))
    told = [one.text for one in plan.notices if "no API answers" in one.text]
    assert told == ([f"the endpoint {warned}: without that host no API answers"] if warned else [])


def test_one_machine_takes_pods() -> None:
    names, why, warned = said(planned(decide(with_gpus("one"))))
    assert (names, warned) == (["one"], [])
    assert why == [
        "they are in a GPU pool; bedplate_kubernetes.control_plane_taint: true keeps them off"
    ]


def test_only_those_control_planes_take_pods_that_have_gpus() -> None:
    plan = planned(decide(with_gpus("cp1"), with_gpus("cp2"), host("cp3", ["control_plane"], {})))
    assert said(plan)[0] == ["cp1", "cp2"]


def test_where_no_other_node_is_control_planes_take_pods() -> None:
    names, why, _ = said(planned(decide(CP)))
    assert names == ["cp1"]
    assert why[0].startswith("there is no other node; ")


@pytest.mark.parametrize("taint", [False, True])
def test_the_site_decides(*, taint: bool) -> None:
    settings = kubernetes(control_plane_taint=taint)
    lone = host("cp1", ["control_plane"], settings)
    plan = planned(decide(lone, node("a", T4 | settings)))
    assert said(plan)[0] == ([] if taint else ["cp1"])


def test_gpus_behind_a_taint_that_is_asked_for_are_warned_of() -> None:
    names, why, warned = said(planned(decide(with_gpus("one", control_plane_taint=True))))
    assert (names, why) == ([], [])
    (only,) = warned
    assert only == (
        "cluster: pods get the GPUs of one only if they tolerate the control plane's taint; "
        "bedplate_kubernetes.control_plane_taint: false lets all pods in"
    )


def test_who_brings_the_endpoint_is_in_the_lock_and_only_where_it_is_not_the_user() -> None:
    settings = kubernetes(endpoint="192.0.2.9:6443", endpoint_by="keepalived")
    numbered = Connection(name="cp1", address="192.0.2.1")
    lone = replace(host("cp1", ["control_plane"], settings), connection=numbered)
    lock = planned(decide(lone, node("a", T4 | settings))).lock
    assert content_of(lock)["cluster"]["kubernetes"]["endpoint_by"] == "keepalived"
    assert "endpoint_by" not in content_of(planned(decide(CP)).lock)["cluster"]["kubernetes"]
