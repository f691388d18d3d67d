"""MIG in real pods: two sizes on one GPU, and the other GPU left whole; then two other sizes.

The device plugin is NVIDIA's own, on simulated GPUs; `tests/substrate/gpu/README.md` says what of
the driver its pod is shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.mixes.living import Mix, installed, living
from tests.mixes.moves import (
    LARGE,
    OFFERED,
    SLICES,
    SMALL,
    devices,
    left_pending,
    offered,
    upgraded,
)
from tests.mixes.pods import Pods, mode
from tests.schedulers.nodes import GPU
from tests.site.cluster import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from tests.substrate.commands import SiteCommands

HOST = "one"
MIG = Mix(
    "mig-mix",
    "10.213.16.128/25",
    [HOST],
    [HOST],
    gpu={"model": "a100-sxm4-80gb", "count": 2},
)
#: Another layout of the first GPU.
MIDDLE = "nvidia.com/mig-2g.20gb"
OFFERED_NEXT = {MIDDLE: 2, SMALL: 3, GPU: 1}


@pytest.mark.prove
def test_gpus_by_mig(tmp_path: Path) -> None:
    with living(MIG, tmp_path) as site:
        mode(site, *SLICES)
        installed(site)
        wait_for("each size and the whole GPU", lambda: offered(site, HOST) == OFFERED)
        site.playbook("playbooks/verify.yml")
        each_its_own(site, Pods(site))
        another_layout(site, Pods(site))


def each_its_own(site: SiteCommands, pods: Pods) -> None:
    """Each pod has the size that it asked for and sees nothing else, whatever it says."""
    wanted = {"large": LARGE, "small1": SMALL, "small2": SMALL, "whole": GPU}
    for name, resource in wanted.items():
        pods.start(name, resource=resource, NVIDIA_VISIBLE_DEVICES="all")
    seen = {name: pods.seen(name) for name in wanted}
    there = devices(site, HOST)
    capabilities: list[str] = []
    for name in ("large", "small1", "small2"):
        _, uuid, *nodes, card = seen[name]
        assert uuid in there[wanted[name]]
        assert card == "nvidia0"
        assert len(nodes) == 2, "of its GPU instance and of its compute instance"
        capabilities += nodes
    assert len(set(capabilities)) == 6, "no two pods have one device"
    assert {seen["small1"][1], seen["small2"][1]} == set(there[SMALL])
    _, whole = there[GPU]
    assert seen["whole"] == [whole, "nvidia1"]
    pods.kept(HOST, *wanted)
    pods.start("more", resource=LARGE)
    pods.waits("more", f"Insufficient {LARGE}")
    pods.delete("more", *wanted)


def another_layout(site: SiteCommands, pods: Pods) -> None:
    """A GPU keeps its layout while pods have it; the upgrade drains the node, and divides it."""
    before = devices(site, HOST)
    pods.start("small", resource=SMALL)
    pods.start("whole")
    pods.running("small", "whole")
    cut = {"mode": "mig", "profiles": {"2g.20gb": 2, "1g.10gb": 3}, "cards": [0]}
    left_pending(site, HOST, ("small", "whole"), cut, {"mode": "none", "cards": [1]})
    assert devices(site, HOST) == before
    for name, those in {"small": before[SMALL], "whole": before[GPU][1:]}.items():
        seen = site.kubectl("exec", name, "--", "nvidia-smi", "-L").stdout
        assert any(uuid in seen for uuid in those), seen
    upgraded(site, HOST)
    wait_for("the new sizes and the whole GPU", lambda: offered(site, HOST) == OFFERED_NEXT)
    there = devices(site, HOST)
    pods.start("middle", resource=MIDDLE)
    pods.start("small", resource=SMALL)
    assert pods.seen("middle")[1] in there[MIDDLE]
    assert pods.seen("small")[1] in there[SMALL]
    pods.start("large", resource=LARGE)
    pods.waits("large", f"Insufficient {LARGE}")
