"""Plugins of the control side: what nodes must offer."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parents[2]


def plugin(name: str) -> ModuleType:
    """Load a plugin's file as Ansible does: by its path."""
    path = ROOT / "plugins" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"bedplate_test_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


node_expectations = plugin("filter/node_expectations").node_expectations


def lock() -> dict[str, Any]:
    """Return the demo's lock as the lookup gives it."""
    text = (ROOT / "inventories/demo/.bedplate.lock.yml").read_text()
    content: dict[str, Any] = yaml.safe_load(text)
    return content


def test_nodes_offer_what_the_lock_promises() -> None:
    assert node_expectations(lock()) == {
        "cp1": {"kubernetes": "1.36.3"},
        "gpu-a": {"kubernetes": "1.36.3", "resource": "nvidia.com/gpu", "count": 8},
        "gpu-b": {"kubernetes": "1.36.3", "resource": "nvidia.com/gpu", "count": 40},
    }


def test_a_node_whose_gpus_are_divided_differently_offers_several_resources() -> None:
    content = lock()
    expects = content["pools"]["pool_train"]["expects"]
    expects |= {"count": 6, "also": {"nvidia.com/mig-3g.40gb": 2, "nvidia.com/mig-1g.10gb": 6}}
    assert node_expectations(content)["gpu-a"] == {
        "kubernetes": "1.36.3",
        "resource": "nvidia.com/gpu",
        "count": 6,
        "also": {"nvidia.com/mig-3g.40gb": 2, "nvidia.com/mig-1g.10gb": 6},
    }
    # All are divided: no whole one is waited for.
    expects["count"] = 0
    assert node_expectations(content)["gpu-a"] == {
        "kubernetes": "1.36.3",
        "resource": "nvidia.com/mig-3g.40gb",
        "count": 2,
        "also": {"nvidia.com/mig-1g.10gb": 6},
    }


@pytest.mark.parametrize("by", ["schedulers", "frameworks"])
def test_what_another_stack_provides_is_not_expected_of_the_cluster(by: str) -> None:
    content = lock()
    content["pools"]["pool_train"]["expects"]["by"] = by
    assert node_expectations(content)["gpu-a"] == {"kubernetes": "1.36.3"}


def test_hosts_that_are_no_nodes_are_left_out() -> None:
    content = lock()
    content["hosts"]["hv1"] = {"pool": None, "groups": ["hypervisors"]}
    content["hosts"]["s1"] = {"pool": None, "groups": []}
    assert not {"hv1", "s1"} & set(node_expectations(content))
