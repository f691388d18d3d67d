"""What a run remembers of nodes that it does not reach, and which nodes must be empty to change."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.bedplate.gpu.plugins.modules.slurm_controller import Plan

SAID = "CPUs=2 Boards=1 SocketsPerBoard=1 CoresPerSocket=2 ThreadsPerCore=1 RealMemory=4096"


def node(name: str, **more: Any) -> dict[str, Any]:
    wish = {"name": name, "address": "192.0.2.9", "partition": "batch", "gpu": "t4", "count": 4}
    return wish | {"mode": "none", "shares": 0} | more


def planned(*nodes: dict[str, Any], said: dict[str, str] | None = None, record: str = "{}") -> Plan:
    return Plan({"nodes": list(nodes), "hardware": said or {}}, json.loads(record))


def test_a_run_for_one_node_remembers_what_the_others_said() -> None:
    first = planned(node("b1"), node("b2"), said={"b1": SAID, "b2": SAID})
    second = planned(node("b1"), node("b2"), said={"b1": SAID}, record=first.record())
    assert second.unknown == []
    assert second.record() == first.record()
    assert second.differing() == []


def test_a_node_that_never_answered_is_unknown_and_not_recorded() -> None:
    plan = planned(node("b1"), node("b2"), said={"b1": SAID, "b2": "slurmd: command not found"})
    assert plan.unknown == ["b2"]
    assert "b2" not in plan.record()


@pytest.mark.parametrize(
    ("now", "differing"),
    [
        ([node("b1")], []),
        ([node("b1", address="192.0.2.10", partition="other")], []),
        ([node("b1", count=3)], ["b1"]),
        ([node("b1", gpu="a100")], ["b1"]),
        ([node("b1", mode="mps", shares=4)], ["b1"]),
        ([node("b1", mode="mig")], ["b1"]),
        ([], ["b1"]),
    ],
    ids=["same", "elsewhere", "fewer", "others", "shared", "mig", "gone"],
)
def test_nodes_whose_gpus_change_or_that_go_must_be_empty(
    now: list[dict[str, Any]], differing: list[str]
) -> None:
    before = planned(node("b1"), said={"b1": SAID})
    plan = planned(*now, record=before.record())
    assert plan.differing() == differing
    for name in differing:
        plan.hold(name)
    assert plan.record() == before.record() or not differing
    assert plan.pending == differing
