"""Accelerators of other makers: not shared, and counted for teams by their makers' resources."""

from __future__ import annotations

import pytest

from bedplate.lock.offers import offered
from tests.resolver.test_whole_sites import decide, host, planned, rules


@pytest.mark.parametrize(
    ("vendor", "model", "resource"),
    [
        ("amd", "mi300x", "amd.com/gpu"),
        ("ascend", "ascend-910b", "huawei.com/Ascend910"),
        ("kunlun", "kunlun-p800", "kunlunxin.com/xpu"),
        ("intel", "max-1550", "gpu.intel.com/i915"),
        ("intel", "gaudi-3", "habana.ai/gaudi"),
    ],
)
def test_teams_have_quotas_of_what_the_makers_plugin_offers(
    vendor: str, model: str, resource: str
) -> None:
    """Two hosts of eight: a team's part of the pool is in the maker's resource."""
    quota = {"gpus": {"pool_a": {"guaranteed": 16}}}
    everywhere = {"bedplate_teams": {"a": quota}, "bedplate_schedulers": ["kueue"]}
    board = {"bedplate_accelerator": {"vendor": vendor, "model": model, "count": 8}}
    nodes = [host(f"n{n}", ["gpu_pools", "pool_a"], board | everywhere) for n in (1, 2)]
    lock = planned(decide(host("cp1", ["control_plane"], everywhere), *nodes)).lock
    assert offered(lock, "pool_a") == {resource: 16}
    assert lock.cluster is not None
    assert list(lock.cluster.teams["a"].gpus["pool_a"]) == [resource]


def test_another_makers_model_is_refused() -> None:
    """A model belongs to its maker."""
    board = {"bedplate_accelerator": {"vendor": "intel", "model": "mi300x", "count": 8}}
    node = host("n1", ["gpu_pools", "pool_a"], board)
    assert rules(decide(host("cp1", ["control_plane"], {}), node)) == ["accelerator-known"]
