"""Shares of GPUs in real pods: MPS to its limit and under attack, and a pool that goes from mode to
mode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.mixes.living import Mix, installed, living
from tests.mixes.moves import upgraded
from tests.mixes.pods import Pods, mode
from tests.site.cluster import allocatable, unwrapped, wait_for
from tests.site.hosts import on_host

if TYPE_CHECKING:
    from pathlib import Path

    from tests.substrate.commands import SiteCommands

HOST = "one"
#: What a T4 takes of MPS clients. Two cards would have more shares than a kubelet has pods.
MOST = 48
#: Pods of one T4 that are really started: the machine carries no more beside all else.
STARTED = 12


MPS = Mix(
    "mps-mix",
    "10.213.16.0/25",
    [HOST],
    [HOST],
    gpu={"model": "t4-16gb", "count": 1},
)


def changed(site: SiteCommands, offered: dict[str, int]) -> None:
    """Drain the node, share its GPUs as the lock has it now, and wait for what it offers."""
    site.playbook(check=False)  # its evidence is of the new mode, which the node doesn't have yet
    upgraded(site, HOST)
    wait_for("what the node offers", lambda: allocatable(site) == offered)


@pytest.mark.prove
def test_shares_by_mps(tmp_path: Path) -> None:
    """48 shares of a T4, each pod with its own GPU alone; a pod that lifts its limits is found."""
    with living(MPS, tmp_path) as site:
        mode(site, mode="mps", replicas=MOST + 1)
        refused = site.run("plan", ["bedplate", "plan", str(site.site)], check=False)
        assert refused.returncode != 0
        assert f"{MOST}" in unwrapped(refused.stdout)
        mode(site, mode="mps", replicas=MOST)
        installed(site)
        wait_for("the shares", lambda: allocatable(site) == {HOST: MOST})
        pods = Pods(site)
        names = [f"p{number}" for number in range(STARTED)]
        for name in names:
            pods.start(name, NVIDIA_VISIBLE_DEVICES="all")
        seen = {tuple(pods.seen(name)) for name in names}
        assert len(seen) == 1, "one GPU, and each pod sees it alone"
        pods.kept(HOST, *names[:2])
        site.playbook("playbooks/verify.yml")
        limits_read(site)
        attacked(site)
        pods.delete(*names)
        mode(site, mode="time-slicing", replicas=4)
        changed(site, {HOST: 4})
        mode(site, mode="none")
        changed(site, {HOST: 1})


def limits_read(site: SiteCommands) -> None:
    """The user of notebooks reads, in a share, what the daemon holds each client of its GPU to."""
    questions = ("get_default_device_pinned_mem_limit 0", "get_default_active_thread_percentage")
    asked = "; ".join(f"echo {one} | nvidia-cuda-mps-control" for one in questions)
    script = f"exec setpriv --reuid 1000 --clear-groups sh -c '{asked}'"
    told = site.kubectl("exec", "p0", "--", "sh", "-c", script).stdout.split()
    assert told == [f"{15360 // MOST}M", f"{100 // MOST}.0"]


def attacked(site: SiteCommands) -> None:
    """Driver 535: a pod without rights lifts everybody's limits, and the evidence finds it."""
    lift = "echo set_default_active_thread_percentage 100 | nvidia-cuda-mps-control"
    script = f"exec setpriv --reuid 65534 --clear-groups sh -c '{lift}'"
    done = site.kubectl("exec", "p0", "--", "sh", "-c", script)
    assert done.returncode == 0, done.stdout
    told = unwrapped(site.playbook("playbooks/verify.yml", check=False).stdout)
    assert "sharing.mps" in told
    assert "failed" in told
    on_host(site, HOST, "crictl stop $(crictl ps --quiet --name mps-control-daemon)")
    wait_for("the limits are the lock's", lambda: _verified(site), 180)


def _verified(site: SiteCommands) -> bool:
    return site.playbook("playbooks/verify.yml", check=False).returncode == 0
