"""Evidence fails for the right reason, on hosts made of folders and canned answers."""

from __future__ import annotations

import json
import platform
from typing import TYPE_CHECKING

import pytest

from bedplate.portable.evidence import checks as evidence
from bedplate.portable.evidence import cluster as cluster_evidence
from bedplate.portable.evidence import container
from bedplate.portable.evidence import host as host_evidence
from bedplate.portable.evidence.area import PENDING
from bedplate.portable.host import Host, Result
from tests.unit.evidence_machine import (
    AREAS,
    GOOD,
    MANIFEST,
    PACKAGES,
    ROW,
    VERSION,
    WISH,
    Machine,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_healthy_host_passes_every_check(machine: Machine) -> None:
    results = {check["id"]: check["result"] for check in machine.checks()}
    assert {name: result for name, result in results.items() if result != "pass"} == {
        "health.nvlink": "skipped",
        "plugin.placed": "skipped",
    }
    assert len(results) == len(machine.checks()) >= 24


def test_an_older_loaded_module_asks_for_a_reboot(machine: Machine) -> None:
    machine.module("535.183.01")
    assert machine.failed() == [
        (
            "loaded kernel module at the lock's version — gpu-b [driver.loaded_version] —"
            " got 535.183.01 (reboot required) / allowed 535.261.03 —"
            " Reboot the host, or set nvidia_driver_reboot_allowed and run bedplate.gpu.site."
        ),
        (
            "library and loaded kernel module are of one version — gpu-b [driver.library] —"
            " got 535.261.03 / allowed 535.183.01 — Run bedplate.gpu.site for this host again."
        ),
    ]


def options_check(machine: Machine, module: str, **wished: object) -> list[tuple[str, str]]:
    """What evidence of the options says, and why: nothing where there is no such check."""
    wish = WISH._replace(driver_options={module: wished})
    checks = [c for c in machine.collected(wish=wish)["checks"] if c["id"] == "driver.options"]
    told = evidence.failures(checks, "gpu-b")
    return [(c["result"], told[0] if told else c.get("reason", "")) for c in checks]


def test_options_that_the_loaded_module_lacks_are_named(machine: Machine) -> None:
    """The file that gives them counts from the next time that the module is loaded."""
    machine.file("proc/driver/nvidia/params", "EnableGpuFirmware: 0\nDeviceFileMode: 438\n")
    wished = {"NVreg_EnableGpuFirmware": 0, "NVreg_DeviceFileMode": 432}
    ((result, told),) = options_check(machine, "nvidia", **wished)
    assert result == "fail"
    assert told == (
        "options of the loaded kernel module as requested — gpu-b [driver.options] —"
        " got NVreg_DeviceFileMode=438 / allowed NVreg_DeviceFileMode=432 —"
        " Run bedplate.gpu.site for this host again."
    )
    (passed,) = options_check(machine, "nvidia", NVreg_EnableGpuFirmware=0)
    assert passed[0] == "pass"
    ((result, _),) = options_check(machine, "nvidia", NVreg_DeviceFileMode="0666")
    assert result == "pass"


def test_options_that_nobody_tells_are_not_passed(machine: Machine) -> None:
    machine.file("proc/driver/nvidia/params", "EnableGpuFirmware: 0\n")
    for module, option in (("nvidia", "NVreg_Unknown"), ("nvidia_drm", "modeset")):
        (told,) = options_check(machine, module, **{option: 1})
        assert told == ("skipped", "the module reports none of them")
    machine.file("proc/driver/nvidia/params", "")
    (told,) = options_check(machine, "nvidia", NVreg_EnableGpuFirmware=0)
    assert told[0] == "fail"
    assert "no nvidia module is loaded" in told[1]


def test_a_gpu_for_a_display_is_named_and_not_counted(machine: Machine) -> None:
    """Nobody declares it: that is what is wrong, not that one of the others does not work."""
    folder = "sys/bus/pci/devices/0000:05:00.0"
    for name, text in (("vendor", "0x10de"), ("device", "0x1ff2"), ("class", "0x030000")):
        machine.file(f"{folder}/{name}", text)
    display = "2, NVIDIA T400 4GB, GPU-2, 4096, Enabled, 00000000:05:00.0, 535.261.03\n"
    rows = machine.answers["nvidia-smi"].out + display
    machine.answers["nvidia-smi"] = Result(0, rows, "")
    machine.file("dev/nvidia2", "")
    found = {one["id"]: one for one in machine.collected()["checks"]}
    assert found["gpu.count"]["result"] == found["gpu.model"]["result"] == "pass"
    assert found["gpu.pci"]["result"] == "fail"
    assert found["gpu.pci"]["reason"] == "not declared: NVIDIA T400 4GB at 0000:05:00.0"


def test_a_driver_that_waits_on_a_node_says_so(machine: Machine) -> None:
    machine.file("etc/kubernetes/kubelet.conf", "")
    placed = machine.host.read(MANIFEST) or ""
    machine.file("etc/kubernetes/manifests/nvidia-device-plugin.yaml", placed)
    old = {"nvidia-kernel-dkms": "535.183.01-1", "nvidia-smi": "535.261.03-1"}
    machine.answers["dpkg-query"] = Result(
        0, "".join(f"{n}\t{v}\thold\tinstalled\n" for n, v in old.items()), ""
    )
    assert machine.failed() == [
        (
            "driver packages at the lock's versions — gpu-b [driver.packages] —"
            " got nvidia-kernel-dkms=535.183.01-1 / allowed nvidia-kernel-dkms=535.261.03-1 —"
            f" {PENDING}"
        )
    ]


@pytest.mark.parametrize(
    ("answer", "result", "names"),
    [
        ("nvidia-smi", Result(9, "", "no devices"), ["driver.library", "container.gpus"]),
        (
            "nvidia-smi",
            Result(0, ROW.format(0), ""),
            ["gpu.count", "compute.copy", "container.gpus"],
        ),
        ("ctr version", Result(1, "", "connection refused"), ["runtime.version"]),
        ("kubelet", Result(127, "", "kubelet: command not found"), ["kubelet.version"]),
        (
            "ctr run nvidia-smi",
            Result(0, "GPU 0: Tesla T4 (UUID: GPU-0)\n", ""),
            ["container.gpus"],
        ),
        ("ctr run gpu-feature-discovery", Result(0, "", ""), ["container.labels"]),
        (
            "ctr run nvidia-smi with nothing",
            Result(0, "GPU 0: Tesla T4 (UUID: GPU-0)\n", ""),
            ["container.nothing"],
        ),
        (
            "ctr run nvidia-smi with nvidia.com/gpu=GPU-1",
            Result(0, "GPU 0: Tesla T4 (UUID: GPU-0)\nGPU 1: Tesla T4 (UUID: GPU-1)\n", ""),
            ["container.one"],
        ),
        (
            "ctr run nvidia-smi with nvidia.com/gpu=GPU-1",
            Result(1, "", "ctr: no answer from the shim"),
            ["container.one"],
        ),
        (
            "ctr run nvidia-smi with nothing",
            Result(124, "", "no answer within 120 s"),
            ["container.nothing"],
        ),
        (
            "dpkg-query",
            Result(1, "", ""),
            ["driver.packages", "driver.held"],
        ),
    ],
)
def test_each_fault_fails_its_own_checks(
    machine: Machine, answer: str, result: Result, names: list[str]
) -> None:
    machine.answers[answer] = result
    assert machine.failing() == names


#: What a UUID that two cards show spoils.
TWICE = ["gpu.uuid", "compute.copy", "container.gpus"]


def _other_card(machine: Machine) -> None:
    machine.file("sys/bus/pci/devices/0000:11:00.0/device", "0x20b5")


def _rows(machine: Machine, was: str, now: str) -> None:
    machine.answers["nvidia-smi"] = Result(0, ROW.format(0) + ROW.format(1).replace(was, now), "")


def _other_image(machine: Machine) -> None:
    text = (machine.host.read(MANIFEST) or "").replace("v0.19.1", "v0.17.0")
    machine.file(MANIFEST, text)


def _taken_back(machine: Machine) -> None:
    one = {"version": VERSION, "flavour": "proprietary", "kernel": platform.release()}
    kept = GOOD | {"failed": one | {"source": "distro", "packages": PACKAGES}}
    machine.file("etc/bedplate/driver.json", json.dumps(kept))


@pytest.mark.parametrize(
    ("fault", "names"),
    [
        (_other_card, ["gpu.pci", "gpu.count", "gpu.model"]),
        (lambda machine: _rows(machine, "GPU-1", "GPU-0"), TWICE),
        (lambda machine: _rows(machine, "15360", "0"), ["gpu.memory", "health.memory"]),
        (lambda machine: _rows(machine, "Enabled", "Disabled"), ["driver.persistence"]),
        (lambda machine: (machine.root / "dev/nvidia1").unlink(), ["driver.device_nodes"]),
        (_other_image, ["plugin.manifest", "owned.nvidia_device_plugin"]),
        (_taken_back, ["driver.kept"]),
    ],
)
def test_each_fault_of_hardware_and_files_fails_its_own_checks(
    machine: Machine, fault: Callable[[Machine], None], names: list[str]
) -> None:
    fault(machine)
    assert machine.failing() == names


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (Result(1, "", "ctr: no answer from the shim"), "ctr: no answer from the shim"),
        (Result(0, "", "level=warning"), "exit status 0, no output"),
    ],
)
def test_a_container_that_answers_at_the_second_try_passes_and_the_first_is_kept(
    machine: Machine, first: Result, reason: str
) -> None:
    tried: set[str] = set()

    def run(argv: Sequence[str], *rest: object) -> Result:
        given = " ".join(word for word in argv if "gpu=" in word)
        if argv[0] == "ctr" and "nvidia-smi" in argv and given not in tried:
            tried.add(given)
            return first
        return machine.run(argv, *rest)

    collected = host_evidence.collect(Host(str(machine.root), run), WISH, ["container"])
    assert evidence.failures(collected["checks"], "gpu-b") == []
    assert collected["facts"]["container_first_try"] == dict.fromkeys(
        ("smi", "nothing", "one"), reason
    )


