"""Machines as discovery sees them: files below a folder, and what commands answer."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

from bedplate.portable.discovery import reading as discovery
from bedplate.portable.host import Host, Result

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

DEBIAN_RELEASE = 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nVERSION_ID="12"\nID=debian\n'
UBUNTU_RELEASE = 'PRETTY_NAME="Ubuntu 22.04.5 LTS"\nVERSION_ID="22.04"\nID=ubuntu\n'
ROCKY_RELEASE = 'NAME="Rocky Linux"\nPRETTY_NAME="Rocky Linux 9.6"\nVERSION_ID="9.6"\nID="rocky"\n'
PROPRIETARY = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Tue Jul 1 12:00:00 UTC 2025\n"
    "GCC version:  gcc version 12.2.0\n"
)
OPEN = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {}  Release Build"
    "  (dvs-builder@U22-I3-AE18-23-3)  Tue Jul 1 12:00:00 UTC 2025\n"
)
ORIGINS = """\
Package files:
 100 /var/lib/dpkg/status
     release a=now
 500 https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2204/x86_64  Packages
     release o=NVIDIA,l=NVIDIA CUDA,c=
     origin developer.download.nvidia.com
 500 https://reader:s3cret@mirror.example/extra jammy/main amd64 Packages
     release v=22.04,o=LP-PPA-graphics-drivers,a=jammy,n=jammy,l=Drivers,c=main,b=amd64
     origin mirror.example
 500 http://mirror.example/debian bookworm/non-free amd64 Packages
     release v=12.12,o=Debian,a=oldstable,n=bookworm,l=Debian,c=non-free,b=amd64
     origin mirror.example
 500 http://mirror.example/ubuntu jammy/main amd64 Packages
     release v=22.04,o=Ubuntu,a=jammy,n=jammy,l=Ubuntu,c=main,b=amd64
     origin mirror.example
