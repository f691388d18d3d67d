"""The peer's tasks as data: complete, counted, and all of kinds that the playbook can write."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.benchmarks import peer_tasks

if TYPE_CHECKING:
    from pathlib import Path

PEER = peer_tasks.load()
REACHED = {name for play in PEER.plays for name in play.parts} | {
    task.part for part in PEER.parts.values() for task in part.tasks if task.part
}


@pytest.mark.parametrize("name", PEER.parts)
def test_a_part_names_its_source_and_lists_as_many_tasks_as_were_counted(name: str) -> None:
    part = PEER.parts[name]
    assert re.fullmatch(r"[0-9a-f]{40}", part.revision), part.revision
    assert re.fullmatch(r"[\w.-]+/[\w.-]+", part.repository), part.repository
    assert part.role
    assert part.ours
    assert part.file.endswith((".yml", ".yaml"))
    assert len(part.tasks) == part.count
    assert name in REACHED, f"{name} is listed and never run"


def test_a_task_has_a_kind_a_description_and_a_target() -> None:
    kinds = set(peer_tasks.no_ops()) | peer_tasks.INCLUDES
    for name, part in PEER.parts.items():
        for task in part.tasks:
            assert task.kind in kinds, f"{name}: {task.kind}"
            assert isinstance(task.does, str), f"{name}: {task}"
            assert task.where in {"", "control", "once"}, f"{name}: {task.where}"
            assert isinstance(task.runs, bool)
            assert isinstance(task.items, int)
            # An include that runs leads somewhere, and nothing else does.
            leads = task.kind in peer_tasks.INCLUDES and task.runs
            assert bool(task.part) == leads, f"{name}: {task.does}"
    assert set(PEER.parts) == REACHED


def test_no_kind_is_kept_that_no_task_has() -> None:
    used = {task.kind for part in PEER.parts.values() for task in part.tasks}
    assert set(peer_tasks.no_ops()) - used == set()


def test_the_playbook_has_each_task_once_and_skips_what_does_not_run(tmp_path: Path) -> None:
    plays = yaml.safe_load(peer_tasks.write_playbook(PEER, tmp_path).read_text())
    assert [play["gather_facts"] for play in plays] == [play.gathers for play in PEER.plays]
    for name, part in PEER.parts.items():
        written = yaml.safe_load((tmp_path / f"{name}.yml").read_text())
        assert len(written) == part.count
        assert [task.get("when", True) for task in written] == [task.runs for task in part.tasks]
        assert [len(task.get("loop", [0])) for task in written] == [t.items for t in part.tasks]


def test_what_a_loop_includes_counts_as_often() -> None:
    one = peer_tasks.Part("o/r", "r", "f.yml", "0" * 40, "ours", 3, (
        peer_tasks.Task("stat", "looks"),
        peer_tasks.Task("set_fact", "keeps"),
        peer_tasks.Task("stat", "looks", runs=False),
    ))  # fmt: skip
    whole = peer_tasks.Part("o/r", "r", "m.yml", "0" * 40, "ours", 1, (
        peer_tasks.Task("include_tasks", "takes it", part="one", items=3),
    ))  # fmt: skip
    plays = (peer_tasks.Play("p", gathers=True, parts=("whole",)),)
    found = peer_tasks.Peer({"one": one, "whole": whole}, plays).counted()
    assert found == {"on the host": 4, "on the control side": 3, "skipped": 3, "includes": 1}


def test_equivalent_roles_are_kept_whole_and_the_others_left_out() -> None:
    kept = {name for play in PEER.equivalent().plays for name in play.parts}
    assert {"deepops-driver", "deepops-docker", "kubespray-containerd", "kubespray-kubelet"} <= kept
    # Of a role that ours does in part, nothing is left out.
    assert PEER.parts["kubespray-resolvconf"].ours.startswith(peer_tasks.NOTHING)
    assert "kubespray-resolvconf" in kept
    assert kept.isdisjoint(
        {"deepops-chrony", "deepops-sudo", "kubespray-nerdctl", "kubespray-facts"}
    )
