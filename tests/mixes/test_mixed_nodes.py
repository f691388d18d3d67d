"""Control planes with GPUs behind an address that moves, and a worker without GPUs."""

from __future__ import annotations

import json
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from tests.mixes.living import Mix, installed, living
from tests.site.cluster import (
    allocatable,
    gpus_in_pod,
    node,
    node_names,
    ready,
    recap,
    wait_for,
)
from tests.site.hosts import on_host
from tests.substrate.hosts.description import load

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.substrate.commands import SiteCommands

#: keepalived misses a lost host after three seconds; etcd and the API servers have a word, too.
SECONDS = 60.0
MIX = Mix(
    "mix",
    "10.213.13.128/25",
    ["cp1", "cp2", "cp3"],
    ["cp2", "cp3"],
    ["w1"],
)


def taints(site: SiteCommands, name: str) -> list[str]:
    """Return the keys of a node's taints."""
    return [one["key"] for one in node(site, name)["spec"].get("taints") or []]


def holders(site: SiteCommands, names: Iterable[str]) -> list[str]:
    """Name the hosts that have the cluster's address."""
    look = "ip -o addr"
    return [name for name in names if f" {MIX.address}/32 " in on_host(site, name, look)]


@pytest.mark.prove
def test_control_planes_with_gpus_behind_an_address_and_a_worker_without(
    tmp_path: Path, figures: dict[str, dict[str, float]]
) -> None:
    with living(MIX, tmp_path) as site:
        installed(site)
        assert node_names(site) == {"cp1", "cp2", "cp3", "w1"}
        assert allocatable(site) == {"cp2": 2, "cp3": 2}
        assert all(ready(site, name) for name in MIX.hosts)
        own = {
            "cp1": ["node-role.kubernetes.io/control-plane"],
            "cp2": [],
            "cp3": [],
            "w1": [],
        }
        # That of a node which is not ready goes a moment after it is.
        wait_for(
            "the nodes' own taints",
            lambda: {name: taints(site, name) for name in MIX.hosts} == own,
            SECONDS,
        )
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

        # The first control plane is gone from one moment to the next.
        assert holders(site, MIX.hosts) == ["cp1"]
        description = load(site.description)
        container = description.container(description.host("cp1"))
        subprocess.run(["podman", "kill", container], check=True, capture_output=True)
        began = time.monotonic()
        ask = ["--request-timeout=2s", "get", "--raw", "/readyz"]
        wait_for(
            "an answer at the endpoint", lambda: site.kubectl(*ask).stdout == "ok", SECONDS, 0.2
        )
        took = time.monotonic() - began
        print(f"the API answers again at the endpoint after {took:.1f} s")
        figures["virtual address: seconds until the API answers again"] = {"keepalived": took}
        assert holders(site, ["cp2", "cp3"]) == ["cp2"]
        assert gpus_in_pod(site, "cp3", tmp_path).startswith("GPU 0: Tesla T4 (UUID: GPU-")

        # Through the next control plane a node gets its label, and the upgrade asks for its nodes.
        variables = site.site / "host_vars" / "w1.yml"
        variables.parent.mkdir()
        variables.write_text("bedplate_labels: {example.com/room: b12}\n")
        site.plan()
        site.resolve()
        told = " ".join(site.up("cluster").stdout.split())
        assert "cp1 cannot be reached; cp2 is asked in its place" in told
        assert node(site, "w1")["metadata"]["labels"]["example.com/room"] == "b12"
        site.playbook("playbooks/upgrade.yml", "--limit", "!cp1")
        # Evidence of the cluster comes through it too: it says that one control plane is down.
        evidence = site.site / ".bedplate/evidence/cluster.json"
        before = evidence.stat().st_mtime
        done = site.playbook("playbooks/verify.yml", check=False)
        assert recap(done.stdout)["cp1"]["unreachable"] == 1
        assert evidence.stat().st_mtime > before
        checks = json.loads(evidence.read_text())["checks"]
        assert "node.cp1.ready" in {one["id"] for one in checks if one["result"] == "fail"}
