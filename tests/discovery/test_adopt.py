"""What already runs on a host against the lock."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import pytest
import yaml

from bedplate.evidence.discovery.adopt import cluster_of, findings
from bedplate.lock.model import Lock
from tests.discovery import machines
from tests.discovery.locks import lock
from tests.discovery.machines import debian_driver, facts_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.discovery.machines import Machine


def found(machine: Machine, locked: Lock | None, name: str = "h1") -> list[tuple[str, str]]:
    """Return state and text of what is found, against the site's own cluster."""
    cluster = cluster_of(machine.root, locked, None)
    return [(f.state, str(f)) for f in findings(name, facts_of(machine), locked, cluster)]


def test_a_bare_host_has_nothing_to_adopt(tmp_path: Path) -> None:
    assert found(machines.Machine(tmp_path), lock()) == []


def test_what_is_as_locked_is_adopted(tmp_path: Path) -> None:
    assert found(debian_driver(tmp_path), lock()) == [
        ("adopted", "driver 535.261.03 proprietary, as locked")
    ]


def test_another_version_is_named_with_what_it_takes(tmp_path: Path) -> None:
    machine = debian_driver(tmp_path, "535.216.03")
    aim = "535.261.03 proprietary from distro"
    steps = "2 of 2 packages, loaded 535.216.03 → 535.261.03"
    assert found(machine, lock()) == [
        ("change", (f"driver 535.216.03 proprietary → {aim} ({steps}); "
         "needs: reboot where the GPUs are in use"))
    ]  # fmt: skip
    machines.joined(machine, "https://k8s.example:6443")
    driver, kubelet = found(machine, lock())
    assert driver[1].endswith("; needs: drain, reboot where the GPUs are in use")
    assert kubelet == (
        "change",
        (
            "kubelet 1.35.2 → 1.36.3, in this site's cluster, https://k8s.example:6443; "
            "by bedplate.gpu.upgrade, one minor version at a time; needs: drain"
        ),
    )
    machine.says(["kubelet", "--version"], "Kubernetes v1.36.4")
    _, kubelet = found(machine, lock())
    assert kubelet == (
        "runs",
        (
            "kubelet 1.36.4, in this site's cluster, https://k8s.example:6443; the lock has "
            "1.36.3, and Kubernetes is never downgraded: plan 1.36.4"
        ),
    )
    machine.says(["kubelet", "--version"], "", 127)
    _, kubelet = found(machine, lock())
    assert kubelet == (
        "runs",
        "kubelet inside another program, in this site's cluster, https://k8s.example:6443",
    )


def test_installed_and_not_loaded_yet(tmp_path: Path) -> None:
    machine = debian_driver(tmp_path)
    (tmp_path / "proc/driver/nvidia/version").unlink()
    machine.says(["modinfo", "--field", "version", "nvidia"], "535.261.03")
    machine.says(["modinfo", "--field", "license", "nvidia"], "NVIDIA")
    machine.put("/sys/module/nouveau/refcnt", "1")
    assert found(machine, lock()) == [
        ("change", ("driver 535.261.03 proprietary → 535.261.03 proprietary from distro "
         "(load the module); needs: reboot"))
    ]  # fmt: skip


def test_the_other_flavour(tmp_path: Path) -> None:
    ((state, text),) = found(debian_driver(tmp_path), lock(flavour="open"))
    assert state == "change"
    assert "(proprietary → open)" in text


@pytest.mark.parametrize(
    ("machine", "source", "owner"),
    [
        (machines.by_runfile, "distro", "NVIDIA's runfile"),
        (machines.rocky, "distro", ("NVIDIA's repository (https://developer.download.nvidia.com/"
         "compute/cuda/repos/rhel9/x86_64)")),
        (debian_driver, "vendor-repo", "the distribution"),
        (debian_driver, "precompiled", "the distribution"),
    ],
)  # fmt: skip
def test_foreign_drivers(
    tmp_path: Path, machine: Callable[[Path], Machine], source: str, owner: str
) -> None:
    state, text = found(machine(tmp_path), lock(source=source))[0]
    assert state == "foreign"
    assert f"belongs to {owner}; locked 535.261.03 proprietary from {source}: " in text


def test_how_foreign_owners_let_go(tmp_path: Path) -> None:
    text = found(machines.by_runfile(tmp_path / "r"), lock())[0][1]
    assert text.endswith("run /usr/bin/nvidia-uninstall on the host first; needs: reboot")
    loose = debian_driver(tmp_path / "l")
    loose.debian_packages({"runc": "1"}, machines.DEBIAN)
    text = found(loose, lock())[0][1]
    assert "belongs to no package: a driver container, or a build by hand" in text
    assert text.endswith("stop what loads it first; needs: reboot")


def test_a_runfile_that_is_locked_is_no_foreigner(tmp_path: Path) -> None:
    wanted = lock(source="runfile", version="550.54.15", packages={}, branch="550")
    assert found(machines.by_runfile(tmp_path), wanted)[0][0] == "adopted"


def test_packages_of_unknown_repositories_are_not_called_foreign(tmp_path: Path) -> None:
    machine = debian_driver(tmp_path)
    machine.debian_packages(
        {"nvidia-kernel-dkms": "535.261.03-1", "libcuda1": "535.261.03-1"}, None
    )
    assert found(machine, lock())[0][0] == "adopted"


