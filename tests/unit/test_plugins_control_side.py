"""Plugins of the control side: which variables a site may set, what nodes must offer."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from bedplate.site.model import KEYS

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


check_variables = plugin("action/check_variables")
node_expectations = plugin("filter/node_expectations").node_expectations
KNOWN = {
    "nvidia_driver": {"nvidia_driver_version", "nvidia_driver_reboot_allowed"},
    "nvidia_driver_extra": {"nvidia_driver_extra_packages"},
    "gpu_verify": {"gpu_verify_folder"},
}
OWNED = {"nvidia_driver_version"}


def problems(*used: str) -> list[str]:
    """Return what is said about variables of host gpu-a."""
    found: list[str] = check_variables.problems(used, KNOWN, OWNED, "gpu-a")
    return found


def test_what_roles_know_and_what_is_nobodys_is_allowed() -> None:
    assert problems("nvidia_driver_reboot_allowed", "ansible_host", "nvidia", "my_driver") == []


def test_a_variable_of_the_lock_names_the_wish() -> None:
    assert problems("nvidia_driver_version") == [
        (
            "a variable is set that the lock decides — inventory variable "
            "nvidia_driver_version, host gpu-a — got set in the inventory / allowed only the "
            "lock — Remove it; the setting for it is bedplate_driver or "
            "bedplate_pins.nvidia_driver, then run 'bedplate plan'."
        )
    ]


def test_a_misspelt_variable_names_its_neighbour() -> None:
    assert problems("nvidia_driver_reboot_alowed") == [
        (
            "no role knows this variable — inventory variable nvidia_driver_reboot_alowed, "
            "host gpu-a — got nvidia_driver_reboot_alowed / allowed "
            "nvidia_driver_reboot_allowed — Did you mean nvidia_driver_reboot_allowed?"
        )
    ]


def test_the_longest_prefix_is_the_role() -> None:
    (said,) = problems("nvidia_driver_extra_zzzzzzzzzzzzzzzzzzzz")
    assert "allowed nvidia_driver_extra_packages — " in said


def test_a_variable_like_nothing_is_to_be_removed() -> None:
    (said,) = problems("gpu_verify_qqqqqqqqqqqqqqqqqqqqqqqqq")
    assert said.endswith("allowed gpu_verify_folder — Remove it.")


def test_all_are_told_in_order() -> None:
    said = problems("nvidia_driver_version", "gpu_verify_qqqqqqqqqqqqqqqqqqqqqqqqq")
    assert [line.split(",")[0].rsplit(" ", 1)[1] for line in said] == [
        "gpu_verify_qqqqqqqqqqqqqqqqqqqqqqqqq",
        "nvidia_driver_version",
    ]


def test_every_variable_of_the_lock_has_a_role_and_a_wish() -> None:
    """What the plugin leans on in this tree: otherwise a user gets a traceback for a refusal."""
    known = check_variables.known_variables(ROOT / "roles")
    owned = check_variables.owned_variables(ROOT / "playbooks/vars")
    assert owned
    roles = {
        next(r for r in sorted(known, key=len, reverse=True) if name.startswith(f"{r}_"))
        for name in owned
    }
    assert roles <= set(check_variables.WISHES)
    named = {
        word.split(".")[0]
        for wish in check_variables.WISHES.values()
        for word in wish.split()
        if word.startswith("bedplate_")
    }
    assert named <= set(KEYS)


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