def test_of_divided_gpus_a_container_is_given_one_part(machine: Machine) -> None:
    parts = "".join(f"  MIG 1g.10gb  Device {n}: (UUID: MIG-{n})\n" for n in (5, 6))
    whole = "GPU 0: H100 (UUID: GPU-0)\n"
    machine.answers["nvidia-smi -L"] = Result(0, whole + parts, "")
    name = "ctr run nvidia-smi with nvidia.com/gpu=MIG-5"
    machine.answers[name] = Result(0, whole + parts.splitlines()[0], "")
    (one,) = [check for check in machine.checks() if check["id"] == "container.one"]
    assert one["result"] == "pass"
    machine.answers[name] = Result(0, whole + parts, "")
    assert "container.one" in machine.failing()


CRIO = WISH._replace(containers={**WISH.containers, "runtime": "cri-o", "image": "pause:1"})


def test_runtimes_without_a_tool_of_their_own_are_tried_before_the_host_joins(
    machine: Machine,
) -> None:
    machine.file("etc/kubernetes/kubelet.conf", "")
    checks = machine.collected("container", wish=CRIO)["checks"]
    assert [(one["id"], one["result"]) for one in checks] == [
        ("container.gpus", "skipped"),
        ("container.labels", "fail"),
        ("container.isolation", "skipped"),
    ]
    assert checks[1]["reason"] == "crictl: command not found"
    assert checks[-1]["reason"] == "kubelet ends containers that it has not started"


