"""Taking hosts down leaves nothing of them, and the search for leavings finds what there is."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

from bedplate.common.lock_place import BILL
from bedplate.mirror import processes
from bedplate.mirror.service import run_directory
from tests.site import footprint
from tests.substrate import __main__ as substrate
from tests.substrate.hosts import lifecycle, machine, network

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

#: What a site keeps when its hosts go: the salts of the stacks' configuration belong to it.
PASSPHRASE = ".bedplate/pulumi-passphrase"


def mirror(name: str) -> processes.Identity:
    """Start what stands for a network's mirror."""
    run = run_directory(name)
    run.mkdir(parents=True)
    (run / "mirror.json").write_text("{}")
    return processes.start(run / "nginx.json", ["sleep", "300"], run / "nginx.log", {})


def internet(name: str) -> processes.Identity:
    """Start what stands for a network's stand-in for the internet."""
    run = run_directory(name) / "internet"
    run.mkdir(parents=True)
    return processes.start(run / "internet.json", ["sleep", "300"], run / "internet.log", {})


def test_down_all_takes_every_network_its_mirror_and_its_sites_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One network is there with its site; of others only a mirror or a stand-in was left."""
    monkeypatch.setenv("BEDPLATE_CACHE", str(tmp_path / "cache"))
    site = tmp_path / "site"
    gone = ("ssh/id_ed25519", "pulumi/state", "evidence/host-a.json", "tmp/copy", "kubeconfig")
    for path in (*(f".bedplate/{name}" for name in gone), BILL, PASSPHRASE):
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text("x")
    taken: list[str] = []
    monkeypatch.setattr(machine, "check", lambda: None)
    monkeypatch.setattr(network, "ours", lambda: ["demo"])
    monkeypatch.setattr(network, "site", lambda name: site if name == "demo" else None)
    monkeypatch.setattr(lifecycle, "down", taken.append)
    monkeypatch.setattr(sys, "argv", ["substrate", "down", "--all"])
    mirrors = [mirror("demo"), mirror("lost"), internet("away")]
    assert substrate.main() == 0
    assert taken == ["away", "demo", "lost"]
    assert [processes.identity(each.pid) for each in mirrors] == [None] * 3
    assert list((tmp_path / "cache/run").iterdir()) == []
    assert [str(path.relative_to(site)) for path in site.rglob("*") if path.is_file()] == [
        PASSPHRASE
    ]


def test_processes_are_found_by_command_line_and_by_the_host_that_they_run_in(
    tmp_path: Path,
) -> None:
    for pid, line, group in (
        ("1", "conmon\0-c\0abc1\0", "0::/init"),
        ("2", "/sbin/init\0", "0::/libpod-abc1/init.scope"),
        ("3", "conmon\0-c\0abc2\0", "0::/libpod-abc2"),
        ("4", "", "0::/libpod-abc1"),  # ended, and its parent has not asked yet
    ):
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "cmdline").write_text(line)
        (tmp_path / pid / "cgroup").write_text(group)
    assert sorted(footprint.processes(["abc1"], tmp_path)) == ["/sbin/init", "conmon -c abc1"]


def test_processes_of_this_machine_are_found() -> None:
    with subprocess.Popen(["sleep", "299.25"]) as sleeper:
        deadline = time.monotonic() + 120
        # A machine that has much to do does not list it at once.
        while not footprint.processes(["299.25"]) and time.monotonic() < deadline:
            time.sleep(0.1)
        found = footprint.processes(["299.25"])
        sleeper.kill()
    assert found == ["sleep 299.25"]
    assert footprint.processes(["299.25"]) == []


def test_a_mount_is_told_by_its_point_alone(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "mountinfo").write_text(
        "71 30 0:50 / /storage/abc1/merged rw - overlay overlay rw,lowerdir=/storage/base\n"
        "72 30 0:51 / /storage/abc2/merged rw - overlay overlay rw,lowerdir=/storage/abc1\n"
    )
    assert footprint.mounts(["/storage/abc1"], tmp_path) == ["/storage/abc1/merged"]


def test_kernel_settings_that_hosts_have_for_themselves_are_the_ones_looked_at(
    tmp_path: Path,
) -> None:
    for key, value in {"kernel/panic": "0", "vm/swappiness": "60", "kernel/hostname": "x"}.items():
        (tmp_path / "sys" / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "sys" / key).write_text(value)
    assert footprint.settings(tmp_path) == {"kernel/panic": "0", "vm/swappiness": "60"}


def test_hosts_have_what_a_kubelet_writes_for_themselves() -> None:
    lines = footprint.SHADOWS.read_text().splitlines()
    assert {line.split()[0] for line in lines if line} >= footprint.KUBELETS
