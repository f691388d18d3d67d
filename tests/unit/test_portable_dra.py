"""GPUs that a DRA driver publishes: counted, and compared with those of the host."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.portable import cluster_node, dra
from bedplate.portable.evidence import checks as evidence
from bedplate.portable.evidence import cluster as cluster_evidence
from bedplate.portable.host import Host, Result
from tests.unit.evidence_machine import MANIFEST, WISH, Machine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

DRA = WISH._replace(sharing={"mode": "dra", "shares": True})


def device(number: int, **more: Any) -> dict[str, Any]:
    """One GPU as NVIDIA's driver 0.5.0 publishes it with shares by memory."""
    return {
        "name": f"gpu-{number}",
        "allowMultipleAllocations": True,
        "attributes": {"uuid": {"string": f"GPU-{number}"}, "type": {"string": "gpu"}},
        "capacity": {"memory": {"value": "15Gi"}},
        **more,
    }


def slice_of(node: str, *devices: dict[str, Any], **more: Any) -> dict[str, Any]:
    """One slice of a node: a pool may have several, and a restart may leave an older one."""
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": dra.DRIVER, "nodeName": node, "pool": pool, "devices": list(devices)}
    return {"spec": {**spec, **more}}


TWO = slice_of("gpu-b", device(0), device(1))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A host with two T4 in a cluster, whose DRA driver has published both."""
    host = Machine(tmp_path)
    host.host.remove(MANIFEST)
    host.file("etc/kubernetes/kubelet.conf", "")
    host.file(dra.UNIT_FILE, "ExecStart=/usr/local/bin/gpu-kubelet-plugin --node-name=gpu-b \\\n")
    host.file(dra.SOCKET, "")
    host.answers["kubectl"] = Result(0, json.dumps({"items": [TWO]}), "")
    states = {"is-enabled": Result(0, "enabled\n", ""), "is-active": Result(0, "active\n", "")}

    def ask(argv: Sequence[str], *_: Any) -> Result:
        return states.get(argv[1]) or host.run(argv)

    host.host = Host(str(tmp_path), ask)
    return host


def told(machine: Machine) -> list[str]:
    """The messages of what fails on a host whose GPUs are to be DRA's."""
    checks = machine.collected("plugin", wish=DRA)["checks"]
    assert [one["id"] for one in checks][:2] == ["plugin.absent", "dra.unit"]
    return evidence.failures(checks, "gpu-b")


def test_a_node_whose_gpus_are_all_published_passes(machine: Machine) -> None:
    assert told(machine) == []
    checks = machine.collected("plugin", wish=DRA)["checks"]
    assert {one["id"]: one["result"] for one in checks} == dict.fromkeys(
        ["plugin.absent", "dra.unit", "dra.registered", "dra.devices", "dra.shares", "dra.taints"],
        "pass",
    )


def test_before_the_host_joins_only_the_unit_is_looked_at(machine: Machine) -> None:
    machine.host.remove("/etc/kubernetes/kubelet.conf")
    checks = machine.collected("plugin", wish=DRA)["checks"]
    results = [one["result"] for one in checks]
    assert results == ["pass", "pass", *["skipped"] * 4]


def _second_owner(machine: Machine) -> None:
    machine.file(MANIFEST, "kind: Pod\n")


def _unregistered(machine: Machine) -> None:
    machine.host.remove(dra.SOCKET)


def _published(*slices: dict[str, Any]) -> Callable[[Machine], None]:
    def publish(machine: Machine) -> None:
        machine.answers["kubectl"] = Result(0, json.dumps({"items": slices}), "")

    return publish


def _silent(machine: Machine) -> None:
    machine.answers["kubectl"] = Result(1, "", "connection refused")


