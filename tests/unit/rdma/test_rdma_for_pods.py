"""RDMA for pods on folders: what the evidence wants of a host and its node, and what waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bedplate.portable.evidence import checks as evidence
from bedplate.portable.evidence import rdma as rdma_evidence
from bedplate.portable.evidence.area import Collected, Wishes
from bedplate.portable.files import ensure_files
from bedplate.portable.host import Host, Result
from bedplate.portable.rdma import settings
from tests.unit.rdma.test_rdma_settings import ROCE, Machine, wish
from tests.unit.test_portable_evidence import cluster, node

if TYPE_CHECKING:
    from pathlib import Path

UNLIMITED = "Max locked memory         unlimited            unlimited            bytes"
EIGHT_MIB = "Max locked memory         8388608              8388608              bytes"
FOR_PODS: dict[str, Any] = {
    "stack": "inbox",
    "method": "dma-buf",
    "devices": ["mlx5_1"],
    "pods": True,
}


class Node(Machine):
    """A host with one InfiniBand port for pods, whose containerd is process 7."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        for name in ("rdma_cm", "umad1", "uverbs1"):
            self.put(f"/dev/infiniband/{name}", "")
        self.put("/proc/7/limits", UNLIMITED)

    def _run(self, argv: Any, timeout: float, env: dict[str, str] | None) -> Result:
        if argv == ["systemctl", "show", "--property=MainPID", "--value", "containerd.service"]:
            return Result(0, "7\n", "")
        return super()._run(argv, timeout, env)

    def failures(self, **changes: Any) -> list[str]:
        to = Collected([], {}, {})
        rdma_evidence.collect(self.host, Wishes(rdma=FOR_PODS | changes), to)
        return evidence.failures(to.checks, "node1")


@pytest.fixture
def machine(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_sound_host_fails_nothing(machine: Node) -> None:
    assert machine.failures() == []


def test_a_limit_of_locked_memory_is_named(machine: Node) -> None:
    machine.put("/proc/7/limits", EIGHT_MIB)
    assert machine.failures() == [
        (
            "containers may lock the memory that RDMA sends — node1 [rdma.locked_memory] — "
            "got 8388608 / allowed unlimited — Run bedplate.gpu.upgrade, which drains the "
            "node and restarts containerd.service with its limits."
        )
    ]


def test_a_device_that_the_plugin_wants_and_nobody_made_is_named(machine: Node) -> None:
    (machine.root / "dev/infiniband/umad1").unlink()
    (said,) = machine.failures()
    assert said.startswith(
        "the devices that pods are given are there — node1 [rdma.pod_devices] — got umad / "
    )


def test_a_host_without_any_device_fails_where_pods_are_promised_one(machine: Node) -> None:
    for name in ("mlx5_0", "mlx5_1"):
        (machine.root / "sys/class/infiniband" / name).rename(machine.root / f"gone-{name}")
    assert machine.failures(devices=[])[0].startswith(
        "RDMA devices are there — node1 [rdma.devices] — got nothing / allowed at least one — "
    )


def test_the_node_offers_what_the_lock_promises(tmp_path: Path) -> None:
    offering, without = node("gpu-a"), node("gpu-a")
    offering["status"]["allocatable"]["rdma/hca"] = "999"
    without["status"]["allocatable"]["rdma/hca"] = "0"
    assert cluster_failures(tmp_path / "offering", offering) == []
    assert cluster_failures(tmp_path / "without", without) == [
        (
            "node gpu-a offers RDMA devices to pods — demo [node.gpu-a.rdma] — got rdma/hca=0 / "
            "allowed rdma/hca=999 — See 'kubectl -n kube-system logs rdma-device-plugin-gpu-a'."
        )
    ]


def cluster_failures(root: Path, one: Any) -> list[str]:
    """Return what fails in a cluster of a node that is to offer GPUs and RDMA devices."""
    checks = cluster(root, [node("cp1", gpus=None), one], {"rdma": {"rdma/hca": 999}})
    return evidence.failures(checks, "demo")


def test_what_marks_the_traffic_of_running_jobs_otherwise_is_said_beforehand(
    machine: Node,
) -> None:
    """A new file, a changed one, and a unit that does not run; not NCCL's variables alone."""

    def answers(state: str) -> Host:
        said = f"ActiveState={state}\nExecMainStartTimestampMonotonic={2**62}\n"
        return Host(str(machine.root), lambda *_: Result(0, said, ""))

    (new,) = settings.disturbing(machine.host, wish())
    assert new == f"RoCE marking: {settings.ROCE}, {settings.MARKER}, {settings.UNIT}"
    ensure_files(machine.host, settings.files(machine.host, wish()))
    assert settings.disturbing(answers("active"), wish()) == []
    assert settings.disturbing(answers("active"), wish(nccl={"NCCL_DEBUG": "INFO"})) == []
    other = wish(roce=ROCE | {"dscp": 24})
    assert settings.disturbing(answers("active"), other) == [f"RoCE marking: {settings.ROCE}"]
    assert settings.disturbing(answers("inactive"), wish()) == [
        "RoCE marking: start of bedplate-roce.service"
    ]
    assert settings.disturbing(answers("active"), wish(roce={})) == []
