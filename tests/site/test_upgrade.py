"""Nodes that carry workload, brought to another lock, on a cluster of its own."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
import yaml

from bedplate.lock import load_lock
from tests.site.cluster import (
    GPUS,
    allocatable,
    changed_tasks,
    gpus_in_pod,
    node,
    recap,
    unwrapped,
    wait_for,
)
from tests.site.hosts import PACKAGE_UNITS, on_host, package_specification
from tests.substrate.commands import STACKS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.substrate.commands import SiteCommands

#: A quarter of an hour: run them with `make prove AREA=site`.
pytestmark = pytest.mark.prove

#: A fault of branch 470 that the driver's own health check does not ask for: uncorrected errors.
FAULT = "/usr/local/bin/nvidia-smi"
SICK = f"""cat > {FAULT} <<'END'
#!/bin/sh
case "$(cat /sys/module/nvidia/version) $*" in
  470*ecc.mode*) /usr/bin/nvidia-smi "$@" | sed 's/Enabled, 0,/Enabled, 7,/' ;;
  *) exec /usr/bin/nvidia-smi "$@" ;;
esac
END
chmod 755 {FAULT}"""
#: The nodes of the pool that is upgraded.
POOL = ("gpu-b", "gpu-c")
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def workload(site: SiteCommands, folder: Path) -> Path:
    """Write a workload that may run on either node of the pool to upgrade, and asks for a GPU."""
    pause = load_lock(site.site).cluster.pause.version
    container = {
        "name": "pause",
        "image": f"registry.k8s.io/pause:{pause}",
        "resources": {"limits": {"nvidia.com/gpu": 1}},
    }
    label = {"app": "mobile"}
    on = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(POOL)}
    pod = {
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
        "affinity": {
            "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [on]}]}}
        },
    }
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "mobile"},
        "spec": {
            "selector": {"matchLabels": label},
            "template": {"metadata": {"labels": label}, "spec": pod},
        },
    }
    path = folder / "mobile.yml"
    path.write_text(yaml.safe_dump(deployment))
    return path


def phases(site: SiteCommands) -> list[str]:
    """Return the phase of each of the workload's pods."""
    pods = json.loads(site.kubectl("get", "pods", "-l", "app=mobile", "-o", "json").stdout)
    return [pod["status"]["phase"] for pod in pods["items"]]


def loaded(site: SiteCommands, name: str) -> str:
    """Return the version of the kernel module that a host has loaded."""
    return on_host(site, name, "cat /sys/module/nvidia/version").strip()


@dataclass
class Exchange:
    """A wished change of branch with the workload it goes under, and what check mode said of it."""

    wave: list[str]
    announced: dict[str, list[str]] = field(default_factory=dict)


@pytest.fixture(scope="module", autouse=True)
def cluster(site: SiteCommands) -> None:
    """Make hosts and cluster, where no test has done it before."""
    site.plan()
    site.resolve()
    site.playbook()
    for stack in STACKS:
        site.select(stack)
        site.up(stack)
    for name in POOL:
        on_host(site, name, PACKAGE_UNITS)


@pytest.fixture(scope="module")
def exchange(site: SiteCommands, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exchange]:
    """Another branch for the pool of gpu-b and gpu-c, planned while a workload runs there."""
    wishes = site.site / "group_vars" / "pool_class.yml"
    teams = site.site / "group_vars" / "all" / "teams.yml"
    before = {path: path.read_text() for path in (wishes, teams)}
    mobile = str(workload(site, tmp_path_factory.mktemp("workload")))
    try:
        wishes.write_text(before[wishes] + 'bedplate_driver: {branch: "470", source: distro}\n')
        # No framework's CUDA of the courses runs on that branch.
        kept = yaml.safe_load(before[teams]) | {"bedplate_courses": []}
        teams.write_text(yaml.safe_dump(kept, sort_keys=False))
        site.plan()
        site.resolve()
        site.kubectl("create", "-f", mobile)
        wait_for("the workload runs", lambda: phases(site) == ["Running"])
        yield Exchange(["bedplate.gpu.upgrade", "-e", json.dumps({"upgrade_waves": [1, 2]})])
    finally:
        site.kubectl("delete", "-f", mobile)
        for path, text in before.items():
            path.write_text(text)