Pinned packages:
"""
CUDA_REPOSITORY = (
    "https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2204/x86_64  Packages"
)
PPA = "https://reader:s3cret@mirror.example/extra jammy/main amd64 Packages"
DEBIAN = "http://mirror.example/debian bookworm/non-free amd64 Packages"


class Machine:
    """A machine below `root`; a command that it was not given is not there."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.answers: dict[tuple[str, ...], Result] = {}
        self.asked: list[tuple[str, ...]] = []
        self.put("/proc/sys/kernel/osrelease", "6.1.0-50-amd64\n")
        self.put("/proc/meminfo", "MemTotal:       2113536 kB\n")
        self.put("/etc/os-release", DEBIAN_RELEASE)
        self.says(["systemd-detect-virt", "--vm"], "none", code=1)
        self.says(["systemd-detect-virt", "--container"], "none", code=1)
        self.says(["uname", "-m"], "x86_64")

    @property
    def host(self) -> Host:
        """The machine as the collectors take it."""
        return Host(str(self.root), self._run)

    def _run(
        self, argv: Sequence[str], _timeout: float, _environment: dict[str, str] | None
    ) -> Result:
        self.asked.append(tuple(argv))
        for length in range(len(argv), 0, -1):
            if tuple(argv[:length]) in self.answers:
                return self.answers[tuple(argv[:length])]
        return Result(127, "", f"{argv[0]}: command not found")

    def put(self, path: str, text: str) -> None:
        """Write a file."""
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def says(self, argv: Sequence[str], out: str, code: int = 0, err: str = "") -> None:
        """Let a command, or all that begin so, answer."""
        self.answers[tuple(argv)] = Result(code, out if not out else out.rstrip("\n") + "\n", err)

    def plug(
        self, address: str, identifier: str, pci_class: str, sub: str = "", driver: str = ""
    ) -> None:
        """Put a function on the PCI bus."""
        folder = f"/sys/bus/pci/devices/{address}"
        vendor, device = identifier.split(":")
        files = {"vendor": f"0x{vendor}", "device": f"0x{device}", "class": f"0x{pci_class}"}
        if sub:
            files["subsystem_vendor"], files["subsystem_device"] = (
                f"0x{part}" for part in sub.split(":")
            )
        files["uevent"] = f"DRIVER={driver}" if driver else "PCI_CLASS=0"
        files["numa_node"] = "0"
        for name, text in files.items():
            self.put(f"{folder}/{name}", text + "\n")

    def group(self, number: int, *addresses: str) -> None:
        """Make an IOMMU group."""
        for address in addresses:
            self.put(f"/sys/kernel/iommu_groups/{number}/devices/{address}", "")

    def efi(self, name: str, value: int) -> None:
        """Set a variable of the firmware: four bytes of attributes come first."""
        self.put(
            f"/sys/firmware/efi/efivars/{name}-8be4df61-93ca-11d2-aa0d-00e098032b8c",
            "\x06\x00\x00\x00" + chr(value),
        )

    def debian_packages(self, packages: Mapping[str, str], source: str | None) -> None:
        """Install packages that all come from one repository, or from none that is known."""
        rows = [f"{name}\t{version}\tinstalled\tSomebody" for name, version in packages.items()]
        rows.append("bash\t5.2\tinstalled\tSomebody")
        rows.append("nvidia-removed\t1\tconfig-files\tSomebody")
        self.says(["dpkg-query"], "\n".join(rows))
        policy = ""
        for name, version in packages.items():
            policy += f"{name}:\n  Installed: {version}\n  Candidate: 999\n  Version table:\n"
            policy += "     999 500\n        500 http://elsewhere.example x Packages\n"
            policy += f" *** {version} 100\n"
            policy += f"        500 {source}\n" if source else ""
            policy += "        100 /var/lib/dpkg/status\n"
            policy += "     0.1 500\n        500 http://older.example x Packages\n"
        cached = ["-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache="]
        self.says(["apt-cache", *cached, "policy"], ORIGINS)
        self.says(["apt-cache", *cached, "policy", *sorted(packages)], policy)

    def dnf_history(self, origins: Mapping[str, str]) -> None:
        """Write dnf 4's history as its library creates it."""
        path = self.root / "var/lib/dnf/history.sqlite"
        path.parent.mkdir(parents=True)
        with sqlite3.connect(path) as database:
            database.executescript(
                "CREATE TABLE repo (id INTEGER PRIMARY KEY, repoid TEXT NOT NULL);"
                "CREATE TABLE rpm (item_id INTEGER UNIQUE NOT NULL, name TEXT NOT NULL);"
                "CREATE TABLE trans_item (id INTEGER PRIMARY KEY AUTOINCREMENT, item_id INTEGER,"
                " repo_id INTEGER);"
            )
            for number, (name, repository) in enumerate(origins.items(), 1):
                database.execute("INSERT INTO repo VALUES (?, ?)", (number, repository))
                database.execute("INSERT INTO rpm VALUES (?, ?)", (number, name))
                database.execute(
                    "INSERT INTO trans_item (item_id, repo_id) VALUES (?, ?)", (number, number)
                )
        database.close()


