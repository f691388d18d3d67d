"""What hypervisors of another kind get, and pools of guests: their files, in check mode too."""

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

ROOT = Path(__file__).parents[3]
CARD = "0000:17:00.0"
GUEST = {"devices": [CARD], "cpus": 2, "memory_gib": 4, "disk": "/srv/vm1.qcow2", "network": "br0"}
FUNCTION = {"address": CARD, "id": "10de:1eb8", "subsystem": "10de:12a2", "class": "0302"}
ENTRIES = [
    ("artefacts", "Make the folder for what is written out", {"vm1.vmx", "vm1.qm.conf"}),
    (
        "inventory",
        "Make folders for the pools",
        {"guests.yml", "group_vars/pool_guests_t4_16gb_x1.yml"},
    ),
]


#: A row of a site's facts: a GPU that the catalogue does not know.
OWN = {
    "model": "own-7gb",
    "name": "A card of the site's",
    "pci": ["10de:0fff"],
    "memory_gib": 7,
    "architecture": "turing",
    "compute_capability": "7.5",
    "market": "data-centre",
    "flavours": ["proprietary"],
}


def _run(entry: str, first: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run an entry point from its first task on this machine on; what libvirt has is given.

    The site has its hosts' tasks run by sudo, as one of `bedplate init` may; this machine has none.
    """
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    site = {
        "hosts": {"hv1": here},
        "vars": {"ansible_become": True, "ansible_become_exe": str(folder / "no-sudo")},
    }
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": site}))
    given: dict[str, Any] = {
        "gpu_passthrough_devices": [CARD],
        "gpu_passthrough_guests": {"vm1": GUEST},
        "gpu_passthrough_gpu_model": "t4-16gb",
        "gpu_passthrough_artefacts": ["vsphere", "proxmox"],
        "gpu_passthrough_artefacts_dir": str(folder / "out"),
        "__gpu_passthrough_domains": {"domains": [{"name": "vm1", "functions": [FUNCTION]}]},
    }
    (folder / "given.json").write_text(json.dumps(given))
    role = {"name": "bedplate.gpu.gpu_passthrough", "tasks_from": entry}
    play = {"hosts": "all", "gather_facts": False, "tasks": [{"import_role": role}]}
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    return subprocess.run(
        [
            Path(sys.executable).with_name("ansible-playbook"),
            f"--start-at-task=bedplate.gpu.gpu_passthrough : {first}",
            f"--extra-vars=@{folder / 'given.json'}",
            f"--inventory={folder / 'hosts.yml'}",
            folder / "play.yml",
            *options,
        ],
        cwd=ROOT,
        # Root is made root as any user is, which Ansible leaves out.
        env=os.environ | {"NO_COLOR": "1", "ANSIBLE_BECOME_ALLOW_SAME_USER": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def _changed(said: str) -> int:
    (found,) = re.findall(r"^hv1 .*changed=([0-9]+)", said, re.MULTILINE)
    return int(found)


@pytest.mark.parametrize(("entry", "first", "files"), ENTRIES, ids=["artefacts", "inventory"])
def test_check_mode_foretells_the_first_run(
    entry: str, first: str, files: set[str], tmp_path: Path
) -> None:
    """There is no folder yet: what would be put into it is told all the same."""
    foretold = _run(entry, first, tmp_path, "--check")
    assert foretold.returncode == 0, foretold.stdout + foretold.stderr
    out = tmp_path / "out"
    assert not out.exists()
    done = _run(entry, first, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {str(p.relative_to(out)) for p in out.rglob("*") if p.is_file()} == files
    assert _changed(foretold.stdout) == _changed(done.stdout)


def test_the_facts_of_the_site_count(tmp_path: Path) -> None:
    source = {"url": "https://example.com/", "read": "2026-11-26"}
    (tmp_path / "facts").mkdir()
    (tmp_path / "facts/gpu-models.yml").write_text(
        yaml.safe_dump([{"value": OWN, "reason": "For the test.", "source": source}])
    )
    function = {**FUNCTION, "id": "10de:0fff"}
    found = {"domains": [{"name": "vm1", "functions": [function]}]}
    more = {"gpu_passthrough_gpu_model": "own-7gb", "__gpu_passthrough_domains": found}
    for entry, first, _ in ENTRIES:
        done = _run(entry, first, tmp_path, f"--extra-vars={json.dumps(more)}")
        assert done.returncode == 0, done.stdout + done.stderr
    out = tmp_path / "out"
    assert (out / "vm1.vmx").exists()
    assert (out / "group_vars/pool_guests_own_7gb_x1.yml").exists()
