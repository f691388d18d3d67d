"""Checks that are known to wait for another step: evidence tells them, and no task fails."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.bedplate.gpu.plugins.plugin_utils.evidence import EvidenceAction

from bedplate.portable.evidence.checks import check

if TYPE_CHECKING:
    from pathlib import Path

KUBELET, GPUS = "kubelet.version", "gpu.count"


class Looks(EvidenceAction):
    """The action without Ansible around it."""

    kind = "host"

    def __init__(self, arguments: dict[str, Any]) -> None:
        self._task = SimpleNamespace(args=arguments, check_mode=False)


@pytest.mark.parametrize(
    ("fails", "waits", "failing"),
    [
        ([], [KUBELET], []),
        ([KUBELET], [], [KUBELET]),
        ([KUBELET], [KUBELET], []),
        ([GPUS, KUBELET], [KUBELET], [GPUS]),
    ],
)
def test_what_waits_is_told_and_does_not_fail(
    tmp_path: Path, fails: list[str], waits: list[str], failing: list[str]
) -> None:
    checks = [check(n, n, 1, 0 if n in fails else 1, "Do.") for n in (KUBELET, GPUS)]
    action = Looks({"name": "gpu-a", "evidence_dir": str(tmp_path), "waits": waits})
    result: dict[str, Any] = {}
    action._conclude(result, {"checks": checks})
    assert result.get("failed", False) == bool(failing)
    assert result.get("failing", []) == failing
    assert result["msg"].count("got:") == len(failing)
    if not failing:
        waiting = "; waiting: kubelet.version" if fails else ""
        assert result["msg"].endswith("skipped" + waiting)
    written = json.loads((tmp_path / "host-gpu-a.json").read_text())["checks"]
    assert {one["id"] for one in written if one["result"] == "fail"} == set(fails)


def test_nothing_but_what_waits_is_nothing_that_was_looked_at() -> None:
    result: dict[str, Any] = {}
    checks = [check(KUBELET, KUBELET, 1, 0, "Do.")]
    Looks({"name": "gpu-a", "waits": [KUBELET]})._conclude(result, {"checks": checks})
    assert result["failed"]
    assert "nothing was checked" in result["msg"]
