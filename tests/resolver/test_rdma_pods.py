"""Whether pods can use RDMA: the plan says it of each pool of nodes, and of no other."""

from __future__ import annotations

from typing import Any

import pytest

from bedplate.resolver.rdma_pods import NO_DEVICE
from tests.resolver.test_whole_sites import decide, host, planned

H100: dict[str, Any] = {"bedplate_gpu": {"model": "h100-sxm5-80gb", "count": 8}}
INBOX: dict[str, Any] = {"bedplate_rdma": {"stack": "inbox"}}


def said(pool: dict[str, Any], group: str = "gpu_pools") -> list[str]:
    """Return what a plan says of RDMA in a pool of two hosts."""
    nodes = [host(name, [group, "pool_a"], H100 | pool) for name in ("a", "b")]
    plan = planned(decide(host("cp1", ["control_plane"], {}), *nodes))
    return [text for text in plan.warnings if "RDMA" in text]


def test_pods_of_nodes_get_no_device() -> None:
    assert said(INBOX) == [f"pool_a: {NO_DEVICE}"]


@pytest.mark.parametrize(("pool", "group"), [({}, "gpu_pools"), (INBOX, "slurm")])
def test_of_other_pools_it_says_nothing(pool: dict[str, Any], group: str) -> None:
    assert said(pool, group) == []
