"""A driver that waits on a node of a cluster: what a run without a drain leaves alone and tells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml
from ansible_collections.bedplate.gpu.plugins.modules import nvidia_driver_module

from tests.unit.module_answers import answer
from tests.unit.test_playbook_vars import HERE, PLAYBOOKS, ROOT, play
from tests.unit.test_portable_driver import ALL, WISH, Machine

if TYPE_CHECKING:
    from pathlib import Path

NEWER = WISH | {"version": "550.1"}
TASKS = ROOT / "roles" / "nvidia_driver" / "tasks"


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A node after a boot into a kernel that its driver's module was not built for."""
    machine = Machine(tmp_path, *ALL)
    machine.unload("nvidia")
    machine.refused.add("modprobe nvidia")
    machine.host.write("/etc/kubernetes/kubelet.conf", "")
    monkeypatch.setattr(nvidia_driver_module.driver, "health", lambda *_: "")
    return machine


def ends(
    node: Machine, monkeypatch: pytest.MonkeyPatch, check: bool = False, **wish: object
) -> dict[str, Any]:
    """What nvidia_driver_module ends with."""
    return answer(monkeypatch, nvidia_driver_module, node.host, check, **NEWER | wish)


@pytest.mark.parametrize("check", [False, True])
def test_where_packages_wait_no_module_is_loaded_either(
    check: bool, node: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = ends(node, monkeypatch, check, packages_wait=True)
    assert found.get("pending") == ["the module for 550.1 (proprietary): none is loaded"], found
    assert (found["changed"], found["loaded"], found["built"]) == (False, "", [])
    assert not any("modprobe" in line for line in node.said)


def test_a_module_that_is_not_loaded_waits_for_nothing_else(
    node: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "modprobe nvidia: " in ends(node, monkeypatch)["msg"]
    assert (
        "modprobe nvidia: "
        in ends(node, monkeypatch, packages_wait=True, change_joined=True)["msg"]
    )
    node.refused.clear()
    found = ends(node, monkeypatch)
    assert (found["changed"], found["loaded"], found["pending"]) == (True, "550.1", [])


def test_the_role_says_that_packages_wait_and_upgrade_hears_of_the_module(tmp_path: Path) -> None:
    task = next(
        task
        for task in yaml.safe_load((TASKS / "configure.yml").read_text())
        if task["name"] == "Load the kernel module"
    )
    words = task["bedplate.gpu.nvidia_driver_module"].get("packages_wait", "{{ none }}")
    base = HERE | {"__bedplate_reached": {"exists": {"proxy": False}}}
    pending = ["the module for 550.1 (proprietary): none is loaded"]
    hosts = {
        "waits": base
        | {
            "__nvidia_driver_state": {"pending": ["package nvidia-smi"]},
            "__nvidia_driver_module": {"pending": pending, "loaded": ""},
        },
        "goes": base | {"__nvidia_driver_state": {"pending": []}},
    }
    told = f"{words}, {{{{ __upgrade_pending | join('; ') }}}}"
    debug = {"ansible.builtin.debug": {"msg": f"<{{{{ inventory_hostname }}}}: {told}>"}}
    said = play(tmp_path, hosts, [debug])
    for line in (f"<waits: True, package nvidia-smi; {pending[0]}>", "<goes: False, >"):
        assert line in said, said


def test_nothing_is_taken_back_where_the_driver_waits(tmp_path: Path) -> None:
    """Going back would wait as well, and end with packages half exchanged as if that were well."""
    tasks = [
        {
            "block": [{"ansible.builtin.fail": {"msg": "the disk is full"}}],
            "rescue": [{"ansible.builtin.include_tasks": str(TASKS / "recover.yml")}],
        }
    ]
    waits = HERE | {"__nvidia_driver_state": {"pending": ["package nvidia-smi"]}}
    said = play(tmp_path, {"node": waits}, tasks)
    assert said.count("msg: the disk is full") == 2, said
    assert "failed=1" in said
    assert "Read what the failed change has left" not in said


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ({"pending": ["the module"], "loaded": ""}, False),
        ({"pending": ["the module"], "loaded": "535.1"}, True),
        # A bare host in check mode.
        ({"pending": [], "loaded": ""}, True),
        # A node of Slurm keeps its driver: nobody has asked.
        (None, True),
    ],
)
def test_who_asks_the_gpus_waits_with_a_driver_of_which_nothing_is_loaded(
    module: dict[str, Any] | None, expected: bool, tmp_path: Path
) -> None:
    found = {
        task["name"]: task.get("when")
        for name in ("gpu_stack", "nvidia_stack")
        for task in yaml.safe_load((PLAYBOOKS / "tasks" / f"{name}.yml").read_text())
    }
    (brings,) = (
        task["block"]
        for task in yaml.safe_load((PLAYBOOKS / "tasks" / "nvidia_stack.yml").read_text())
        if task["name"].startswith("The driver, ")
    )
    (fabric,) = (task["when"] for task in brings if task["name"] == "Fabric of NVSwitch systems")
    conditions = [found["NVIDIA container toolkit"], found["What asks the driver"], fabric]
    host: dict[str, Any] = HERE | ({} if module is None else {"__nvidia_driver_module": module})
    tasks = [
        {
            "ansible.builtin.debug": {"msg": f"<{number}>"},
            "when": condition,
            "vars": {"nvidia_fabric_packages": {"nvidia-fabricmanager": "535.1"}},
        }
        for number, condition in enumerate(conditions)
    ]
    said = play(tmp_path, {"node": host}, tasks)
    assert [f"<{number}>" in said for number in range(3)] == [expected] * 3, said


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ({}, "brings"),
        # A change to that source waits: the unit would hide the one of packages.
        ({"pending": ["package nvidia-smi"], "persistent": True}, ""),
        # Somebody's own does its work.
        ({"persistent": True}, ""),
        ({"persistent": True, "ours": True}, "brings"),
        ({"source": "distro"}, "lets go"),
        ({"source": "distro", "persistent": True}, "lets go"),
    ],
)
def test_a_unit_of_the_persistence_daemon_is_written_where_none_comes(
    host: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    given = {
        "__nvidia_driver_target": {"source": host.get("source", "runfile")},
        "__nvidia_driver_state": {"pending": host.get("pending", [])},
        "__nvidia_driver_module": {
            "persistent": host.get("persistent", False),
            "unit_ours": host.get("ours", False),
        },
        # As on Ubuntu.
        "__nvidia_driver_daemon_lets_go": True,
    }
    role = str(PLAYBOOKS.parent / "roles" / "nvidia_driver" / "vars" / "main.yml")
    words = {"brings": "__nvidia_driver_brings_unit", "lets go": "__nvidia_driver_unit_lets_go"}
    tasks = [
        {"ansible.builtin.debug": {"msg": f"<{word}>"}, "when": variable, "vars": given}
        for word, variable in words.items()
    ]
    said = play(tmp_path, {"node": HERE}, tasks, vars_files=[role])
    assert [word for word in words if f"<{word}>" in said] == ([expected] if expected else []), said
