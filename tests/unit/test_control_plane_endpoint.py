"""What the role control_plane_endpoint decides, on a host that need not have its services."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
ROLE = ROOT / "roles" / "control_plane_endpoint"
PLAY = Path(sys.executable).with_name("ansible-playbook")
HERE = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}


def play(folder: Path, tasks: list[Any], **words: Any) -> str:
    """Run tasks on this host with the role's variables; return what was printed."""
    book = {
        "hosts": "cp1",
        "gather_facts": False,
        "vars_files": [str(ROLE / "defaults" / "main.yml"), str(ROLE / "vars" / "main.yml")],
        "tasks": tasks,
    }
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {"cp1": HERE}}}))
    (folder / "play.yml").write_text(yaml.safe_dump([book], sort_keys=False))
    done = subprocess.run(
        [PLAY, "-i", folder / "hosts.yml", folder / "play.yml", "-e", json.dumps(words)],
        cwd=ROOT,
        env=os.environ | {"NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("address", "bind"), [("192.0.2.10", "*:8443"), ("2001:db8::10", ":::8443 v4v6")]
)
def test_haproxy_needs_ipv6_for_an_endpoint_of_ipv6_alone(
    tmp_path: Path, address: str, bind: str
) -> None:
    """A kernel with ipv6.disable=1 has no socket of that family."""
    written = tmp_path / "haproxy.cfg"
    template = {"src": str(ROLE / "templates" / "haproxy.cfg.j2"), "dest": str(written)}
    said = play(
        tmp_path,
        [{"ansible.builtin.template": template}],
        control_plane_endpoint_by="haproxy",
        control_plane_endpoint_address=address,
        control_plane_endpoint_port=8443,
        control_plane_endpoint_peers=[{"name": "cp1", "address": "192.0.2.1"}],
    )
    assert written.exists(), said
    assert f"\n    bind {bind}\n" in written.read_text()


def test_a_named_interface_does_not_make_an_address_the_hosts_own(tmp_path: Path) -> None:
    """The peers hear its own address alone; 127.0.0.1 is one that every host has."""
    role = {"name": "bedplate.gpu.control_plane_endpoint", "tasks_from": "validate"}
    for address, refused in (("192.0.2.1", True), ("127.0.0.1", False)):
        said = play(
            tmp_path,
            [{"ansible.builtin.include_role": role}],
            control_plane_endpoint_by="keepalived",
            control_plane_endpoint_address="192.0.2.10",
            control_plane_endpoint_peers=[{"name": "cp1", "address": address}],
            control_plane_endpoint_interface="lo",
        )
        assert f"failed={int(refused)} " in said
        message = (
            "no interface has the control plane's own address — cp1 — got 192.0.2.1 / allowed an "
            "address of this host — Set ansible_host to the address that the other control planes "
            "reach."
        )
        assert (message in said) == refused, said


@pytest.mark.parametrize(
    ("files", "stopped"),
    [
        ({}, []),
        ({"check": "", "cfg": "# Ours.\n"}, ["keepalived"]),
        (
            {"check": "", "cfg": "# Managed by Bedplate (role control_plane_endpoint).\n"},
            ["keepalived", "haproxy"],
        ),
    ],
)
def test_what_is_removed_stops_and_what_is_the_users_runs_on(
    tmp_path: Path, files: dict[str, str], stopped: list[str]
) -> None:
    """The real questions of files below another root; the units to stop are printed instead."""
    for name, text in files.items():
        path = tmp_path / {"check": "check", "cfg": "etc/haproxy/haproxy.cfg"}[name]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    text = (ROLE / "tasks" / "remove.yml").read_text().replace(" /etc/", f" {tmp_path}/etc/")
    tasks = [task for task in yaml.safe_load(text) if "bedplate.gpu.removal" not in task]
    for task in tasks:
        stop = task.pop("ansible.builtin.systemd_service", None)
        if stop:
            assert (stop["state"], stop["enabled"]) == ("stopped", False)
            task["ansible.builtin.debug"] = {"msg": f"<{stop['name']}>"}
    said = play(tmp_path, tasks, __control_plane_endpoint_check=str(tmp_path / "check"))
    assert "failed=0 " in said, said
    assert re.findall(r"<(\w+)\.service>", said) == stopped