def disturbance(site: SiteCommands) -> dict[str, object]:
    """Return what an upgrade touches: drivers, evidence, which nodes are open, where pods run."""
    pods = json.loads(site.kubectl("get", "pods", "-A", "-o", "json").stdout)["items"]
    evidence = sorted((site.site / ".bedplate/evidence").glob("host-*.json"))
    return {
        "drivers": {name: loaded(site, name) for name in GPUS},
        "records": {name: on_host(site, name, "cat /etc/bedplate/driver.json") for name in GPUS},
        "evidence": {path.name: path.read_bytes() for path in evidence},
        "nodes": {name: node(site, name)["spec"] for name in GPUS},
        "pods": sorted((pod["metadata"]["uid"], pod["spec"].get("nodeName")) for pod in pods),
    }


def test_check_mode_announces_the_exchange_and_disturbs_nobody(
    site: SiteCommands, exchange: Exchange
) -> None:
    before = disturbance(site)
    done = site.playbook(*exchange.wave, "--check", "--diff")
    exchange.announced = {name: changed_tasks(done.stdout, name) for name in GPUS}
    assert disturbance(site) == before
    assert exchange.announced["gpu-a"] == []
    assert "Drain the node" in exchange.announced["gpu-b"]
    assert exchange.announced["gpu-c"] == exchange.announced["gpu-b"]
    assert re.search(r"driver 470\S+", unwrapped(done.stdout))


def test_upgrade_drains_exchanges_and_sets_a_bad_node_aside(
    site: SiteCommands, exchange: Exchange, tmp_path: Path
) -> None:
    """With the other branch gpu-c's module loads, and the host is not healthy."""
    on_host(site, "gpu-c", SICK)
    done = site.playbook(*exchange.wave, check=False)
    # The watch over the driver describes the cards by itself, mostly before its role looks.
    own = "bedplate.gpu.nvidia_container_toolkit : Describe the GPUs to container runtimes"
    changed = [task for task in changed_tasks(done.stdout, "gpu-b") if task != own]
    assert changed == exchange.announced["gpu-b"]
    rows = recap(done.stdout)
    assert {name: row["failed"] for name, row in rows.items() if name in GPUS} == {
        "gpu-a": 0,
        "gpu-b": 0,
        "gpu-c": 1,
    }
    told = unwrapped(done.stdout)
    assert "no uncorrected memory errors, and ECC as it stays — gpu-c [health.ecc] — got " in told
    assert re.search(r"— driver 470\S+ \(proprietary\) was rolled back; now: 535", told)
    assert loaded(site, "gpu-b").startswith("470.")
    assert loaded(site, "gpu-c").startswith("535.")
    closed = {name: node(site, name)["spec"].get("unschedulable", False) for name in GPUS}
    assert closed == {"gpu-a": False, "gpu-b": False, "gpu-c": True}
    reason = node(site, "gpu-c")["metadata"]["annotations"]["bedplate.gpu/out-of-service"]
    assert reason.startswith("excluded by bedplate.gpu.upgrade: no uncorrected memory errors")
    assert allocatable(site)["gpu-b"] == GPUS["gpu-b"]
    wait_for("the workload has moved", lambda: "Running" in phases(site))
    evidence = json.loads((site.site / ".bedplate/evidence/host-gpu-c.json").read_text())
    assert "was rolled back" in str(evidence["checks"])

    on_host(site, "gpu-c", f"rm {FAULT}")
    done = site.playbook(*exchange.wave)
    rows = recap(done.stdout)
    assert {name: rows[name]["changed"] for name in ("gpu-a", "gpu-b")} == {"gpu-a": 0, "gpu-b": 0}
    assert loaded(site, "gpu-c").startswith("470.")
    assert "unschedulable" not in node(site, "gpu-c")["spec"]
    assert allocatable(site) == GPUS
    # Drivers came, went and came back, and no other specification with them.
    assert not any(package_specification(site, name) for name in POOL)
    assert gpus_in_pod(site, "gpu-c", tmp_path).startswith("GPU 0: Tesla T4 (UUID: GPU-")
