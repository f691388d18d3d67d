"""Which nodes that fail upgrade.yml keeps workload away from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from tests.unit.test_playbook_vars import HERE, PLAYBOOKS, play

if TYPE_CHECKING:
    from pathlib import Path

KERNEL = "6.1.0-50-amd64"


def test_a_node_that_is_refused_before_it_is_emptied_stays_open(tmp_path: Path) -> None:
    """Nothing was done to it: what it carries goes on, and so do new pods."""
    waves = yaml.safe_load((PLAYBOOKS / "upgrade_nodes.yml").read_text())[-1]["tasks"]
    (rescue,) = (task["rescue"] for task in waves if "rescue" in task)
    (closes,) = (
        task
        for task in rescue
        if "close_node.yml" in str(task.get("ansible.builtin.include_tasks"))
    )
    waits = {"pending": [f"kernel {KERNEL}"], "reboot_required": True}
    # The refusal is exchange.yml's own.
    refused = HERE | {"tests_exchanges": True, "__host_baseline_pinned": waits}
    hosts: dict[str, Any] = {
        "refused": refused,
        # As requirements.yml does, and every task before exchange.yml.
        "unfit": HERE,
        "emptied": HERE | {"__upgrade_emptied": {"changed": True, "failed": False}},
        # Some of its pods: it was closed before they were evicted.
        "held": HERE | {"__upgrade_emptied": {"changed": False, "failed": True}},
        # Nothing waited on it, and its GPUs were found wanting.
        "ill": HERE | {"__gpu_verify_found": {"failed": True, "failing": ["gpu.count"]}},
        "unseen": HERE | {"__gpu_verify_found": {"failed": True}},
        # Its GPUs are well.
        "kept": HERE | {"__gpu_verify_found": {"failed": True, "failing": ["baseline.clock"]}},
        "well": HERE | {"__gpu_verify_found": {"failed": False}},
    }
    variables = {
        "__upgrade_control_plane": "cp",
        "__bedplate_pool": {"kernel": KERNEL, "nvidia_driver": {"source": "precompiled"}},
    }
    work = [
        {
            "ansible.builtin.include_tasks": str(PLAYBOOKS / "tasks" / "exchange.yml"),
            "when": "tests_exchanges is defined",
        },
        {"ansible.builtin.fail": {"msg": "this one failed"}},
    ]
    told = {"ansible.builtin.debug": {"msg": "<closed>"}, "when": closes["when"]}
    said = play(tmp_path, hosts, [{"block": work, "rescue": [told], "vars": variables}])
    assert "node is not drained: the driver's modules need another kernel" in said, said
    assert "failed=1" not in said, said
    assert [name for name in hosts if f"[{name}] => msg: <closed>" in said] == [
        "emptied",
        "held",
        "ill",
        "unseen",
    ]


def test_whether_a_node_was_closed_is_told_by_the_task_that_closes_it() -> None:
    tasks = yaml.safe_load((PLAYBOOKS / "tasks" / "exchange.yml").read_text())
    (closes,) = (task for task in tasks if task.get("register") == "__upgrade_emptied")
    assert closes["bedplate.gpu.cluster_node"]["state"] == "drained"
    # A task that is skipped registers its answer too.
    assert "when" not in closes


def test_whether_a_node_was_looked_at_is_told_by_the_task_that_looks() -> None:
    verify = PLAYBOOKS.parent / "roles" / "gpu_verify" / "tasks" / "verify.yml"
    looks = yaml.safe_load(verify.read_text())[0]
    assert looks["register"] == "__gpu_verify_found"
