"""Where hosts stand: what the lock has of it, and what is refused before a host is touched."""

from __future__ import annotations

from typing import Any

import pytest

from bedplate.resolver import Refusal
from tests.resolver.test_whole_sites import T4, decide, host, planned, rules


def answer(*places: dict[str, Any]) -> Any:
    """Decide a site of nodes that stand there."""
    nodes = [
        host(f"n{number}", ["gpu_pools", "pool_a"], T4 | {"bedplate_topology": place})
        for number, place in enumerate(places, start=1)
    ]
    return decide(host("cp1", ["control_plane"], {}), *nodes)


def test_the_lock_has_where_each_host_stands() -> None:
    lock = planned(answer({"rack": "r1", "nvlink_domain": "d1"}, {"rack": "r1"})).lock

    topology = lock.hosts["n1"].topology
    assert topology is not None
    assert topology.model_dump(exclude_none=True) == {"rack": "r1", "nvlink_domain": "d1"}
    assert lock.hosts["cp1"].topology is None


@pytest.mark.parametrize(
    ("places", "got", "allowed"),
    [
        (
            ({"leaf": "l1", "nvlink_domain": "d"}, {"leaf": "l2", "nvlink_domain": "d"}),
            "NVLink domain d in leaf l1 and l2 (hosts n1, n2)",
            "each NVLink domain in one leaf",
        ),
        (
            ({"leaf": "l1", "nvlink_domain": "d"}, {"nvlink_domain": "d"}),
            "NVLink domain d in leaf l1 and none (hosts n1, n2)",
            "each NVLink domain in one leaf",
        ),
        (
            (
                {"rack": "r1", "leaf": "l1"},
                {"rack": "r1", "leaf": "l2"},
                {"rack": "r2", "leaf": "l1"},
            ),
            "leaf l1 in rack r1 and r2 (hosts n1, n3)",
            "each leaf in one rack",
        ),
    ],
)
def test_a_part_that_lies_in_two_is_refused(
    places: tuple[dict[str, Any], ...], got: str, allowed: str
) -> None:
    refusal = answer(*places)

    assert rules(refusal) == ["topology-nested"]
    assert isinstance(refusal, Refusal)
    assert refusal.problems[0].got == got
    assert refusal.problems[0].allowed == allowed


def test_racks_of_one_leaf_and_leaves_of_one_rack_are_both_right() -> None:
    planned(answer({"rack": "r1", "leaf": "l1"}, {"rack": "r2", "leaf": "l1"}))
    planned(answer({"rack": "r1", "leaf": "l1"}, {"rack": "r1", "leaf": "l2"}))
