"""A healthy host with two T4, made of a folder and canned answers: tests break one thing of it."""

from __future__ import annotations

import json
import platform
from typing import TYPE_CHECKING, Any

from bedplate.portable.evidence import checks as evidence
from bedplate.portable.evidence import host as host_evidence
from bedplate.portable.evidence.area import Wishes
from bedplate.portable.files import File, ensure_files
from bedplate.portable.host import Host, Result

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

VERSION = "535.261.03"
PACKAGES = {"nvidia-kernel-dkms": "535.261.03-1", "nvidia-smi": "535.261.03-1"}
IMAGE = "nvcr.io/nvidia/k8s-device-plugin:v0.19.1"
ROW = "{0}, Tesla T4, GPU-{0}, 15360, Enabled, 00000000:1{0}:00.0, 535.261.03\n"
HEALTH = "{0}, GPU-{0}, Enabled, Enabled, 0, No\n"
REMAPPED = "GPU-{0}, No, No\n"
GOOD = {"format": 1, "version": VERSION, "kernel": platform.release(), "packages": PACKAGES}
CDI = 'cdiVersion: "0.5.0"\ndevices:\n- name: "0"\n- name: "1"\n- name: all\nkind: nvidia.com/gpu\n'
CONFIGURATION = "/etc/containerd/conf.d/50-bedplate.toml"
SYSCTLS = "/etc/sysctl.d/99-zz-bedplate-host.conf"
MODULES = "/etc/modules-load.d/bedplate-host.conf"
MANIFEST = "/etc/bedplate/device-plugin.yaml"
WISH = Wishes(
    gpus=[{"model": "t4-16gb", "pci": ["10de:1eb8"], "count": 2}],
    gpu_memory_gib={"t4-16gb": 16},
    driver_version=VERSION,
    driver_flavour="proprietary",
    driver_packages=PACKAGES,
    containerd_version="2.4.2",
    toolkit_version="1.20.1",
    kubelet_version="1.36.3",
    plugin_image=IMAGE,
)
#: Areas with tests of their own are looked at there.
AREAS = (
    "kernel",
    "driver",
    "gpus",
    "health",
    "compute",
    "runtime",
    "kubernetes",
    "plugin",
    "container",
    "owned",
    "updates",
)