@pytest.mark.parametrize(
    ("joined", "by"), [(False, ["gpu-feature-discovery"]), (True, [*container.BY_HOSTS_LOADER])]
)
def test_without_a_tool_of_the_runtimes_own_feature_discovery_is_asked_in_a_container(
    machine: Machine, joined: bool, by: list[str]
) -> None:
    asked: list[list[str]] = []

    def run(argv: Sequence[str], *rest: object) -> Result:
        if argv[0] != "crictl":
            return machine.run(argv, *rest)
        asked.append(list(argv))
        if "exec" in argv:
            return Result(0, "nvidia.com/gpu.count=2\nnvidia.com/gpu.product=Tesla-T4\n", "")
        return Result(0, "abc\n" if {"create", "ps"} & set(argv) else "", "")

    if joined:
        machine.file("etc/kubernetes/kubelet.conf", "")
    wish = CRIO._replace(containers={**CRIO.containers, "image": ""})
    found = host_evidence.collect(Host(str(machine.root), run), wish, ["container"])
    assert found["labels"] == {"nvidia.com/gpu.count": "2", "nvidia.com/gpu.product": "Tesla-T4"}
    results = {one["id"]: one["result"] for one in found["checks"]}
    assert results["container.labels"] == "pass"
    (said,) = [argv for argv in asked if "exec" in argv]
    assert said[said.index("abc") + 1 :][: len(by)] == by
    assert "--oneshot" in said
    assert all("unix:///run/crio/crio.sock" in argv for argv in asked)
    # kubelet's containers stay; what was started here goes.
    assert any("rmp" in argv or "pods" in argv for argv in asked) is not joined


