"""Evidence fails for the right reason, on hosts made of folders and canned answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bedplate.portable import cluster_evidence, evidence, host_evidence
from bedplate.portable.evidence_area import PENDING, Wishes
from bedplate.portable.host import Host, Result

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

VERSION = "535.261.03"
PACKAGES = {"nvidia-kernel-dkms": "535.261.03-1", "nvidia-smi": "535.261.03-1"}
IMAGE = "nvcr.io/nvidia/k8s-device-plugin:v0.19.1"
ROW = "{0}, Tesla T4, GPU-{0}, 15360, Enabled, 00000000:1{0}:00.0, 535.261.03\n"
WISH = Wishes(
    gpus=[{"model": "t4-16gb", "pci": ["10de:1eb8"], "count": 2}],
    driver_version=VERSION,
    driver_flavour="proprietary",
    driver_packages=PACKAGES,
    containerd_version="2.4.2",
    toolkit_version="1.20.1",
    kubelet_version="1.36.3",
    plugin_image=IMAGE,
)


class Machine:
    """A healthy host with two T4: tests break one thing and look what is said."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia0", "nvidia1"):
            self.file(f"dev/{name}", "")
        self.module(VERSION)
        for number in (0, 1):
            folder = f"sys/bus/pci/devices/0000:1{number}:00.0"
            for name, text in (("vendor", "0x10de"), ("device", "0x1eb8"), ("class", "0x030200")):
                self.file(f"{folder}/{name}", text)
        self.file("etc/bedplate/device-plugin.yaml", f"image: {IMAGE}\n")
        packages = "".join(f"{n}\t{v}\thold\tinstalled\n" for n, v in PACKAGES.items())
        smi = "".join(f"GPU {n}: Tesla T4 (UUID: GPU-{n})\n" for n in (0, 1))
        self.answers: dict[str, Result] = {
            "dpkg-query": Result(0, packages, ""),
            "nvidia-smi": Result(0, ROW.format(0) + ROW.format(1), ""),
            "ctr version": Result(
                0, "Client:\n  Version: v9.9.9\nServer:\n  Version:  v2.4.2\n", ""
            ),
            "ctr run nvidia-smi": Result(0, smi, ""),
            "ctr run gpu-feature-discovery": Result(
                0, "nvidia.com/gpu.count=2\nnvidia.com/gpu.product=Tesla-T4\n", ""
            ),
            "nvidia-ctk --version": Result(0, "NVIDIA Container Toolkit CLI version 1.20.1\n", ""),
            "nvidia-ctk cdi": Result(
                0, "nvidia.com/gpu=0\nnvidia.com/gpu=1\nnvidia.com/gpu=all\n", ""
            ),
            "kubelet": Result(0, "Kubernetes v1.36.3\n", ""),
        }

    def file(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def module(self, version: str) -> None:
        self.file(
            "proc/driver/nvidia/version",
            f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  x\n",
        )

    def run(self, argv: Sequence[str], *_: object) -> Result:
        key = argv[0]
        if key == "ctr":
            key = "ctr version" if argv[1] == "version" else f"ctr run {argv[9]}"
        elif key == "nvidia-ctk":
            key = "nvidia-ctk --version" if argv[1] == "--version" else "nvidia-ctk cdi"
        return self.answers[key]

    def checks(self, *areas: str) -> list[dict[str, object]]:
        collected = host_evidence.collect(
            Host(str(self.root), self.run), WISH, list(areas or host_evidence.AREAS)
        )
        return collected["checks"]

    def failed(self) -> list[str]:
        return evidence.failures(self.checks(), "gpu-b")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_healthy_host_passes_every_check(machine: Machine) -> None:
    results = {check["id"]: check["result"] for check in machine.checks()}
    assert {name for name, result in results.items() if result != "pass"} == {"plugin.placed"}
    assert len(results) == len(machine.checks()) == 21


def test_an_older_loaded_module_asks_for_a_reboot(machine: Machine) -> None:
    machine.module("535.183.01")
    assert machine.failed() == [
        (
            "loaded kernel module at the lock's version — gpu-b [driver.loaded_version] —"
            " got: 535.183.01 (reboot required); allowed: 535.261.03 —"
            " Reboot the host, or set nvidia_driver_reboot_allowed and run site.yml."
        ),
        (
            "library and loaded kernel module are of one version — gpu-b [driver.library] —"
            " got: 535.261.03; allowed: 535.183.01 — Run site.yml for this host again."
        ),
    ]


def test_a_driver_that_waits_on_a_node_says_so(machine: Machine) -> None:
    machine.file("etc/kubernetes/kubelet.conf", "")
    machine.file("etc/kubernetes/manifests/nvidia-device-plugin.yaml", f"image: {IMAGE}\n")
    old = {"nvidia-kernel-dkms": "535.183.01-1", "nvidia-smi": "535.261.03-1"}
    machine.answers["dpkg-query"] = Result(
        0, "".join(f"{n}\t{v}\thold\tinstalled\n" for n, v in old.items()), ""
    )
    assert machine.failed() == [
        (
            "driver packages at the lock's versions — gpu-b [driver.packages] —"
            " got: nvidia-kernel-dkms=535.183.01-1; allowed: nvidia-kernel-dkms=535.261.03-1 —"
            f" {PENDING}"
        )
    ]


@pytest.mark.parametrize(
    ("answer", "result", "names"),
    [
        ("nvidia-smi", Result(9, "", "no devices"), ["driver.library", "container.gpus"]),
        ("nvidia-smi", Result(0, ROW.format(0), ""), ["gpu.count", "container.gpus"]),
        ("nvidia-ctk cdi", Result(0, "nvidia.com/gpu=0\n", ""), ["cdi.devices"]),
        ("ctr version", Result(1, "", "connection refused"), ["runtime.version"]),
        ("kubelet", Result(127, "", "kubelet: command not found"), ["kubelet.version"]),
        (
            "ctr run nvidia-smi",
            Result(0, "GPU 0: Tesla T4 (UUID: GPU-0)\n", ""),
            ["container.gpus"],
        ),
        ("ctr run gpu-feature-discovery", Result(0, "", ""), ["container.labels"]),
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
    failed = [check["id"] for check in machine.checks() if check["result"] == "fail"]
    assert failed == names


def test_a_container_that_starts_at_the_second_try_passes_and_the_first_is_kept(
    machine: Machine,
) -> None:
    answers = iter([Result(1, "", "ctr: no answer from the shim")])

    def run(argv: Sequence[str], *rest: object) -> Result:
        starts = argv[0] == "ctr" and "nvidia-smi" in argv
        return next(answers, machine.run(argv)) if starts else machine.run(argv, *rest)

    collected = host_evidence.collect(Host(str(machine.root), run), WISH, ["container"])
    assert evidence.failures(collected["checks"], "gpu-b") == []
    assert collected["facts"]["container_first_try"] == {"smi": "ctr: no answer from the shim"}


def test_no_check_at_all_is_a_failure() -> None:
    assert evidence.failures([], "gpu-b") == [
        (
            "nothing was checked — gpu-b — got: 0 checks; allowed: at least one —"
            " Ask for at least one area of evidence."
        )
    ]


def test_a_host_without_declared_gpus_skips_with_a_reason(machine: Machine) -> None:
    wish = WISH._replace(gpus=[])
    found = host_evidence.collect(
        Host(str(machine.root), machine.run), wish, list(host_evidence.AREAS)
    )
    skipped = {c["id"]: c["reason"] for c in found["checks"] if c["result"] == "skipped"}
    assert skipped == dict.fromkeys(
        host_evidence.GPU_AREAS, "the site declares no GPU for this host"
    )
    assert [c["id"] for c in found["checks"] if c["result"] == "pass"] == [
        "runtime.version",
        "kubelet.version",
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


def cluster(root: Path, nodes: list[dict[str, object]]) -> list[dict[str, object]]:
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

    expects = {
        "cp1": {"kubernetes": "1.36.3"},
        "gpu-a": {"kubernetes": "1.36.3", "resource": "nvidia.com/gpu", "count": 8},
    }
    return cluster_evidence.collect(Host(str(root), run), expects)["checks"]


def test_a_cluster_as_locked_has_no_failure(tmp_path: Path) -> None:
    checks = cluster(tmp_path, [node("cp1", gpus=None), node("gpu-a")])
    assert evidence.failures(checks, "demo") == []
    assert [c["id"] for c in checks if c["result"] == "skipped"] == ["node.gpu-a.labels"]


def test_missing_gpus_and_a_lost_node_fail(tmp_path: Path) -> None:
    checks = cluster(tmp_path, [node("cp1", ready="Unknown", gpus=None), node("gpu-a", gpus="7")])
    assert evidence.failures(checks, "demo") == [
        (
            "node cp1 is Ready — demo [node.cp1.ready] — got: Unknown; allowed: True —"
            " See 'kubectl describe node cp1'."
        ),
        (
            "node gpu-a offers its nvidia.com/gpu — demo [node.gpu-a.allocatable] —"
            " got: 7; allowed: 8 —"
            " See 'kubectl -n kube-system logs' of the node's device plugin pod."
        ),
    ]


def test_without_a_cluster_the_check_is_skipped(tmp_path: Path) -> None:
    found = cluster_evidence.collect(Host(str(tmp_path)), {})
    assert [(c["result"], c["reason"]) for c in found["checks"]] == [
        ("skipped", "there is no cluster yet: the cluster stack makes it")
    ]


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
