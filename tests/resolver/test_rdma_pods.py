"""Whether pods can use RDMA: the lock and the plan say it of each pool of nodes, of no other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bedplate.bill.needs import needs_of
from bedplate.catalogue import load_catalogue
from bedplate.resolver.rdma_pods import NO_DEVICE, NOT_SAID, ROCE
from tests.resolver.test_whole_sites import decide, host, planned

if TYPE_CHECKING:
    from bedplate.resolver import Plan

H100: dict[str, Any] = {"bedplate_gpu": {"model": "h100-sxm5-80gb", "count": 8}}
PLUGIN = "rdma_device_plugin"


def rdma(**link: str) -> dict[str, Any]:
    """Return a pool's settings with RDMA on a kind of network."""
    return {"bedplate_rdma": {"stack": "inbox", **link}}


def plan(pool: dict[str, Any], group: str = "gpu_pools") -> Plan:
    """Return the plan of a pool of two hosts."""
    nodes = [host(name, [group, "pool_a"], H100 | pool) for name in ("a", "b")]
    return planned(decide(host("cp1", ["control_plane"], {}), *nodes))


def said(found: Plan) -> list[str]:
    """Return what a plan says of RDMA, without sources."""
    return [text.partition(" (https")[0] for text in found.warnings if NO_DEVICE in text]


def test_nodes_on_infiniband_offer_devices_by_the_plugin() -> None:
    found = plan(rdma(link="infiniband"))
    assert said(found) == []
    part = found.lock.pools["pool_a"].rdma
    assert part is not None
    assert (part.link, part.pods) == ("infiniband", {"rdma/hca": 999})
    assert found.lock.cluster is not None
    wished = found.lock.cluster.rdma_device_plugin
    assert wished is not None
    images = needs_of(found.lock, load_catalogue()).images
    assert (images[wished.image].needed_by, images[wished.image].hosts) == (PLUGIN, "gpu")


@pytest.mark.parametrize(
    ("pool", "hint"), [(rdma(), NOT_SAID), (rdma(link="ethernet"), ROCE)], ids=["unsaid", "roce"]
)
def test_other_pods_get_none_and_the_plan_says_why(pool: dict[str, Any], hint: str) -> None:
    found = plan(pool)
    assert said(found) == [f"pool_a: {NO_DEVICE}; {hint}"]
    assert found.lock.pools["pool_a"].rdma.pods == {}  # type: ignore[union-attr]
    assert found.lock.cluster.rdma_device_plugin is None  # type: ignore[union-attr]
    assert PLUGIN not in {
        one.needed_by for one in needs_of(found.lock, load_catalogue()).images.values()
    }


@pytest.mark.parametrize(
    ("pool", "group"),
    [({}, "gpu_pools"), (rdma(), "slurm"), (rdma(link="infiniband"), "slurm")],
)
def test_pools_without_pods_or_rdma_offer_and_say_nothing(pool: dict[str, Any], group: str) -> None:
    found = plan(pool, group)
    assert said(found) == []
    part = found.lock.pools["pool_a"].rdma
    assert part is None or part.pods == {}
    assert found.lock.cluster.rdma_device_plugin is None  # type: ignore[union-attr]
