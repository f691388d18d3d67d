"""MIG in real pods: two sizes on one GPU, and the other GPU left whole; then two other sizes.

The device plugin is NVIDIA's own, on simulated GPUs; `tests/substrate/gpu/README.md` says what of
the driver its pod is shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.mixes.living import Mix, installed, living
from tests.mixes.pods import Pods, mode
from tests.schedulers.nodes import GPU
from tests.site.cluster import node, unwrapped, wait_for
from tests.site.hosts import on_host

if TYPE_CHECKING:
    from pathlib import Path

    from tests.substrate.commands import SiteCommands

ADDRESS = "10.213.16.139"
HOST = "one"
MIG = Mix(
    "mig-mix",
    "10.213.16.128/25",
    "10.213.16.129",
    {HOST: ADDRESS},
    [HOST],
    {"control_plane": [HOST]},
    {"endpoint": f"{ADDRESS}:6443"},
    {"model": "a100-sxm4-80gb", "count": 2},
)
LARGE, SMALL = "nvidia.com/mig-3g.40gb", "nvidia.com/mig-1g.10gb"
OFFERED = {LARGE: 1, SMALL: 2, GPU: 1}
#: Another layout of the first GPU.
MIDDLE = "nvidia.com/mig-2g.20gb"
OFFERED_NEXT = {MIDDLE: 2, SMALL: 3, GPU: 1}


def offered(site: SiteCommands) -> dict[str, int]:
    """Return what the node offers of NVIDIA's resources, those that are none left out."""
    found = node(site, HOST)["status"]["allocatable"]
    return {
        name: int(count)
        for name, count in found.items()
        if name.startswith("nvidia.com/") and int(count)
    }


def devices(site: SiteCommands) -> dict[str, set[str]]:
    """Return the UUIDs of the host's GPUs and MIG devices, by the resource that has them."""
    found: dict[str, set[str]] = {}
    whole: list[str] = []
    for line in on_host(site, HOST, "nvidia-smi -L").splitlines():
        uuid = line.partition("(UUID: ")[2].rstrip(")")
        if line.startswith("GPU"):
            whole.append(uuid)
        else:
            found.setdefault(f"nvidia.com/mig-{line.split()[1]}", set()).add(uuid)
    found[GPU] = set(whole[1:])
    return found


@pytest.mark.prove
def test_gpus_by_mig(tmp_path: Path) -> None:
    with living(MIG, tmp_path) as site:
        cut = {"mode": "mig", "profiles": {"3g.40gb": 1, "1g.10gb": 2}, "cards": [0]}
        mode(site, cut, {"mode": "none", "cards": [1]})
        installed(site)
        wait_for("each size and the whole GPU", lambda: offered(site) == OFFERED)
        site.playbook("playbooks/verify.yml")
        each_its_own(site, Pods(site))
        another_layout(site, Pods(site))


def each_its_own(site: SiteCommands, pods: Pods) -> None:
    """Each pod has the size that it asked for and sees nothing else, whatever it says."""
    wanted = {"large": LARGE, "small1": SMALL, "small2": SMALL, "whole": GPU}
    for name, resource in wanted.items():
        pods.start(name, resource=resource, NVIDIA_VISIBLE_DEVICES="all")
    seen = {name: pods.seen(name) for name in wanted}
    there = devices(site)
    capabilities: list[str] = []
    for name in ("large", "small1", "small2"):
        _, uuid, *nodes, card = seen[name]
        assert uuid in there[wanted[name]]
        assert card == "nvidia0"
        assert len(nodes) == 2, "of its GPU instance and of its compute instance"
        capabilities += nodes
    assert len(set(capabilities)) == 6, "no two pods have one device"
    assert {seen["small1"][1], seen["small2"][1]} == there[SMALL]
    (whole,) = there[GPU]
    assert seen["whole"] == [whole, "nvidia1"]
    pods.start("more", resource=LARGE)
    pods.waits("more", f"Insufficient {LARGE}")
    pods.delete("more", *wanted)


def another_layout(site: SiteCommands, pods: Pods) -> None:
    """A GPU keeps its layout while pods have it; the upgrade drains the node, and divides it."""
    before = devices(site)
    pods.start("small", resource=SMALL)
    pods.start("whole")
    pods.running("small", "whole")
    cut = {"mode": "mig", "profiles": {"2g.20gb": 2, "1g.10gb": 3}, "cards": [0]}
    said = mode(site, cut, {"mode": "none", "cards": [1]})
    assert "change sharing" in said
    assert "(drained)" in said
    # Its evidence is of the layout that the node does not have yet.
    told = unwrapped(site.playbook(check=False).stdout)
    assert f"pending: sharing of GPUs — {HOST} — " in told
    assert "run bedplate.gpu.upgrade, which drains it" in told
    undisturbed(site, pods, before)
    # Nothing makes these pods again: the upgrade evicts them only where that is allowed.
    refused = site.playbook("playbooks/upgrade.yml", check=False)
    assert refused.returncode != 0
    assert "default/small" in unwrapped(refused.stdout)
    undisturbed(site, pods, before)

    bare = "-e upgrade_delete_bare_pods=true -e upgrade_failure_budget=0"
    site.playbook("playbooks/upgrade.yml", *bare.split())
    wait_for("the new sizes and the whole GPU", lambda: offered(site) == OFFERED_NEXT)
    assert not node(site, HOST)["spec"].get("unschedulable")
    site.playbook("playbooks/verify.yml")
    there = devices(site)
    pods.start("middle", resource=MIDDLE)
    pods.start("small", resource=SMALL)
    assert pods.seen("middle")[1] in there[MIDDLE]
    assert pods.seen("small")[1] in there[SMALL]
    pods.start("large", resource=LARGE)
    pods.waits("large", f"Insufficient {LARGE}")


def undisturbed(site: SiteCommands, pods: Pods, before: dict[str, set[str]]) -> None:
    """The layout is as before, and the pods run with what they had."""
    assert devices(site) == before
    for name, those in {"small": before[SMALL], "whole": before[GPU]}.items():
        (status,) = pods.get(name)["status"]["containerStatuses"]
        assert ("running" in status["state"], status["restartCount"]) == (True, 0)
        seen = site.kubectl("exec", name, "--", "nvidia-smi", "-L").stdout
        assert any(uuid in seen for uuid in those), seen