class Machine:
    """The host. ``answers`` are keyed by program, and by what it was asked where that matters."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.host = Host(str(root), self.run)
        for name in ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia0", "nvidia1"):
            self.file(f"dev/{name}", "")
        self.file("etc/os-release", "ID=debian\nVERSION_ID=12\n")
        self.file("etc/machine-id", "0123\n")
        self.file("etc/bedplate/driver.json", json.dumps(GOOD))
        self.file("usr/bin/unattended-upgrade", "")
        self.file("proc/sys/net/ipv4/ip_forward", "1\n")
        self.file("sys/module/br_netfilter/x", "")
        self.module(VERSION)
        for number in (0, 1):
            folder = f"sys/bus/pci/devices/0000:1{number}:00.0"
            for name, text in (("vendor", "0x10de"), ("device", "0x1eb8"), ("class", "0x030200")):
                self.file(f"{folder}/{name}", text)
        packages = "".join(f"{n}\t{v}\thold\tinstalled\n" for n, v in PACKAGES.items())
        smi = "".join(f"GPU {n}: Tesla T4 (UUID: GPU-{n})\n" for n in (0, 1))
        copied = {f"GPU-{n}": {"same": True, "to_gpu": 12.1, "from_gpu": 13.0} for n in (0, 1)}
        self.answers: dict[str, Result] = {
            "dpkg-query": Result(0, packages, ""),
            "nvidia-smi": Result(0, ROW.format(0) + ROW.format(1), ""),
            "nvidia-smi health": Result(0, HEALTH.format(0) + HEALTH.format(1), ""),
            "nvidia-smi remapped": Result(0, REMAPPED.format(0) + REMAPPED.format(1), ""),
            "nvidia-smi mig": Result(0, "[N/A]\n[N/A]\n", ""),
            "nvidia-smi nvlink": Result(255, "", "Not Supported"),
            "python": Result(0, json.dumps(copied), ""),
            "containerd": Result(0, "version = 3\n", ""),
            "ctr version": Result(
                0, "Client:\n  Version: v9.9.9\nServer:\n  Version:  v2.4.2\n", ""
            ),
            "nvidia-smi -L": Result(0, smi, ""),
            "ctr run nvidia-smi": Result(0, smi, ""),
            "ctr run nvidia-smi with nothing": Result(
                1, "", 'ctr: exec: "nvidia-smi": executable file not found in $PATH'
            ),
            "ctr run nvidia-smi with nvidia.com/gpu=GPU-1": Result(0, smi.splitlines()[1], ""),
            "ctr run gpu-feature-discovery": Result(
                0, "nvidia.com/gpu.count=2\nnvidia.com/gpu.product=Tesla-T4\n", ""
            ),
            "nvidia-ctk --version": Result(0, "NVIDIA Container Toolkit CLI version 1.20.1\n", ""),
            "nvidia-ctk cdi list": Result(
                0, "nvidia.com/gpu=0\nnvidia.com/gpu=1\nnvidia.com/gpu=all\n", ""
            ),
            "nvidia-ctk cdi generate": Result(0, CDI, ""),
            "kubelet": Result(0, "Kubernetes v1.36.3\n", ""),
            "apt-config": Result(0, 'APT::Periodic::Unattended-Upgrade "0";\n', ""),
            "systemctl": Result(0, "enabled\n", ""),
        }
        mark = "# Managed by Bedplate (role {}).\n"
        ensure_files(
            self.host,
            [
                File(CONFIGURATION, mark.format("container_runtime") + "version = 3\n"),
                File(MANIFEST, mark.format("nvidia_device_plugin") + f"image: {IMAGE}\n"),
                File(MODULES, mark.format("host") + "br_netfilter\n"),
                File(SYSCTLS, mark.format("host") + "net.ipv4.ip_forward = 1\n"),
            ],
        )
        ensure_files(self.host, [File("/etc/cdi/nvidia.yaml", CDI)], watched=False)

    def file(self, name: str, text: str) -> None:
        """Put a file below the root."""
        path = self.root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def module(self, version: str, kind: str = "Kernel Module") -> None:
        """Have a module of that version loaded."""
        text = f"NVRM version: NVIDIA UNIX x86_64 {kind}  {version}  x\n"
        self.file("proc/driver/nvidia/version", text)

    def run(self, argv: Sequence[str], *_: object) -> Result:
        """Answer a command."""
        key, words = argv[0], " ".join(argv)
        if key == "ctr":
            given = [argv[n + 1] for n, word in enumerate(argv) if word == "--device"]
            program = argv[5 + 2 * len(given) + 2] if argv[1] != "version" else ""
            key = f"ctr run {program}" if program else "ctr version"
            if program and given != ["nvidia.com/gpu=all"]:
                key += f" with {' '.join(given) or 'nothing'}"
        elif key == "nvidia-ctk":
            key = "nvidia-ctk --version"
            if argv[1] != "--version":
                key = "nvidia-ctk cdi " + ("generate" if "generate" in argv else "list")
        elif key == "nvidia-smi":
            asked = {"ecc.mode": "health", "mig.mode": "mig", "-remapped-": "remapped"}
            for word, name in {**asked, "nvlink": "nvlink", " -L": "-L"}.items():
                key = f"nvidia-smi {name}" if word in words else key
        elif "-c" in argv:
            key = "python"
        absent = Result(127, "", f"{argv[0]}: command not found")
        return self.answers.get(key, absent)

    def collected(self, *areas: str, wish: Wishes = WISH) -> dict[str, Any]:
        """What the collectors return."""
        return host_evidence.collect(self.host, wish, list(areas or AREAS))

    def checks(self, *areas: str) -> list[dict[str, Any]]:
        """The checks alone."""
        checks: list[dict[str, Any]] = self.collected(*areas)["checks"]
        return checks

    def failing(self, *areas: str) -> list[str]:
        """The names of the checks that fail."""
        return [one["id"] for one in self.checks(*areas) if one["result"] == "fail"]

    def failed(self) -> list[str]:
        """The messages of the checks that fail."""
        return evidence.failures(self.checks(), "gpu-b")
