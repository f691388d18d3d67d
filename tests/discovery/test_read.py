"""What is read of several machines, all at once and part by part."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from bedplate.portable.discovery import hardware as discovery_hardware
from bedplate.portable.discovery import links as discovery_links
from bedplate.portable.discovery import packages as discovery_packages
from bedplate.portable.discovery import reading as discovery
from bedplate.portable.discovery import software as discovery_software
from bedplate.portable.host import Host
from tests.discovery import machines

if TYPE_CHECKING:
    from pathlib import Path

    from tests.discovery.machines import Machine


def test_a_dgx(tmp_path: Path) -> None:
    facts = discovery.collect(machines.dgx(tmp_path).host)
    found = [(d["id"], d["class"]) for d in facts["accelerators"]]
    assert found.count(("10de:2330", "0302")) == 8
    assert found.count(("10de:22a3", "0680")) == 4
    assert facts["accelerators"][1] == {
        "address": "0000:1b:00.0",
        "id": "10de:2330",
        "subsystem": "10de:16c1",
        "class": "0302",
        "driver": "nvidia",
        "numa_node": 0,
    }
    assert facts["system"]["os"] == "ubuntu-22.04"
    assert facts["system"]["cgroup"] == 2
    assert facts["system"]["memory_mib"] == 2064
    assert facts["system"]["virtual"] is None
    assert facts["secure_boot"]["state"] == "disabled"
    assert facts["disks"] == [
        {
            "name": "nvme0n1",
            "bytes": 15002931888 * 512,
            "rotational": False,
            "model": "SAMSUNG MZQL27T6HBLA-00A07",
        }
    ]
    nics = {nic["name"]: (nic["speed"], nic["rdma"]) for nic in facts["nics"]}
    assert nics == {"eno3": (10000, False), "ibp24s0": (None, True)}
    (card,) = facts["rdma"]
    assert card["firmware"] == "28.39.2048"
    assert card["ports"] == [
        {"port": 1, "link": "InfiniBand", "state": "ACTIVE", "rate": "400 Gb/sec (4X NDR)"}
    ]
    assert facts["firmware"]["bios_version"] == "1.1.3"
    assert facts["firmware"]["vbios"] == {"00000000:1b:00.0": "96.00.74.00.1A"}
    assert len(facts["gpus"]["list"]) == 8
    assert facts["nvlink"]["matrix"]["GPU0"] == {f"GPU{n}": "NV18" for n in range(1, 8)}
    assert len(facts["nvlink"]["matrix"]) == 8
    assert facts["nvlink"]["links"][7] == {"gpu": 7, "active": 17, "inactive": 1, "rate": 26.562}
    assert facts["driver"]["loaded"] == {
        "version": "550.90.07",
        "flavour": "open",
        "simulated": False,
    }
    assert facts["driver"]["owner"] == "vendor-repo"
    assert facts["container_runtime"]["toolkit"] == {"version": "1.16.2", "owner": "vendor-repo"}
    json.dumps(facts)  # nothing in it that JSON cannot say


def test_without_a_driver_links_are_absent_and_said_to_be(tmp_path: Path) -> None:
    machine = machines.workstation(tmp_path, "10de:14a9")
    facts = discovery.collect(machine.host)
    absent = {"known": False, "reason": "no NVIDIA driver is loaded"}
    assert facts["nvlink"] == facts["gpus"] == absent
    assert facts["driver"]["loaded"] is None
    assert facts["driver"]["owner"] == "none"
    assert facts["driver"]["nouveau"] is True
    assert not [argv for argv in machine.asked if argv[0] == "nvidia-smi"]


def test_a_driver_that_does_not_answer_gives_its_reason(tmp_path: Path) -> None:
    machine = machines.dgx(tmp_path)
    machine.answers = {k: v for k, v in machine.answers.items() if k[0] != "nvidia-smi"}
    machine.says(["nvidia-smi"], "", code=9, err="No devices were found")
    facts = discovery.collect(machine.host)
    assert facts["gpus"] == {"known": False, "reason": "No devices were found"}
    assert facts["nvlink"] == {"known": False, "reason": "No devices were found"}
    assert facts["firmware"]["vbios"] == {}


def test_an_empty_machine_is_read_too(tmp_path: Path) -> None:
    facts = discovery.collect(
        Host(str(tmp_path), machines.Machine(tmp_path / "other").host._runner)
    )
    assert facts["accelerators"] == facts["disks"] == facts["nics"] == facts["packages"] == []
    assert facts["system"]["os"] == "unknown-unknown"
    assert facts["system"]["kernel"] is None
    assert facts["kubernetes"] == {
        "kubelet": None,
        "membership": None,
        "control_plane": False,
        "others": {},
        "cni": [],
        "cni_first": [],
        "links": {},
    }


def test_reading_changes_nothing(tmp_path: Path) -> None:
    machine = machines.joined(machines.dgx(tmp_path), "https://k8s.example:6443")

    def everything() -> dict[str, tuple[int, bytes]]:
        return {
            str(path): (path.stat().st_mtime_ns, path.read_bytes())
            for path in sorted(tmp_path.rglob("*"))
            if path.is_file()
        }

    before = everything()
    first = discovery.collect(machine.host)
    assert everything() == before
    assert discovery.collect(machine.host) == first
    reading = {
        "systemd-detect-virt", "uname", "dpkg-query", "apt-cache", "modinfo", "nvidia-smi",
        "containerd", "crio", "dockerd", "nvidia-ctk", "kubelet", "systemctl", "mokutil", "rpm",
    }  # fmt: skip
    assert {argv[0] for argv in machine.asked} <= reading
    assert {argv[1] for argv in machine.asked if argv[0] == "systemctl"} == {"is-active"}
    # As root, apt would write its caches.
    for argv in machine.asked:
        if argv[0] == "apt-cache":
            assert {"Dir::Cache::pkgcache=", "Dir::Cache::srcpkgcache="} <= set(argv)


def test_virtual_functions_are_no_cards(tmp_path: Path) -> None:
    found = discovery_hardware.accelerators(machines.hypervisor(tmp_path).host)
    assert [d["address"] for d in found if d["id"] == "10de:1eb8"] == [
        "0000:17:00.0",
        "0000:65:00.0",
    ]


def test_iommu_groups_without_bridges(tmp_path: Path) -> None:
    machine = machines.hypervisor(tmp_path)
    assert discovery_hardware.iommu(machine.host) == {
        "active": True,
        "groups": {
            "12": ["0000:17:00.0", "0000:17:00.1"],
            "13": ["0000:65:00.0", "0000:65:00.1"],
        },
        "arguments": ["intel_iommu=on", "iommu=pt"],
    }
    machine.plug("0000:00:02.0", "8086:1", "0c0330")
    machine.group(13, "0000:00:02.0")  # what is no bridge counts
    assert "0000:00:02.0" in discovery_hardware.iommu(machine.host)["groups"]["13"]


@pytest.mark.parametrize(
    ("variables", "mokutil", "state"),
    [
        ({"SecureBoot": 1, "SetupMode": 0}, "", "enabled"),
        ({"SecureBoot": 1, "SetupMode": 1}, "", "disabled"),
        ({"SecureBoot": 0}, "", "disabled"),
        ({"Other": 0}, "SecureBoot enabled", "enabled"),
        ({"Other": 0}, "SecureBoot disabled", "disabled"),
        ({"Other": 0}, "EFI variables are not supported on this system", "unknown"),
        ({}, "SecureBoot enabled", "unsupported"),
    ],
)
def test_secure_boot(tmp_path: Path, variables: dict[str, int], mokutil: str, state: str) -> None:
    machine = machines.Machine(tmp_path)
    for name, value in variables.items():
        machine.efi(name, value)
    machine.says(["mokutil", "--sb-state"], mokutil)
    assert discovery_hardware.secure_boot(machine.host)["state"] == state


@pytest.mark.parametrize(
    ("said", "key"),
    [
        ("/x is already enrolled", "enrolled"),
        ("/x is not enrolled", "not enrolled"),
        ("mokutil: no EFI", "unknown"),
        (None, "absent"),
    ],
)
def test_the_signing_key(tmp_path: Path, said: str | None, key: str) -> None:
    machine = machines.Machine(tmp_path)
    machine.efi("SecureBoot", 1)
    if said:
        machine.put("/var/lib/dkms/mok.pub", "der")
        machine.says(["mokutil", "--test-key"], said)
    assert discovery_hardware.secure_boot(machine.host)["key"] == key


def owners(machine: Machine) -> dict[str, tuple[str, str | None]]:
    return {p.name: (p.owner, p.repository) for p in discovery_packages.installed(machine.host)}


@pytest.mark.parametrize(
    ("release", "source", "owner", "shown"),
    [
        (machines.UBUNTU_RELEASE, machines.CUDA_REPOSITORY, "vendor-repo",
         machines.CUDA_REPOSITORY),
        (machines.UBUNTU_RELEASE, machines.PPA, "other",
         "https://mirror.example/extra jammy/main amd64 Packages"),
        (machines.DEBIAN_RELEASE, machines.DEBIAN, "distro", machines.DEBIAN),
        (machines.UBUNTU_RELEASE, machines.DEBIAN, "other", machines.DEBIAN),
        (machines.DEBIAN_RELEASE, None, "unknown", None),
    ],
)  # fmt: skip
def test_whose_debian_packages_are(
    tmp_path: Path, release: str, source: str | None, owner: str, shown: str | None
) -> None:
    machine = machines.Machine(tmp_path)
    machine.put("/etc/os-release", release)
    machine.debian_packages({"nvidia-kernel-dkms": "1", "libcuda1": "1"}, source)
    assert owners(machine) == {
        "libcuda1": (owner, shown),
        "nvidia-kernel-dkms": (owner, shown),
    }


def test_whose_rpm_packages_are(tmp_path: Path) -> None:
    machine = machines.rocky(tmp_path)
    assert owners(machine) == {
        "containerd.io": ("other", "https://download.example/linux/rhel/9"),
        "kmod-nvidia-open-dkms": (
            "vendor-repo",
            "https://developer.download.nvidia.com/compute/cuda/repos/rhel9/x86_64",
        ),
        "podman": ("distro", None),
    }
    versions = {p.name: p.version for p in discovery_packages.installed(machine.host)}
    assert versions["kmod-nvidia-open-dkms"] == "3:580.95.05-1.el9"
    assert discovery_software.driver(
        machine.host, discovery_packages.installed(machine.host)
    )["owner"] == "vendor-repo"  # fmt: skip


def test_without_a_history_the_maker_is_all_there_is(tmp_path: Path) -> None:
    machine = machines.rocky(tmp_path)
    (tmp_path / "var/lib/dnf/history.sqlite").write_bytes(b"no database")
    assert {name: owner for name, (owner, _) in owners(machine).items()} == {
        "containerd.io": "unknown",
        "kmod-nvidia-open-dkms": "unknown",
        "podman": "distro",
    }


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("linux-modules-nvidia-580-server-open-6.8.0-60-generic", "precompiled"),
        ("nvidia-dkms-580-open", "distro"),
        ("nvidia-tesla-535-kernel-dkms", "distro"),
        ("nvidia-container-toolkit", "none"),
        ("nvidia-fabricmanager-550", "none"),
        ("firmware-nvidia-gsp", "none"),
    ],
)
def test_which_packages_say_whose_the_driver_is(tmp_path: Path, name: str, owner: str) -> None:
    machine = machines.Machine(tmp_path)
    machine.debian_packages({name: "1"}, machines.DEBIAN)
    found = discovery_software.driver(machine.host, discovery_packages.installed(machine.host))
    assert found["owner"] == owner


def test_of_two_owners_the_one_that_is_not_the_distribution_counts(tmp_path: Path) -> None:
    package = discovery_packages.Package
    both = [
        package("nvidia-driver-580", "1", "distro", None),
        package("nvidia-kernel-source-580", "1", "vendor-repo", "r"),
        package("nvidia-container-toolkit", "1", "other", "s"),
    ]
    found = discovery_software.driver(machines.Machine(tmp_path).host, both)
    assert found["owner"] == "vendor-repo"
    assert found["repositories"] == ["r"]


def test_precompiled_modules_of_rpm_systems(tmp_path: Path) -> None:
    machine = machines.rocky(tmp_path, "kmod-nvidia-open-5.14.0-570.12.1")
    installed = discovery_packages.installed(machine.host)
    assert discovery_software.driver(machine.host, installed)["owner"] == "precompiled"


def test_a_runfile_goes_before_packages(tmp_path: Path) -> None:
    machine = machines.by_runfile(tmp_path)
    machine.debian_packages({"nvidia-kernel-dkms": "1"}, machines.DEBIAN)
    found = discovery_software.driver(machine.host, discovery_packages.installed(machine.host))
    assert found["owner"] == "runfile"
    assert found["runfile"] == {
        "version": "550.54.15",
        "uninstaller": "/usr/bin/nvidia-uninstall",
    }
    (tmp_path / "usr/bin/nvidia-uninstall").unlink()  # its log outlives it
    again = discovery_software.driver(machine.host, discovery_packages.installed(machine.host))
    assert again["runfile"] is None
    assert again["owner"] == "distro"


def test_runtimes_and_whose_they_are(tmp_path: Path) -> None:
    machine = machines.by_runfile(tmp_path)
    machine.says(["dockerd", "--version"], "Docker version 27.5.1, build 4c9b3b0")
    found = discovery_software.container_runtime(
        machine.host, discovery_packages.installed(machine.host)
    )
    assert found["runtimes"] == {
        "containerd": {"version": "1.6.20~ds1", "active": True, "owner": "distro"},
        "docker": {"version": "27.5.1", "active": False, "owner": "none"},
    }


def test_a_cluster_is_told_by_its_server_and_authority_and_no_key_is_read_out(
    tmp_path: Path,
) -> None:
    machine = machines.joined(machines.Machine(tmp_path), "https://k8s.example:6443")
    facts = discovery.collect(machine.host)
    membership = facts["kubernetes"]["membership"]
    assert membership["by"] == "kubeadm"
    assert membership["server"] == "https://k8s.example:6443"
    assert len(membership["authority"]) == 64
    assert facts["kubernetes"]["kubelet"] == {
        "version": "1.35.2",
        "active": True,
        "owner": "none",
    }
    text = json.dumps(facts)
    assert "SECRET" not in text
    assert "UExBTlRFRC1TRUNSRVQ" not in text


def test_the_authority_is_the_same_inline_and_as_a_file(tmp_path: Path) -> None:
    machine = machines.joined(machines.Machine(tmp_path), "https://a:6443", "Q0EgT05F")
    inline = discovery_software.kubernetes(machine.host, [])["membership"]["authority"]
    machine.put("/etc/ca.crt", "CA ONE\n")
    machine.put(
        "/etc/kubernetes/kubelet.conf",
        "    certificate-authority: /etc/ca.crt\n    server: https://a:6443\n",
    )
    assert discovery_software.kubernetes(machine.host, [])["membership"]["authority"] == inline
    machine.put("/etc/ca.crt", "CA TWO\n")
    assert discovery_software.kubernetes(machine.host, [])["membership"]["authority"] != inline


def test_k3s_is_a_cluster_without_a_kubelet_of_its_own(tmp_path: Path) -> None:
    machine = machines.Machine(tmp_path)
    machine.put(
        "/var/lib/rancher/k3s/agent/kubelet.kubeconfig", "    server: https://127.0.0.1:6444\n"
    )
    found = discovery_software.kubernetes(machine.host, [])
    assert found["kubelet"] is None
    assert found["membership"]["by"] == "k3s"


@pytest.mark.parametrize(
    ("vm", "container", "virtual", "inside"),
    [
        ("none", "none", None, None),
        ("kvm", "none", "kvm", None),
        ("kvm", "lxc", "kvm", "lxc"),
        ("", "", "vm", None),
    ],
)
def test_what_kind_of_machine(
    tmp_path: Path, vm: str, container: str, virtual: str | None, inside: str | None
) -> None:
    machine = machines.Machine(tmp_path)
    machine.put("/proc/cpuinfo", "processor : 0\nflags\t\t: fpu vme hypervisor lahf_lm\n")
    machine.says(["systemd-detect-virt", "--vm"], vm)
    machine.says(["systemd-detect-virt", "--container"], container)
    found = discovery_software.system(machine.host)
    assert (found["virtual"], found["container"]) == (virtual, inside)


def test_cgroups_and_headers(tmp_path: Path) -> None:
    machine = machines.Machine(tmp_path)
    machine.put("/sys/fs/cgroup/memory/tasks", "1\n")
    found = discovery_software.system(machine.host)
    assert (found["cgroup"], found["headers"]) == (1, False)
    machine.put("/lib/modules/6.1.0-50-amd64/build/Makefile", "")
    assert discovery_software.system(machine.host)["headers"] is True


def test_links_of_cards_without_nvlink() -> None:
    matrix = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tPHB\t0-63\nGPU1\tPHB\t X \t0-63\n\nLegend:\n"
    assert discovery_links.parse_matrix(matrix) == {
        "GPU0": {"GPU1": "PHB"},
        "GPU1": {"GPU0": "PHB"},
    }
    assert discovery_links.parse_matrix("no table") == {}
    assert discovery_links.parse_status("nothing of the kind\n") == []