def dgx(root: Path) -> Machine:
    """Eight H100 on four NVSwitches, InfiniBand, and NVIDIA's own driver packages."""
    machine = Machine(root)
    machine.put("/etc/os-release", UBUNTU_RELEASE)
    machine.plug("0000:01:00.0", "1a03:2000", "030000")  # the console of the management processor
    for number in range(8):
        machine.plug(f"0000:{0x1B + number:02x}:00.0", "10de:2330", "030200", "10de:16c1", "nvidia")
    for number in range(4):
        machine.plug(f"0000:{0x80 + number:02x}:00.0", "10de:22a3", "068000", "10de:1796")
    machine.efi("SecureBoot", 0)
    machine.put("/sys/class/dmi/id/product_name", "DGXH100\n")
    machine.put("/sys/class/dmi/id/bios_version", "1.1.3\n")
    machine.put("/sys/block/nvme0n1/device/model", "SAMSUNG MZQL27T6HBLA-00A07\n")
    machine.put("/sys/block/nvme0n1/size", "15002931888\n")
    machine.put("/sys/block/nvme0n1/queue/rotational", "0\n")
    machine.put("/sys/block/loop0/size", "8\n")
    machine.put("/sys/block/sr0/device/model", "DVD\n")
    machine.put("/sys/block/sr0/removable", "1\n")
    card = "/sys/class/infiniband/mlx5_0"
    machine.put(f"{card}/device/uevent", "DRIVER=mlx5_core\nPCI_SLOT_NAME=0000:18:00.0\n")
    machine.put(f"{card}/fw_ver", "28.39.2048\n")
    machine.put(f"{card}/ports/1/link_layer", "InfiniBand\n")
    machine.put(f"{card}/ports/1/state", "4: ACTIVE\n")
    machine.put(f"{card}/ports/1/rate", "400 Gb/sec (4X NDR)\n")
    for name, slot in (("ibp24s0", "0000:18:00.0"), ("eno3", "0000:0b:00.0")):
        machine.put(f"/sys/class/net/{name}/device/uevent", f"PCI_SLOT_NAME={slot}\n")
        machine.put(f"/sys/class/net/{name}/operstate", "up\n")
        machine.put(f"/sys/class/net/{name}/speed", "10000\n" if name == "eno3" else "-1\n")
    machine.put("/sys/class/net/lo/operstate", "unknown\n")
    machine.put("/sys/fs/cgroup/cgroup.controllers", "cpu memory\n")
    machine.put("/proc/driver/nvidia/version", OPEN.format("550.90.07"))
    machine.says(["modinfo", "--field", "version", "nvidia"], "550.90.07")
    machine.says(["modinfo", "--field", "license", "nvidia"], "Dual MIT/GPL")
    rows = [
        f"{n}, NVIDIA H100 80GB HBM3, GPU-{n}, 81559, Enabled, 00000000:1{n}:00.0, 550.90.07"
        for n in range(8)
    ]
    query = "index,name,uuid,memory.total,persistence_mode,pci.bus_id,driver_version"
    machine.says(["nvidia-smi", f"--query-gpu={query}"], "\n".join(rows))
    query = "--query-gpu=pci.bus_id,vbios_version"
    machine.says(["nvidia-smi", query], "00000000:1B:00.0, 96.00.74.00.1A")
    names = [f"GPU{n}" for n in range(8)]
    head = "\t" + "\t".join(f"\x1b[4m{n}" for n in [*names, "NIC0", "CPU Affinity"]) + "\x1b[0m"
    matrix = [
        "\t".join([a, *(" X " if a == b else "NV18" for b in names), "PXB", "0-55"]) for a in names
    ]
    nic = "\t".join(["NIC0", *("PXB" for _ in names), " X ", ""])
    machine.says(["nvidia-smi", "topo", "-m"], "\n".join([head, *matrix, nic, "", "Legend:"]))
    status = "".join(
        f"GPU {n}: NVIDIA H100 80GB HBM3 (UUID: GPU-{n})\n"
        + "".join(f"\t Link {link}: 26.562 GB/s\n" for link in range(17))
        + "\t Link 17: <inactive>\n"
        for n in range(8)
    )
    machine.says(["nvidia-smi", "nvlink", "-s"], status)
    machine.debian_packages(
        {
            "nvidia-dkms-550-server-open": "550.90.07-0ubuntu1",
            "nvidia-fabricmanager-550": "550.90.07-1",
            "nvidia-container-toolkit": "1.16.2-1",
        },
        CUDA_REPOSITORY,
    )
    machine.says(["nvidia-ctk", "--version"], "NVIDIA Container Toolkit CLI version 1.16.2")
    return machine


def workstation(root: Path, subsystem: str) -> Machine:
    """One identifier, two boards: the subsystem tells A16 from A2. Secure Boot with its own key."""
    machine = Machine(root)
    machine.plug("0000:65:00.0", "10de:25b6", "030200", subsystem, "nouveau")
    machine.plug("0000:65:00.1", "10de:228e", "040300", subsystem)
    machine.efi("SecureBoot", 1)
    machine.efi("SetupMode", 0)
    machine.put("/var/lib/dkms/mok.pub", "der")
    machine.says(["mokutil", "--test-key"], "/var/lib/dkms/mok.pub is already enrolled", code=1)
    machine.put("/sys/module/nouveau/refcnt", "0\n")
    return machine


