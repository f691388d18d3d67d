"""Many hosts that cannot be reached are a line each, by the callback of `bedplate init`'s sites."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
HOSTS = [f"g{number}" for number in range(1, 20)]
#: As the site's playbook meets such a host: refused, excluded in the rescue, and failed for good.
PLAY = [
    {
        "hosts": "all",
        "gather_facts": False,
        "vars_files": [str(ROOT / "playbooks/vars/failure.yml")],
        "tasks": [
            {
                "name": "Work on the host",
                "block": [
                    {"ansible.builtin.import_tasks": str(ROOT / "playbooks/tasks/reach.yml")}
                ],
                "rescue": [{"ansible.builtin.fail": {"msg": "{{ __bedplate_reason }}"}}],
            }
        ],
    }
]


def lines(tmp_path: Path, playbook: Path) -> list[str]:
    """Play it on hosts whose port 1 refuses, and return what is printed before the recap."""
    inventory = tmp_path / "site"
    inventory.mkdir(exist_ok=True)
    hosts = {
        name: {"ansible_host": f"127.0.1.{number}", "ansible_port": 1}
        for number, name in enumerate(HOSTS, 1)
    }
    (inventory / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts}}))
    done = subprocess.run(
        [Path(sys.executable).parent / "ansible-playbook", "-i", inventory, playbook],
        cwd=ROOT,
        env=os.environ | {"ANSIBLE_STDOUT_CALLBACK": "bedplate.gpu.brief", "ANSIBLE_NOCOLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    printed = (done.stdout + done.stderr).split("PLAY RECAP")[0]
    return [line for line in printed.splitlines() if line.strip() and "***" not in line]


def test_hosts_that_cannot_be_reached_are_a_line_each(tmp_path: Path) -> None:
    playbook = tmp_path / "play.yml"
    playbook.write_text(yaml.safe_dump(PLAY))
    found = lines(tmp_path, playbook)
    named = [
        match[1]
        for line in found
        if (match := re.match(r"failed: \[(g\d+)\]: the host cannot be reached — \1 — got ", line))
    ]
    assert sorted(named) == sorted(HOSTS), found
    assert len(found) == len(HOSTS), found


def test_discovery_names_them_a_line_each(tmp_path: Path) -> None:
    found = lines(tmp_path, ROOT / "playbooks/discover.yml")
    named = [line for line in found if line.startswith("failed: [")]
    assert len(named) == len(HOSTS), found
    assert len(found) < 2 * len(HOSTS) + 10, found
