"""One machine from bare host to GPU pod: control plane and GPU host in one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.mixes.living import Mix, installed, living
from tests.site.cluster import allocatable, gpus_in_pod, node, node_names, unwrapped, wait_for
from tests.site.hosts import on_host

if TYPE_CHECKING:
    from pathlib import Path

ONE = Mix(
    "one",
    "10.213.13.0/25",
    ["one"],
    ["one"],
)


@pytest.mark.prove
def test_a_bare_machine_becomes_a_cluster_that_runs_gpu_pods(tmp_path: Path) -> None:
    with living(ONE, tmp_path) as site:
        installed(site)
        assert node_names(site) == {"one"}
        assert allocatable(site) == {"one": 2}
        assert node(site, "one")["spec"].get("taints") is None
        said = gpus_in_pod(site, "one", tmp_path)
        assert said.startswith("GPU 0: Tesla T4 (UUID: GPU-")
        assert said.count("GPU ") == 1
        site.playbook("playbooks/verify.yml")
        told = json.loads((site.site / ".bedplate/evidence/cluster.json").read_text())
        # What the upper stacks bring is skipped: they have not been brought up.
        results = [check["result"] for check in told["checks"]]
        assert "pass" in results
        assert "fail" not in results

        # The site changes its mind: the same cluster gets the taint, and loses it again.
        made = node(site, "one")["metadata"]["uid"]
        wishes = site.site / "group_vars/all.yml"
        before = wishes.read_text()
        content = yaml.safe_load(before)
        content["bedplate_kubernetes"]["control_plane_taint"] = True
        wishes.write_text(yaml.safe_dump(content))
        assert "only if they tolerate the control plane's taint" in unwrapped(site.plan().stdout)
        site.resolve()
        site.up("cluster")
        (taint,) = node(site, "one")["spec"]["taints"]
        assert (taint["key"], taint["effect"]) == (
            "node-role.kubernetes.io/control-plane",
            "NoSchedule",
        )
        wishes.write_text(before)
        site.plan()
        site.resolve()
        site.up("cluster")
        assert node(site, "one")["spec"].get("taints") is None
        assert node(site, "one")["metadata"]["uid"] == made
        site.pulumi("cluster", "preview", "--expect-no-changes")

        site.pulumi("cluster", "destroy", "--yes", "--skip-preview")
        left = "find /etc/kubernetes -name '*.conf' -o -path '*/manifests/kube-*'"
        wait_for("the machine has left its cluster", lambda: not on_host(site, "one", left))
