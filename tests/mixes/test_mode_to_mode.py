"""One pool from MIG to MPS and back, each time with pods on it, and an upgrade that is killed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from bedplate.components.schedulers.topology import SHARING_LABEL
from bedplate.portable.driver.record import PATH as DRIVERS
from tests.mixes.living import Mix, installed, living
from tests.mixes.moves import (
    ALLOWED,
    LARGE,
    OFFERED,
    SLICES,
    SMALL,
    UPGRADE,
    devices,
    left_pending,
    offered,
    upgraded,
)
from tests.mixes.pods import Pods, mode
from tests.schedulers.nodes import GPU
from tests.site.cluster import node, wait_for
from tests.site.faults import kill_when
from tests.site.hosts import on_host

if TYPE_CHECKING:
    from pathlib import Path

    from tests.substrate.commands import SiteCommands

HOST = "one"
CARDS, REPLICAS = 2, 4
#: Of a GPU, in GiB: the daemon says whole ones so.
MEMORY = 80
MODES = Mix(
    "mode-mix",
    "10.213.17.0/25",
    [HOST],
    [HOST],
    gpu={"model": "a100-sxm4-80gb", "count": CARDS},
)
MPS = {"mode": "mps", "replicas": REPLICAS}
#: Once it has changed the host the GPUs are divided anew, and nothing of the new mode is there.
HALF_WAY = "gpu_sharing : Divide the GPUs"
#: What the role has made for MPS.
OF_MPS = (
    "find /etc/systemd/system /run/nvidia /etc/bedplate -name '*mps*';"
    " findmnt --noheadings --output TARGET | grep mps; pgrep --list-name mps || true"
)


@pytest.mark.prove
def test_a_pool_from_mig_to_mps_and_back(
    tmp_path: Path, figures: dict[str, dict[str, float]]
) -> None:
    with living(MODES, tmp_path) as site:
        mode(site, *SLICES)
        installed(site)
        site.select("schedulers")
        pods = Pods(site)
        in_slices(site)
        slices(site, pods)

        left_pending(site, HOST, ("small", "large"), **MPS)
        assert offered(site, HOST) == OFFERED
        killed_half_way(site)
        upgraded(site, HOST)
        in_shares(site)
        shares(site, pods)

        before = on_host(site, HOST, OF_MPS)
        assert before
        left_pending(site, HOST, ("share0", "share1"), *SLICES)
        assert on_host(site, HOST, OF_MPS) == before
        upgraded(site, HOST)
        in_slices(site)
        slices(site, pods)
        figures["one pool from MIG to MPS and back: seconds"] = {
            "two upgrades, and two refused": site.phases[f"ansible {UPGRADE}"]
        }


def in_slices(site: SiteCommands) -> None:
    """The node has the layout of the lock and the label of its mode, and nothing of MPS."""
    wait_for("each size and the whole GPU", lambda: offered(site, HOST) == OFFERED)
    assert on_host(site, HOST, OF_MPS) == ""
    newest, *_ = json.loads(on_host(site, HOST, f"cat {DRIVERS}"))["good"]
    assert "nvidia-cuda-mps" not in newest["packages"]
    assert labelled(site) == "mig"


def in_shares(site: SiteCommands) -> None:
    """The node offers shares alone, and no GPU is divided."""
    wait_for("the shares", lambda: offered(site, HOST) == {GPU: CARDS * REPLICAS})
    assert set(devices(site, HOST)) == {GPU}
    assert labelled(site) == "mps"


def labelled(site: SiteCommands) -> str:
    """Bring the schedulers' stack up, and return the mode that its label of the node says."""
    site.up("schedulers")
    return str(node(site, HOST)["metadata"]["labels"][SHARING_LABEL])


def slices(site: SiteCommands, pods: Pods) -> None:
    """A pod has each size, and sees no other."""
    there = devices(site, HOST)
    for name, resource in (("small", SMALL), ("large", LARGE)):
        pods.start(name, resource=resource)
        assert pods.seen(name)[1] in there[resource]


def shares(site: SiteCommands, pods: Pods) -> None:
    """Two pods have shares, and read the limits that the lock has for them."""
    limits = [f"{MEMORY // REPLICAS}G", f"{100 // REPLICAS}.0"]
    for name in ("share0", "share1"):
        pods.start(name)
        uuid, card = pods.seen(name)
        assert uuid in devices(site, HOST)[GPU]
        index = card.removeprefix("nvidia")
        asked = (
            f"echo get_default_device_pinned_mem_limit {index} | nvidia-cuda-mps-control;"
            " echo get_default_active_thread_percentage | nvidia-cuda-mps-control"
        )
        said = site.kubectl("exec", name, "--", "sh", "-c", asked).stdout.split()
        assert said == limits


def killed_half_way(site: SiteCommands) -> None:
    """Without the run that drained it the node lets no pod in and offers no GPU."""
    task = ""

    def divided(line: str) -> bool:
        nonlocal task
        task = line if line.startswith("TASK") else task
        return HALF_WAY in task and line.startswith("changed")

    command = ["ansible-playbook", "-i", str(site.site), UPGRADE, *ALLOWED]
    kill_when(site, command, divided, pause=0)
    assert node(site, HOST)["spec"]["unschedulable"] is True
    assert set(devices(site, HOST)) == {GPU}
    wait_for("no GPU is offered", lambda: offered(site, HOST) == {})