def test_no_check_at_all_is_a_failure() -> None:
    assert evidence.failures([], "gpu-b") == [
        (
            "nothing was checked — gpu-b — got 0 checks / allowed at least one —"
            " Ask for at least one area of evidence."
        )
    ]


def test_a_host_without_declared_gpus_skips_with_a_reason(machine: Machine) -> None:
    wish = WISH._replace(gpus=[])
    found = machine.collected(wish=wish)
    skipped = {c["id"]: c["reason"] for c in found["checks"] if c["result"] == "skipped"}
    areas = set(host_evidence.GPU_AREAS) & set(AREAS)
    assert skipped == dict.fromkeys(areas, "the site declares no GPU for this host")
    assert [c["id"] for c in found["checks"] if c["result"] == "pass"] == [
        "kernel.sysctls",
        "kernel.modules",
        "runtime.version",
        "kubelet.version",
        "owned.container_runtime",
        "owned.host",
        "owned.nvidia_device_plugin",
        "owned.programs",
        "updates.unattended",
    ]


def node(name: str, ready: str = "True", gpus: str | None = "8") -> dict[str, object]:
    return {
        "metadata": {"name": name, "labels": {}},
        "status": {
            "conditions": [{"type": "Ready", "status": ready}],
            "nodeInfo": {"kubeletVersion": "v1.36.3"},
            "allocatable": {"nvidia.com/gpu": gpus} if gpus else {},
        },
    }