def test_runtimes_against_the_lock(tmp_path: Path) -> None:
    machine = machines.by_runfile(tmp_path)
    packaged = found(machine, lock())[1]
    assert packaged == (
        "foreign",
        (
            "containerd 1.6.20~ds1 (active, the distribution's package); "
            "locked 2.1.4 from archive: its package stays, and what it runs is restarted"
        ),
    )
    machine.says(["dpkg-query"], "bash\t5\tinstalled\tx")
    assert found(machine, lock())[1][0] == "change"
    machine.says(["containerd", "--version"], "containerd github.com/x v2.1.4 abc")
    assert found(machine, lock())[1] == (
        "adopted",
        "containerd 2.1.4 (active, installed as files), as locked",
    )
    machine.says(["dockerd", "--version"], "Docker version 27.5.1, build 4c9b3b0")
    assert found(machine, lock())[2] == (
        "runs",
        "docker 27.5.1 (not active, installed as files); locked containerd: left alone, next to it",
    )


def test_kubelets_of_other_clusters(tmp_path: Path) -> None:
    machine = machines.joined(machines.Machine(tmp_path), "https://other.example:6443")
    assert found(machine, lock()) == [
        ("foreign", ("kubelet 1.35.2 is in another cluster, https://other.example:6443: "
         "drain it there and run `kubeadm reset`"))
    ]  # fmt: skip
    # A control plane's kubelet talks to its own API.
    machines.joined(machine, "https://192.0.2.9:6443")
    assert found(machine, lock())[0][0] == "change"
    machine.put("/var/lib/rancher/k3s/agent/kubelet.kubeconfig", "server: https://127.0.0.1:6444")
    (tmp_path / "etc/kubernetes/kubelet.conf").unlink()
    assert found(machine, lock())[0] == (
        "foreign",
        (
            "kubelet 1.35.2, node of https://127.0.0.1:6444 by k3s: "
            "take the host out of that cluster first"
        ),
    )


def test_what_keeps_a_host_from_being_a_node_is_named(tmp_path: Path) -> None:
    machine = machines.Machine(tmp_path)
    machine.put("/var/snap/microk8s/current/args/kubelet", "x")
    for name in ("10-containerd-net.conflist", "87-podman-bridge.conflist", "10-flannel.conflist"):
        machine.put(f"/etc/cni/net.d/{name}", "{}")
    assert found(machine, lock())[:3] == [
        ("foreign", "kubernetes microk8s is installed, /var/snap/microk8s: uninstall it first"),
        (
            "foreign",
            (
                "pod network /etc/cni/net.d/10-containerd-net.conflist would win over flannel's "
                "configuration: move it away first"
            ),
        ),
        (
            "runs",
            "pod network /etc/cni/net.d/87-podman-bridge.conflist, which comes after flannel's",
        ),
    ]


def test_links_of_a_former_cluster_are_named(tmp_path: Path) -> None:
    machine = machines.Machine(tmp_path)
    for name in ("cni0", "eno1", "flannel.1", "kube-ipvs0"):
        machine.put(f"/sys/class/net/{name}/mtu", "1450")
    text = "left by a former cluster: reboot the host, or run `ip link delete` for each, first"
    assert found(machine, lock()) == [
        ("foreign", f"pod network cni0, flannel.1 of flannel {text}"),
        ("foreign", f"pod network kube-ipvs0 of kube-proxy {text}"),
    ]
    machines.joined(machine, "https://k8s.example:6443")
    states = [state for state, _ in found(machine, lock())]
    assert states == ["change"]  # kubelet's cluster has them
    (tmp_path / "etc/kubernetes/kubelet.conf").unlink()
    machine.put("/var/lib/k0s/kubelet.conf", "x")
    assert not any(text in said for _, said in found(machine, lock()))


def test_the_authority_says_more_than_an_address(tmp_path: Path) -> None:
    mine = base64.b64encode(b"CA ONE\n").decode()
    config = {"clusters": [{"cluster": {"certificate-authority-data": mine}}]}
    machine = machines.joined(machines.Machine(tmp_path), "https://k8s.example:6443")
    machine.put("/.bedplate/kubeconfig", yaml.safe_dump(config))
    assert found(machine, lock())[0][0] == "change"
    other = base64.b64encode(b"CA TWO\n").decode()
    machines.joined(machine, "https://k8s.example:6443", other)
    assert found(machine, lock())[0][0] == "foreign"


def test_without_a_lock_things_are_named(tmp_path: Path) -> None:
    machine = machines.joined(machines.by_runfile(tmp_path), "https://other.example:6443")
    assert found(machine, None) == [
        ("runs", "driver 550.54.15 proprietary, by NVIDIA's runfile"),
        ("runs", "containerd 1.6.20~ds1 (active, the distribution's package)"),
        ("runs", "kubelet 1.35.2, in a cluster, https://other.example:6443"),
    ]


def test_fabric_manager_and_kernel(tmp_path: Path) -> None:
    machine = machines.dgx(tmp_path)
    machine.put("/proc/sys/kernel/osrelease", "5.15.0-100-generic\n")
    content = lock().model_dump()
    content["pools"]["pool_x"]["nvidia_fabric"] = {
        "kind": "nvswitch",
        "version": "550.90.07", "packages": {"nvidia-fabricmanager-550": "550.90.07-1"},
    }  # fmt: skip
    told = found(machine, Lock.model_validate(content))
    assert ("adopted", "Fabric Manager 550.90.07-1, as locked") in told
    assert ("change", "kernel 5.15.0-100-generic → 6.1.0-50-amd64; needs: reboot") in told
    content["pools"]["pool_x"]["nvidia_fabric"] = {
        "kind": "nvswitch",
        "version": "580.95.05", "packages": {"nvidia-fabricmanager": "580.95.05-1"},
    }  # fmt: skip
    told = found(machine, Lock.model_validate(content))
    assert ("change", "Fabric Manager 550.90.07-1 → 580.95.05") in told
