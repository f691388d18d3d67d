"""Action and module probe: the same answers by either way, and which way is taken when."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bedplate.portable import os_release
from bedplate.portable.host import Host

ROOT = Path(__file__).parents[2]
PLAY = Path(sys.executable).with_name("ansible-playbook")
ASKED: dict[str, Any] = {
    "commands": {
        "fine": ["printf", "%s", "two words; 'quoted' Ä"],
        "fails": ["sh", "-c", "echo no >&2; exit 3"],
        "nowhere": ["bedplate-has-no-such-program"],
    },
    "files": {"there": "/etc/hostname", "missing": "/nonexistent"},
    "exists": {"there": "/etc", "missing": "/nonexistent"},
}
#: Writes down how it was called, and does what it is asked for, but for what is taken out of it.
INTERPRETER = """#!/bin/sh
echo "${{1:-module}}" >> {log}
{refuses}
exec {python} "$@"
"""


def probe(folder: Path, **variables: Any) -> dict[str, Any]:
    """Run the task once on a host with these variables; what it registered."""
    found = folder / "found.json"
    tasks = [
        {"bedplate.gpu.probe": ASKED, "register": "found", "ignore_unreachable": True},
        {
            "ansible.builtin.copy": {"content": "{{ found | to_json }}", "dest": str(found)},
            "delegate_to": "localhost",
            "connection": "local",
            "vars": {"ansible_python_interpreter": sys.executable},
        },
    ]
    book, hosts = folder / "play.yml", folder / "hosts.json"
    book.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
    hosts.write_text(json.dumps({"all": {"hosts": {"one": variables}}}))
    done = subprocess.run(
        [PLAY, "-i", hosts, book],
        cwd=ROOT,
        env=os.environ | {"ANSIBLE_SSH_RETRIES": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.exists(), done.stdout + done.stderr
    answer: dict[str, Any] = json.loads(found.read_text())
    return answer


def interpreter(folder: Path, refuses: str = "") -> tuple[str, Path]:
    """Write an interpreter, and say where it writes down how it was called."""
    path, log = folder / "python", folder / "calls"
    path.write_text(INTERPRETER.format(log=log, refuses=refuses, python=sys.executable))
    path.chmod(0o755)
    return str(path), log


@pytest.mark.parametrize(
    ("refuses", "calls"),
    [
        ("", ["-c"]),
        ('[ "$1" != -c ] || exit 9', ["-c", "module"]),
        ('[ "$1" != -c ] || { echo a shell greets; exit 0; }', ["-c", "module"]),
    ],
    ids=["answers", "fails", "says something else"],
)
def test_a_known_python_is_asked_directly_and_else_by_the_module(
    tmp_path: Path, refuses: str, calls: list[str]
) -> None:
    python, log = interpreter(tmp_path, refuses)
    found = probe(tmp_path, ansible_connection="local", ansible_python_interpreter=python)
    assert [
        line if line == "-c" else "module" for line in log.read_text().split("\n")[:-1]
    ] == calls
    assert found["commands"] == {
        "fine": {
            "code": 0,
            "out": "two words; 'quoted' Ä",
            "err": "",
            "said": "two words; 'quoted' Ä",
        },
        "fails": {"code": 3, "out": "", "err": "no", "said": "no"},
        "nowhere": {
            "code": 127,
            "out": "",
            "err": "bedplate-has-no-such-program: command not found",
            "said": "bedplate-has-no-such-program: command not found",
        },
    }
    assert found["files"] == {"there": Path("/etc/hostname").read_text(), "missing": None}
    assert found["exists"] == {"there": True, "missing": False}
    assert found["changed"] is False
    here = Host()
    assert (found["system"], found["family"]) == (os_release.name(here), os_release.family(here))


def test_a_host_that_is_lost_is_unreachable_not_failed(tmp_path: Path) -> None:
    found = probe(
        tmp_path,
        ansible_host="127.0.0.1",
        ansible_port=1,
        ansible_python_interpreter="/usr/bin/python3",
    )
    assert found["unreachable"] is True
    assert "failed" not in found or not found["failed"]
    assert "port 1" in found["msg"]
