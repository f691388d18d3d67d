"""`ansible-playbook site.yml` as it is run: without the site's lock no host is contacted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "inventories" / "demo"
FAILED = 2
BINARIES = Path(sys.executable).parent


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A copy of the demo site with its lock, beside a trap for whoever uses ssh."""
    copy = tmp_path / "site"
    shutil.copytree(DEMO, copy, ignore=shutil.ignore_patterns(".bedplate"))
    trap = tmp_path / "bin" / "ssh"
    trap.parent.mkdir()
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/contacted\nexit 255\n", encoding="utf-8")
    trap.chmod(0o755)
    return copy


def run(site: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a program of Ansible's over a site, in the repository as the README says."""
    name, *arguments = command
    folder = site.parent
    paths = f"{folder / 'bin'}:{BINARIES}:/usr/bin:/bin"
    return subprocess.run(
        [str(BINARIES / name), "-i", str(site), *arguments],
        cwd=ROOT,
        env=os.environ | {"PATH": paths, "ANSIBLE_HOME": str(folder), "ANSIBLE_NOCOLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def refused(site: Path) -> str:
    """Run the playbook and return what it says, once: it ends in its first play."""
    done = run(site, "ansible-playbook", "site.yml")
    assert done.returncode == FAILED, done.stdout + done.stderr
    assert done.stdout.count("PLAY [") == 1
    assert "PLAY [Refuse what cannot work, touching nothing]" in done.stdout
    assert "TASK [Refuse a lock that is not this site's]" in done.stdout
    assert not (site.parent / "contacted").exists()
    return done.stdout.partition("[ERROR]: ")[2].partition("\n\nTask failed.")[0]


def test_without_a_lock_the_command_is_printed(site: Path) -> None:
    (site / ".bedplate.lock.yml").unlink()
    assert refused(site) == (
        "Task failed: The lookup plugin 'bedplate.gpu.lock' failed: site has no lock — "
        f"{site}/.bedplate.lock.yml — got no file / allowed what `bedplate plan` writes — "
        f"run: bedplate plan {site}"
    )


def test_with_a_stale_lock_the_difference_is_shown(site: Path) -> None:
    pool = site / "group_vars" / "pool_train.yml"
    text = pool.read_text(encoding="utf-8")
    assert "count: 8" in text
    pool.write_text(text.replace("count: 8", "count: 6"), encoding="utf-8")
    told = refused(site)
    assert told.startswith("Task failed: The lookup plugin 'bedplate.gpu.lock' failed: lock is sta")
    assert (
        "lock is stale: pool_train: expects count 8 → 6; pool_train: gpu count 8 → 6 — "
        f"{site}/.bedplate.lock.yml — run: bedplate plan {site}"
    ) in told


def test_the_trap_notices_who_uses_ssh(site: Path) -> None:
    assert run(site, "ansible", "cp1", "-m", "ansible.builtin.ping").returncode != 0
    assert (site.parent / "contacted").exists()