def hypervisor(root: Path) -> Machine:
    """Two cards with their audio functions in groups of their own, one of them behind a bridge."""
    machine = Machine(root)
    machine.plug("0000:00:01.0", "8086:460d", "060400")
    for slot, number in (("0000:17:00", 12), ("0000:65:00", 13)):
        machine.plug(f"{slot}.0", "10de:1eb8", "030200", "10de:12a2", "vfio-pci")
        machine.plug(f"{slot}.1", "10de:10f8", "040300", "10de:12a2", "vfio-pci")
        machine.group(number, f"{slot}.0", f"{slot}.1")
    machine.group(13, "0000:00:01.0")
    # A share of the first card, as vGPU makes them: a function of its own, but no card.
    machine.plug("0000:17:00.4", "10de:1eb8", "030200", "10de:12a2")
    machine.put("/sys/bus/pci/devices/0000:17:00.4/physfn/vendor", "0x10de\n")
    machine.put("/proc/cmdline", "BOOT_IMAGE=/vmlinuz intel_iommu=on iommu=pt quiet\n")
    return machine


def by_runfile(root: Path) -> Machine:
    """A driver that no package knows."""
    machine = Machine(root)
    machine.plug("0000:17:00.0", "10de:1eb8", "030200", "10de:12a2", "nvidia")
    machine.put("/proc/driver/nvidia/version", PROPRIETARY.format("550.54.15"))
    machine.put("/usr/bin/nvidia-uninstall", "")
    machine.put(
        "/var/log/nvidia-installer.log",
        "nvidia-installer log file '/var/log/nvidia-installer.log'\n"
        "creation time: Mon Mar  4 10:00:00 2024\ninstaller version: 550.54.15\n",
    )
    machine.debian_packages({"containerd": "1.6.20~ds1-1+deb12u1"}, DEBIAN)
    machine.says(
        ["containerd", "--version"],
        "containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+b1",
    )
    machine.says(["systemctl", "is-active", "containerd"], "active")
    return machine


def rocky(root: Path, kmod: str = "kmod-nvidia-open-dkms") -> Machine:
    """Packages by rpm, of which dnf's history knows the repositories."""
    machine = Machine(root)
    machine.put("/etc/os-release", ROCKY_RELEASE)
    machine.plug("0000:17:00.0", "10de:2330", "030200", "10de:16c1", "nvidia")
    machine.put("/proc/driver/nvidia/version", OPEN.format("580.95.05"))
    machine.says(
        ["rpm"],
        f"{kmod}\t3:580.95.05-1.el9\t(none)\ncontainerd.io\t1.7.27-3.1.el9\t(none)\n"
        "podman\t5:5.4.0-1.el9\tRocky Enterprise Software Foundation\nbash\t5.1\tRocky\n",
    )
    machine.put(
        "/etc/yum.repos.d/cuda-rhel9.repo",
        "[cuda-rhel9-x86_64]\nname=cuda\n"
        "baseurl=https://developer.download.nvidia.com/compute/cuda/repos/rhel9/x86_64\n",
    )
    machine.put(
        "/etc/yum.repos.d/docker-ce.repo",
        "[docker-ce-stable]\nbaseurl = https://u:s3cret@download.example/linux/rhel/9\n",
    )
    machine.dnf_history(
        {kmod: "cuda-rhel9-x86_64", "containerd.io": "docker-ce-stable", "podman": "@System"}
    )
    return machine


def joined(machine: Machine, server: str, authority: str = "Q0EgT05F") -> Machine:
    """Join a machine to a cluster as kubeadm does, with credentials that nobody is to see."""
    machine.put(
        "/etc/kubernetes/kubelet.conf",
        "apiVersion: v1\nclusters:\n- cluster:\n"
        f"    certificate-authority-data: {authority}\n    server: {server}\n"
        "users:\n- name: n\n  user:\n    client-key-data: UExBTlRFRC1TRUNSRVQ=\n"
        "    token: PLANTED-SECRET\n",
    )
    machine.says(["kubelet", "--version"], "Kubernetes v1.35.2")
    machine.says(["systemctl", "is-active", "kubelet"], "active")
    return machine


def debian_driver(root: Path, version: str = "535.261.03") -> Machine:
    """Debian's own driver, loaded."""
    machine = Machine(root)
    machine.put("/proc/driver/nvidia/version", PROPRIETARY.format(version))
    names = ("nvidia-kernel-dkms", "libcuda1")
    machine.debian_packages(dict.fromkeys(names, f"{version}-1"), DEBIAN)
    return machine


def facts_of(machine: Machine) -> dict[str, Any]:
    """Read a machine."""
    return discovery.collect(machine.host)
