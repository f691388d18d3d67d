"""Whether pods can use RDMA: the lock and the plan say it of each pool of nodes, of no other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bedplate.bill.needs import needs_of
from bedplate.catalogue import load_catalogue
from bedplate.resolver.rdma_pods import NO_DEVICE, OFFER
from tests.resolver.test_whole_sites import decide, host, planned

if TYPE_CHECKING:
    from bedplate.resolver import Plan

H100: dict[str, Any] = {"bedplate_gpu": {"model": "h100-sxm5-80gb", "count": 8}}
PLUGIN = "rdma_device_plugin"


def rdma(**settings: bool) -> dict[str, Any]:
    """Return a pool's settings with RDMA."""
    return {"bedplate_rdma": {"stack": "inbox", **settings}}


def plan(pool: dict[str, Any], group: str = "gpu_pools") -> Plan:
    """Return the plan of a pool of two hosts."""
    nodes = [host(name, [group, "pool_a"], H100 | pool) for name in ("a", "b")]
    return planned(decide(host("cp1", ["control_plane"], {}), *nodes))


def said(found: Plan) -> list[str]:
    """Return what a plan says of RDMA."""
    return [text for text in found.warnings if NO_DEVICE in text]


def test_nodes_offer_devices_by_the_plugin() -> None:
    found = plan(rdma())
    assert said(found) == []
    part = found.lock.pools["pool_a"].rdma
    assert part is not None
    assert part.pods == {"rdma/hca": 999}
    assert found.lock.cluster is not None
    wished = found.lock.cluster.rdma_device_plugin
    assert wished is not None
    images = needs_of(found.lock, load_catalogue()).images
    assert (images[wished.image].needed_by, images[wished.image].hosts) == (PLUGIN, "gpu")


def test_a_pool_that_keeps_its_pods_from_it_is_named() -> None:
    found = plan(rdma(pods=False))
    assert said(found) == [f"pool_a: {NO_DEVICE}; {OFFER}"]
    assert found.lock.pools["pool_a"].rdma.pods == {}  # type: ignore[union-attr]
    assert found.lock.cluster.rdma_device_plugin is None  # type: ignore[union-attr]
    images = needs_of(found.lock, load_catalogue()).images
    assert PLUGIN not in {one.needed_by for one in images.values()}


@pytest.mark.parametrize(("pool", "group"), [({}, "gpu_pools"), (rdma(), "slurm")])
def test_pools_without_pods_or_rdma_offer_and_say_nothing(pool: dict[str, Any], group: str) -> None:
    found = plan(pool, group)
    assert said(found) == []
    part = found.lock.pools["pool_a"].rdma
    assert part is None or part.pods == {}
    assert found.lock.cluster.rdma_device_plugin is None  # type: ignore[union-attr]
