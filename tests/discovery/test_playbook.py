"""The playbook as a user runs it, on this machine and on a host that is not there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

BIN = Path(sys.executable).parent
HOSTS = """\
all:
  children:
    gpu_pools:
      children:
        pool_a:
          hosts:
            here: {{ansible_connection: local, ansible_python_interpreter: {python}}}
            away:
              ansible_host: 127.0.0.1
              ansible_port: 1
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Return a site that says how its hosts are reached, and nothing else."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "hosts.yml").write_text(HOSTS.format(python=sys.executable))
    return folder


def run(site: Path, *arguments: str, inventory: str = "site") -> subprocess.CompletedProcess[str]:
    """Run the playbook from above the site."""
    return subprocess.run(
        [BIN / "ansible-playbook", "-i", inventory, "bedplate.gpu.discover", *arguments],
        cwd=site.parent,
        env=os.environ
        | {
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_PIPELINING": "1",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def recap(output: str) -> dict[str, dict[str, int]]:
    """Return the play's counts by host."""
    rows = re.findall(r"^(\w+) +: (ok=.*)$", output, re.MULTILINE)
    return {
        host: {name: int(count) for name, count in (pair.split("=") for pair in counts.split())}
        for host, counts in rows
    }


def found(site: Path) -> list[str]:
    """Return what lies below the site's dot folder."""
    return sorted(
        str(path.relative_to(site / ".bedplate"))
        for path in (site / ".bedplate").rglob("*")
        if path.is_file()
    )


def test_an_absent_host_stops_no_other_and_fails_in_the_end(site: Path) -> None:
    done = run(site)
    assert done.returncode == 2, done.stdout + done.stderr
    counts = recap(done.stdout)
    assert counts["here"]["failed"] == counts["here"]["unreachable"] == 0
    assert counts["away"]["failed"] == 1
    assert counts["here"]["changed"] == counts["away"]["changed"] == 0
    assert "host cannot be read — away — got " in done.stdout
    # What differs comes after everything was said.
    assert done.stdout.index("proposed: ") < done.stdout.index("host cannot be read")
    assert found(site)[:2] == ["discovered/hosts/away.json", "discovered/hosts/here.json"]
    record = json.loads((site / ".bedplate/discovered/hosts/here.json").read_text())
    assert record["facts"]["system"]["kernel"] == os.uname().release
    assert record["groups"] == ["gpu_pools", "pool_a"]
    assert json.loads((site / ".bedplate/discovered/hosts/away.json").read_text())["facts"] is None
    (pool,) = (site / ".bedplate/discovered/pools").iterdir()
    assert yaml.safe_load(pool.read_text())["bedplate_host"]["os"]


def test_check_mode_reads_and_says_the_same_and_writes_nothing(site: Path) -> None:
    real, checked = run(site, "--limit", "here"), None
    written = found(site)
    for path in (site / ".bedplate").rglob("*.*"):
        path.unlink(missing_ok=True) if path.is_file() else None
    checked = run(site, "--limit", "here", "--check")
    assert real.returncode == checked.returncode == 0, checked.stdout
    assert recap(checked.stdout) == recap(real.stdout)
    assert re.findall("proposed: .*", checked.stdout) == re.findall("proposed: .*", real.stdout)
    assert written
    assert found(site) == []


def test_a_host_is_asked_once(site: Path) -> None:
    done = run(site, "--limit", "here", "-vvv")
    assert done.returncode == 0, done.stdout
    assert len(re.findall(r"^<here> EXEC ", done.stdout, re.MULTILINE)) == 1


def test_wishes_are_told_with_their_place(site: Path) -> None:
    (site / "group_vars").mkdir()
    (site / "group_vars" / "pool_a.yml").write_text(
        "some_os: plan9-4\nbedplate_gpu: {model: t4-16gb, count: 64}\n"
        'bedplate_host: {os: "{{ some_os }}"}\nbedplate_passthrough: "{{ nothing }}"\n'
    )
    done = run(site, "--limit", "here")
    assert done.returncode == 2
    told = json.loads((site / ".bedplate/discovered/hosts/here.json").read_text())["problems"]
    pool = "site/group_vars/pool_a.yml"
    assert f"{pool}:2:1: here: other GPUs than declared — bedplate_gpu" in told[0]
    assert f"{pool}:3:17: " in told[1]
    assert " — bedplate_host.os" in told[1]
    assert "allowed plan9-4" in told[1]
    assert told[-1].startswith("here: setting cannot be evaluated — ")
    assert "bedplate_passthrough" in told[-1]
    assert all(line in done.stdout for line in told)


def test_an_inventory_that_is_no_site_is_refused(site: Path) -> None:
    done = run(site, inventory="x,")
    assert done.returncode == 2
    assert "the inventory is no site — x, — got " in done.stdout
    assert not (site.parent / ".bedplate").exists()