def cluster(
    root: Path,
    nodes: list[dict[str, object]],
    more: dict[str, object] | None = None,
    **also: int,
) -> list[dict[str, object]]:
    import json

    admin = root / "etc/kubernetes/admin.conf"
    admin.parent.mkdir(parents=True)
    admin.write_text("")
    pod = {
        "metadata": {"name": "etcd"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }

    def run(argv: Sequence[str], *_: object) -> Result:
        return Result(0, json.dumps({"items": nodes if "nodes" in argv else [pod]}), "")

    gpus = {"kubernetes": "1.36.3", "resource": "nvidia.com/gpu", "count": 8, "also": also} | (
        more or {}
    )
    expects = {"cp1": {"kubernetes": "1.36.3"}, "gpu-a": gpus}
    return cluster_evidence.collect(Host(str(root), run), expects)["checks"]


def test_a_cluster_as_locked_has_no_failure(tmp_path: Path) -> None:
    checks = cluster(tmp_path, [node("cp1", gpus=None), node("gpu-a")])
    assert evidence.failures(checks, "demo") == []
    assert [c["id"] for c in checks if c["result"] == "skipped"] == ["node.gpu-a.labels"]


def test_missing_gpus_and_a_lost_node_fail(tmp_path: Path) -> None:
    checks = cluster(tmp_path, [node("cp1", ready="Unknown", gpus=None), node("gpu-a", gpus="7")])
    assert evidence.failures(checks, "demo") == [
        (
            "node cp1 is Ready — demo [node.cp1.ready] — got Unknown / allowed True —"
            " See 'kubectl describe node cp1'."
        ),
        (
            "node gpu-a offers its nvidia.com/gpu — demo [node.gpu-a.allocatable] —"
            " got 7 / allowed 8 —"
            " See 'kubectl -n kube-system logs' of the node's device plugin pod."
        ),
    ]


def test_a_node_without_one_of_its_mig_devices_fails(tmp_path: Path) -> None:
    mixed = node("gpu-a")
    mixed["status"]["allocatable"]["nvidia.com/mig-1g.10gb"] = "6"  # type: ignore[index]
    also = {"nvidia.com/mig-1g.10gb": 6, "nvidia.com/mig-3g.40gb": 2}
    checks = cluster(tmp_path, [node("cp1", gpus=None), mixed], **also)
    assert evidence.failures(checks, "demo") == [
        (
            "node gpu-a offers its MIG devices by their profiles —"
            " demo [node.gpu-a.allocatable_also] —"
            " got nothing / allowed nvidia.com/mig-3g.40gb=2 —"
            " See 'kubectl -n kube-system logs' of the node's device plugin pod."
        )
    ]


def test_a_node_that_an_upgrade_has_closed_is_told_though_it_is_whole(tmp_path: Path) -> None:
    closed = node("gpu-a") | {"spec": {"unschedulable": True}}
    closed["metadata"] = {
        "name": "gpu-a",
        "labels": {},
        "annotations": {
            "bedplate.gpu/out-of-service": "excluded by bedplate.gpu.upgrade: it burns"
        },
    }
    # Its user's own.
    cordoned = node("cp1", gpus=None) | {"spec": {"unschedulable": True}}
    checks = cluster(tmp_path, [cordoned, closed])
    (told,) = evidence.failures(checks, "demo")
    assert told == (
        "node gpu-a is not kept out of service by "
        "bedplate.gpu.upgrade — demo [node.gpu-a.in_service] —"
        " got out of service (excluded by bedplate.gpu.upgrade: it burns) / allowed in service —"
        " Fix what it says, run bedplate.gpu.upgrade with --limit "
        "gpu-a, and then bedplate.gpu.verify."
    )


def test_without_a_cluster_the_check_is_skipped(tmp_path: Path) -> None:
    found = cluster_evidence.collect(Host(str(tmp_path)), {})
    assert [(c["result"], c["reason"]) for c in found["checks"]] == [
        ("skipped", "there is no cluster yet: the cluster stack makes it")
    ]


@pytest.mark.parametrize("phase", ["begun", "done"])
def test_a_control_plane_that_was_cut_off_is_for_the_stack_to_start_again(
    tmp_path: Path, phase: str
) -> None:
    # kubeadm writes admin.conf first, and gives its user rights when the API server answers.
    texts = {cluster_evidence.ADMIN: "", cluster_evidence.MEMBERSHIP: f'{{"phase": "{phase}"}}'}
    for name, text in texts.items():
        (tmp_path / name[1:]).parent.mkdir(parents=True)
        (tmp_path / name[1:]).write_text(text)
    (found,) = cluster_evidence.collect(Host(str(tmp_path)), {})["checks"]
    reason = "kubeadm did not end here: 'pulumi up' in the cluster stack starts it again"
    assert (found["result"] == "skipped", found["reason"] == reason) == (phase == "begun",) * 2


def test_a_cluster_may_take_its_time_to_settle_and_no_more(tmp_path: Path) -> None:
    import json

    admin = tmp_path / "etc/kubernetes/admin.conf"
    admin.parent.mkdir(parents=True)
    admin.write_text("")
    waited: list[float] = []

    def run(argv: Sequence[str], *_: object) -> Result:
        ready = "True" if len(waited) >= 2 else "False"
        pod = {
            "metadata": {"name": "coredns"},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        }
        items = [node("cp1", gpus=None)] if "nodes" in argv else [pod]
        return Result(0, json.dumps({"items": items}), "")

    expects = {"cp1": {"kubernetes": "1.36.3"}}
    host = Host(str(tmp_path), run)
    impatient = cluster_evidence.collect_settled(host, expects, 3, waited.append)
    assert evidence.failures(impatient["checks"], "demo") != []
    assert waited == [3.0]
    patient = cluster_evidence.collect_settled(host, expects, 30, waited.append)
    assert evidence.failures(patient["checks"], "demo") == []
    assert waited == [3.0, 3.0]
