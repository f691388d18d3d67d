"""Who holds the GPUs of a drained node is asked before anything of its driver is exchanged."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from ansible_collections.bedplate.gpu.plugins.modules import nvidia_driver_state

from bedplate.portable.host import Host, Result
from tests.unit.module_answers import answer
from tests.unit.test_playbook_vars import HERE, PLAYBOOKS, play

if TYPE_CHECKING:
    from pathlib import Path


def ends(monkeypatch: pytest.MonkeyPatch, root: Path, **wish: object) -> dict[str, Any]:
    """What nvidia_driver_state ends with, on a host where a DaemonSet's pod has a GPU."""
    folder = root / "proc/88/fd"
    folder.mkdir(parents=True, exist_ok=True)
    if not list(folder.iterdir()):
        (folder / "3").symlink_to("/dev/nvidia0")
    (folder.parent / "comm").write_text("dcgm-exporter\n")
    host = Host(str(root), lambda *_: Result(0, "", ""))
    params = {"version": "550.1", "flavour": "proprietary", "source": "distro", "packages": {}}
    params |= {"marks": [], "module_options": {}, "remove_foreign": False, "change_joined": False}
    params |= {"unheld": False, **wish}
    return answer(monkeypatch, nvidia_driver_state, host, **params)


def test_who_holds_the_gpus_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "msg" not in ends(monkeypatch, tmp_path)
    assert ends(monkeypatch, tmp_path, unheld=True).get("msg") == (
        f"the GPUs are in use, so that the driver stays — {os.uname().nodename} —"
        " got 88 (dcgm-exporter) / allowed no process that holds a GPU —"
        " End them (a drain leaves the pods of DaemonSets; docker ps names Docker's containers), or"
        " allow a reboot (bedplate.gpu.upgrade: upgrade_reboot_allowed, else"
        " nvidia_driver_reboot_allowed), and run the playbook again."
    )


def test_they_are_asked_for_when_the_plugin_is_gone_and_the_packages_are_not_come() -> None:
    names = [
        task["name"] for task in yaml.safe_load((PLAYBOOKS / "tasks" / "exchange.yml").read_text())
    ]
    asked = names.index("Refuse GPUs that something holds, while the driver is whole")
    assert names.index("Take the device plugin away") < asked
    assert asked < names.index("Configure the outbound proxy")


@pytest.mark.parametrize(
    ("module", "reboots", "expected"),
    [
        ({"pending": ["the loaded module"], "loaded": "535.1"}, False, True),
        ({"pending": ["the loaded module"], "loaded": "535.1"}, True, False),
        # Nothing is loaded, so that nothing can be held.
        ({"pending": ["the module"], "loaded": ""}, False, False),
        # The driver stays.
        ({"pending": [], "loaded": "535.1"}, False, False),
        (None, False, False),
    ],
)
def test_they_are_asked_for_where_the_module_must_go_without_a_reboot(
    module: dict[str, Any] | None, reboots: bool, expected: bool, tmp_path: Path
) -> None:
    (task,) = (
        task
        for task in yaml.safe_load((PLAYBOOKS / "tasks" / "exchange.yml").read_text())
        if task["name"].startswith("Refuse GPUs")
    )
    host = HERE | ({} if module is None else {"__nvidia_driver_module": module})
    asks = {
        "ansible.builtin.debug": {"msg": "<asked>"},
        "when": task["when"],
        "vars": {"upgrade_reboot_allowed": reboots},
    }
    said = play(tmp_path, {"node": host}, [asks])
    assert "failed=0" in said, said
    assert ("<asked>" in said) == expected, said
