"""Where the way out through a proxy cannot be had, the reason is told, and never a password."""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.unit.test_playbook_vars import HERE, PLAY, PLAYBOOKS, ROOT, play

if TYPE_CHECKING:
    from pathlib import Path

#: In the address it is quoted: apt is told what it means.
PASSWORD, QUOTED = "not/for-logs", "not%2Ffor-logs"
ADDRESS = f"http://user:{QUOTED}@proxy.example:3128"
CLUSTER = {"pod_subnet": "", "service_subnet": "", "endpoint": "192.0.2.1:6443"}
#: In place of module files, which would write on this machine.
MODULE = """\
from ansible.module_utils.basic import AnsibleModule
spec = dict.fromkeys(("files", "units", "spare", "hold_if_exists"), {{"type": "raw"}})
spec["secrets"] = {{"type": "list", "elements": "str", "no_log": True}}
module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
module.fail_json(msg={said!r}, changed=False)
"""
REASON = (
    "systemd does not do what the files are for — n1 — got systemctl restart containerd.service:"
    " Job for containerd.service failed / allowed containerd.service current — See its journal."
)


def told(folder: Path, entry: str, said: str, address: str | None) -> str:
    """Run an entry of the role where module files says so; what Ansible printed."""
    collection = folder / "collections/ansible_collections/bedplate/gpu"
    (collection / "plugins/modules").mkdir(parents=True)
    for name in ("galaxy.yml", "meta", "roles"):
        (collection / name).symlink_to(ROOT / name)
    for path in (ROOT / "plugins").iterdir():
        if path.name != "modules":
            (collection / "plugins" / path.name).symlink_to(path)
    for path in (ROOT / "plugins/modules").iterdir():
        if path.name != "files.py":
            (collection / "plugins/modules" / path.name).symlink_to(path)
    text = MODULE.format(said=said)
    (collection / "plugins/modules/files.py").write_text(text)
    # A path that is there: the module is a stand-in, which writes nothing.
    role = {"name": "bedplate.gpu.host_proxy", "tasks_from": entry}
    tasks = [
        {
            "ansible.builtin.include_role": role,
            "vars": {"__host_proxy_environment": str(ROOT / "galaxy.yml")},
        }
    ]
    last = {"ansible.builtin.debug": {"msg": "evidence: {{ __bedplate_reason }}"}}
    book = {
        "hosts": "n1",
        "gather_facts": False,
        "vars": {"__bedplate_cluster": {"kubernetes": CLUSTER}}
        | ({"bedplate_proxy": {"url": address}} if address else {}),
        "vars_files": [str(PLAYBOOKS / "vars" / name) for name in ("access.yml", "failure.yml")],
        "tasks": [{"block": tasks, "rescue": [last]}],
    }
    (folder / "play.yml").write_text(yaml.safe_dump([book]))
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {"n1": HERE}}}))
    done = subprocess.run(
        [PLAY, "-i", folder / "hosts.yml", folder / "play.yml", "-vvv"],
        cwd=ROOT,
        env=os.environ | {"NO_COLOR": "1", "ANSIBLE_COLLECTIONS_PATH": str(folder / "collections")},
        capture_output=True,
        text=True,
        check=False,
    )
    return re.sub(r"\s+", " ", done.stdout + done.stderr)


@pytest.mark.parametrize("entry", ["main", "verify", "remove"])
def test_a_unit_that_does_not_start_is_told_by_the_task_itself(tmp_path: Path, entry: str) -> None:
    said = told(tmp_path, entry, REASON, None if entry == "remove" else ADDRESS)
    before, evidence = said.split("evidence: ", 1)
    assert f"Action failed: {REASON}" in before, said
    assert evidence.startswith(REASON), said
    assert PASSWORD not in said
    assert QUOTED not in said


@pytest.mark.parametrize("entry", ["main", "verify"])
def test_no_reason_has_the_password(tmp_path: Path, entry: str) -> None:
    """Not even where Ansible itself tells what a module failed with, for all that it hides."""
    words = f"cannot use {ADDRESS} (login user password {PASSWORD}): no room"
    said = told(tmp_path, entry, words, ADDRESS)
    assert re.search(r"Action failed: cannot use http://\*+@proxy.example:3128 \(login", said), said
    assert said.split("evidence: ", 1)[1].startswith("cannot use http://***@proxy.example:3128")
    assert PASSWORD not in said
    assert QUOTED not in said


def test_the_module_hides_what_it_is_told_to_hide(tmp_path: Path) -> None:
    (tmp_path / "for-logs-not").write_text("somebody's\n")
    wish = {"path": str(tmp_path / "for-logs-not"), "content": "x", "refuse_foreign": True}
    task = {"bedplate.gpu.files": {"files": ["{{ wish }}"], "secrets": ["{{ secret }}"]}}
    said = play(tmp_path, {"n1": HERE | {"wish": wish, "secret": "for-logs"}}, [task], roles=[])
    assert "the file is not managed by Bedplate and would be replaced" in said, said
    assert "for-logs" not in said
    assert "********-not" in said


def test_an_address_without_a_password_leaves_the_reason_whole(tmp_path: Path) -> None:
    said = told(tmp_path, "main", REASON, "http://proxy.example:3128")
    assert f"Action failed: {REASON}" in said