LOG = "Read its log: journalctl --unit bedplate-dra-driver.service"
XID = {"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoSchedule"}
SMALL = {"memory": {"value": "8Gi"}}


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            _second_owner,
            (
                "the DRA driver alone owns the GPUs, without a device plugin — gpu-b"
                " [plugin.absent] — got /etc/bedplate/device-plugin.yaml / allowed nothing —"
                " Run bedplate.gpu.upgrade for this host, which drains it."
            ),
        ),
        (
            _unregistered,
            (
                "kubelet has the DRA driver — gpu-b [dra.registered] —"
                f" got active, not registered / allowed active, registered — {LOG}"
            ),
        ),
        (
            _published(slice_of("gpu-b", device(0))),
            (
                "every GPU is a device of the node's slice, with its memory — gpu-b [dra.devices] —"
                f" got nothing / allowed GPU-1=15360 MiB — {LOG}"
            ),
        ),
        (
            _published(slice_of("gpu-b", device(0), device(1, capacity=SMALL))),
            (
                "every GPU is a device of the node's slice, with its memory — gpu-b [dra.devices] —"
                f" got GPU-1=8192 MiB / allowed GPU-1=15360 MiB — {LOG}"
            ),
        ),
        (
            _published(slice_of("gpu-b", device(0), device(1, allowMultipleAllocations=False))),
            (
                "GPUs are shared by memory, or given whole — gpu-b [dra.shares] —"
                " got gpu-1=whole / allowed gpu-1=shared —"
                " Run bedplate.gpu.site for this host again."
            ),
        ),
        (
            _published(slice_of("gpu-b", device(0, taints=[XID]), device(1))),
            (
                "no GPU is tainted — gpu-b [dra.taints] —"
                " got gpu-0: gpu.nvidia.com/xid=79:NoSchedule / allowed nothing —"
                " See the host's kernel log for the XID error; a reset or a reboot clears it."
            ),
        ),
        (
            _silent,
            (
                "every GPU is a device of the node's slice, with its memory — gpu-b [dra.devices] —"
                f" got connection refused / allowed an answer of the API — {LOG}"
            ),
        ),
    ],
)
def test_what_is_wrong_is_named(
    machine: Machine, spoil: Callable[[Machine], None], message: str
) -> None:
    spoil(machine)
    assert told(machine) == [message]


def test_of_a_pool_its_newest_generation_counts_and_other_nodes_and_drivers_do_not() -> None:
    old = slice_of("gpu-b", device(0), device(1), device(2))
    new = slice_of("gpu-b", device(0), pool={"name": "gpu-b", "generation": 2})
    other = slice_of("gpu-b", device(5), driver="compute-domain.nvidia.com")
    found = dra.devices([old, new, other, slice_of("gpu-a", device(7))], "gpu-b")
    assert [one.name for one in found] == ["gpu-0"]


def api(slices: list[dict[str, Any]], root: str = "/") -> Host:
    """A control plane whose node gpu-b is Ready, with these slices."""
    status = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "allocatable": {"nvidia.com/gpu": "0"},
        "nodeInfo": {"kubeletVersion": "v1.36.3"},
    }
    node = {"metadata": {"name": "gpu-b"}, "spec": {}, "status": status}

    def run(argv: Sequence[str], *_: Any) -> Result:
        if "node" in argv:
            return Result(0, json.dumps(node), "")
        items = {"nodes": [node], dra.SLICES: slices}
        found = next((of for name, of in items.items() if name in argv), [])
        return Result(0, json.dumps({"items": found}), "")

    return Host(root, run)


def test_a_drained_node_is_back_once_its_devices_are_published() -> None:
    pauses: list[float] = []
    assert cluster_node.await_ready(api([TWO]), "gpu-b", {dra.DRIVER: 2}, 6, pauses.append) == []
    lacks = cluster_node.await_ready(api([]), "gpu-b", {dra.DRIVER: 2}, 6, pauses.append)
    assert lacks == ["gpu.nvidia.com: 0 instead of 2"]
    assert pauses == [3.0, 3.0]


def test_evidence_of_the_cluster_counts_devices_in_place_of_the_extended_resource(
    tmp_path: Path,
) -> None:
    (tmp_path / "etc/kubernetes").mkdir(parents=True)
    (tmp_path / "etc/kubernetes/admin.conf").write_text("")
    expects = {"gpu-b": {"kubernetes": "1.36.3", "resource": dra.DRIVER, "count": 2}}
    for slices, result, found in (([TWO], "pass", "2"), ([], "fail", "0")):
        checks = cluster_evidence.collect(api(slices, str(tmp_path)), expects)["checks"]
        (mine,) = [one for one in checks if one["id"] == "node.gpu-b.allocatable"]
        assert (mine["result"], mine["found"], mine["wished"]) == (result, found, "2")
