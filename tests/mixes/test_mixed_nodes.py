"""Control planes with GPUs and a worker without: all join, only declared GPUs are waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.mixes.living import Mix, installed, living
from tests.site.cluster import allocatable, gpus_in_pod, node, node_names, ready
from tests.site.hosts import on_host

if TYPE_CHECKING:
    from pathlib import Path

    from tests.substrate.commands import SiteCommands

NET = "10.213.13."
MIX = Mix(
    "mix",
    f"{NET}128/25",
    f"{NET}129",
    {"cp1": f"{NET}141", "cp2": f"{NET}142", "cp3": f"{NET}143", "w1": f"{NET}144"},
    ["cp2", "cp3"],
    {"control_plane": ["cp1", "cp2", "cp3"], "workers": ["w1"]},
    {"endpoint": f"{NET}141:6443"},
)


def taints(site: SiteCommands, name: str) -> list[str]:
    """Return the keys of a node's taints."""
    return [one["key"] for one in node(site, name)["spec"].get("taints") or []]


@pytest.mark.prove
def test_control_planes_with_gpus_and_a_worker_without(tmp_path: Path) -> None:
    with living(MIX, tmp_path) as site:
        installed(site)
        assert node_names(site) == {"cp1", "cp2", "cp3", "w1"}
        assert allocatable(site) == {"cp2": 2, "cp3": 2}
        assert all(ready(site, name) for name in MIX.hosts)
        assert {name: taints(site, name) for name in MIX.hosts} == {
            "cp1": ["node-role.kubernetes.io/control-plane"],
            "cp2": [],
            "cp3": [],
            "w1": [],
        }
        assert gpus_in_pod(site, "cp3", tmp_path).startswith("GPU 0: Tesla T4 (UUID: GPU-")
        # Nothing of NVIDIA's is on the worker, and kubelet and runtime are.
        found = on_host(
            site, "w1", "ls /usr/local/bin /etc/bedplate; dpkg -l | grep -c nvidia || true"
        )
        assert "kubelet" in found
        assert "nvidia" not in found
        assert found.rstrip().endswith("\n0")
        site.playbook("playbooks/verify.yml")
        site.pulumi("cluster", "preview", "--expect-no-changes")
