"""Labels and taints that the provider gives nodes: its commands on a stand-in of kubectl."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from bedplate.provider import kubeadm, node_marks
from bedplate.provider.model import Machine, NodeInputs, Taint

ROOM = {"room": "b12"}
GPU = Taint(key="example.com/gpu", effect="NoSchedule")
YES = Taint(key="example.com/gpu", value="yes", effect="NoSchedule")
OUT = Taint(key="example.com/gpu", effect="NoExecute")


class Api:
    """A Node object that does what kubectl's label, taint and annotate do to it."""

    def __init__(self) -> None:
        self.node: dict[str, Any] = {
            "metadata": {"labels": {"kubernetes.io/hostname": "a"}},
            "spec": {"taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]},
        }
        self.commands: list[str] = []
        self.left = 100

    def run(self, labels: dict[str, str], taints: list[Taint]) -> int:
        """Apply labels and taints, and return how many commands that took."""
        commands = node_marks.changes(self.node, "a", labels, taints)
        for argv in commands[: self.left]:
            self._do(argv)
        return len(commands)

    def _do(self, argv: list[str]) -> None:
        verb, kind, name, *changes = argv
        assert (kind, name, changes.pop()) == ("nodes", "a", "--overwrite")
        for change in changes:
            if verb == "taint":
                self._taint(change)
                continue
            field = self.node["metadata"].setdefault(f"{verb.removesuffix('ate')}s", {})
            if verb == "annotate":
                field = self.node["metadata"].setdefault("annotations", {})
            key, equals, value = change.partition("=")
            if equals:
                field[key] = value
            else:
                del field[change.removesuffix("-")]

    def _taint(self, change: str) -> None:
        left, _, effect = change.removesuffix("-").rpartition(":")
        key, _, value = left.partition("=")
        taints = self.node["spec"]["taints"]
        taints[:] = [one for one in taints if (one["key"], one["effect"]) != (key, effect)]
        if not change.endswith("-"):
            taints.append({"key": key, "effect": effect} | ({"value": value} if value else {}))

    @property
    def labels(self) -> dict[str, str]:
        """Return the labels beside that of others."""
        found = dict(self.node["metadata"]["labels"])
        assert found.pop("kubernetes.io/hostname") == "a", "others' labels stay"
        return found

    @property
    def taints(self) -> list[str]:
        """Return the taints beside that of others."""
        others, *found = self.node["spec"]["taints"]
        assert others["key"] == "node.kubernetes.io/unreachable", "others' taints stay"
        return [f"{one['key']}={one.get('value', '')}:{one['effect']}" for one in found]


def test_a_node_gets_what_the_site_says_and_keeps_what_others_say() -> None:
    api = Api()
    api.run(ROOM, [YES, OUT])
    assert api.labels == ROOM
    assert api.taints == ["example.com/gpu=:NoExecute", "example.com/gpu=yes:NoSchedule"]
    assert api.run(ROOM, [YES, OUT]) == 0, "a second run has nothing to do"


def test_what_the_site_no_longer_says_goes() -> None:
    api = Api()
    api.run({**ROOM, "rack": "r1"}, [YES, OUT])
    api.run({"room": "b13"}, [GPU])
    assert (api.labels, api.taints) == ({"room": "b13"}, ["example.com/gpu=:NoSchedule"])
    api.run({}, [])
    assert (api.labels, api.taints) == ({}, [])
    assert api.node["metadata"]["annotations"] == {}


@pytest.mark.parametrize("after", range(5))
def test_a_run_that_is_cut_off_is_finished_by_the_next(after: int) -> None:
    api = Api()
    api.run({**ROOM, "rack": "r1"}, [YES, OUT])
    api.left = after
    api.run({"hall": "2"}, [GPU])
    api.left = 100
    api.run({"hall": "3"}, [])
    assert (api.labels, api.taints) == ({"hall": "3"}, [])
    assert api.run({"hall": "3"}, []) == 0


def test_a_node_without_marks_is_left_alone() -> None:
    assert Api().run({}, []) == 0


def test_an_annotation_that_others_changed_stops_nothing() -> None:
    api = Api()
    api.node["metadata"]["annotations"] = {node_marks.OURS: "[1"}
    api.run(ROOM, [GPU])
    assert (api.labels, api.taints) == (ROOM, ["example.com/gpu=:NoSchedule"])


def test_a_worker_registers_with_its_taints() -> None:
    """No pod comes before them."""
    machine = {"name": "a", "address": "192.0.2.1"}
    given = {"host": machine, "controlPlane": machine, "version": "1.36.3", "endpoint": "k:6443"}
    taints = [{"key": "example.com/gpu", "effect": "NoExecute"}]
    inputs = NodeInputs.model_validate(given | {"labels": ROOM, "taints": taints})
    invitation = kubeadm.Invitation("a.b", "sha256:00")
    text = kubeadm.join_config(
        Machine(**machine), inputs.endpoint, invitation, taints=inputs.taints
    )
    assert yaml.safe_load(text)["nodeRegistration"]["taints"] == [
        {"key": "example.com/gpu", "value": "", "effect": "NoExecute"}
    ]
