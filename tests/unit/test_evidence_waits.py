"""Checks that are known to wait for another step: evidence tells them, and no task fails."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from ansible.plugins.action import ActionBase
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
    assert result["msg"].count(" got ") == len(failing)
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


SECRET = "hunter2SECRET"


@pytest.mark.parametrize("collected", [True, False])
def test_what_a_host_says_is_kept_without_the_proxys_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, collected: bool
) -> None:
    """In evidence and in what the task prints; also where the module itself fails."""
    reason = f"curl: http://other:{SECRET}x@h failed: {SECRET}\x1b[2J"
    said: dict[str, Any] = {"failed": True, "msg": reason}
    if collected:
        bad = check(GPUS, GPUS, 1, 0, f"Try http://u:{SECRET}@h.", reason)
        said = {"collected": {"checks": [bad], "facts": {f"{SECRET}": reason}}}
    monkeypatch.setattr(ActionBase, "run", lambda *_: {})
    action = Looks({"name": "gpu-a", "evidence_dir": str(tmp_path)})
    action._templar = SimpleNamespace(template=lambda value: value)
    action._execute_module = lambda **_: said
    proxy = {"url": f"http://ops:{SECRET}@192.0.2.1:3128"}
    result = action.run(task_vars={"bedplate_proxy": proxy})
    text = (tmp_path / "host-gpu-a.json").read_text()
    assert "failed: …" in text
    for shown in (text, str(result)):
        assert "hunter2" not in shown
        assert "\x1b" not in shown
