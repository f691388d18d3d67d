"""Drift of what only some hosts have: partitions, MPS, a fabric, the container toolkit and CDI."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bedplate.portable.host import Result
from bedplate.portable.runtime import cdi
from tests.unit.evidence_machine import CDI, VERSION, WISH, Machine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

CARDS = "{0}, GPU-{0}, {1}, {1}, {2}\n"
FABRIC = "nvidia-fabricmanager-535"
FABRIC_VERSION = f"{VERSION}-1"
PLUGIN = "version: v1\nflags:\n  migStrategy: none\nsharing:\n  mps:\n    resources:\n"
WISHES: dict[str, dict[str, Any]] = {
    "sharing": {"sharing": {"mode": "none"}},
    "mps": {"sharing": {"mode": "mps", "replicas": 10}},
    "fabric": {
        "fabric": {
            "version": VERSION,
            "driver_version": VERSION,
            "packages": {FABRIC: FABRIC_VERSION},
            "families": ["nvidia-fabricmanager"],
            "services": ["nvidia-fabricmanager.service"],
        }
    },
    "toolkit": {
        "containers": {
            "runtime": "containerd",
            "cdi_spec": cdi.SPECIFICATION,
            "nvidia_runtime": "/usr/local/bin/nvidia-container-runtime",
            "default": "runc",
        }
    },
}
DUMP = """[plugins.'io.containerd.cri.v1.runtime'.containerd]
  default_runtime_name = 'runc'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia.options]
  BinaryName = '/usr/local/bin/nvidia-container-runtime'
"""


class Wide(Machine):
    """A host that joined, whose GPUs hang on a fabric and are shared."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.file("etc/kubernetes/kubelet.conf", "")
        self.file("proc/mounts", "tmpfs /run/nvidia/mps/shm tmpfs rw 0 0\n")
        self.file(
            "etc/bedplate/device-plugin-config.yaml",
            PLUGIN + "      - name: nvidia.com/gpu\n        replicas: 10\n",
        )
        text = CDI.replace('- name: "1"', '- name: "1"\n- name: GPU-0\n- name: GPU-1')
        for library in cdi.LIBRARIES:
            text += f"hostPath: /usr/lib/{library}.so.{VERSION}\n"
            self.file(f"usr/lib/{library}.so.{VERSION}", "")
        self.file(cdi.SPECIFICATION, text)
        self.threads = "10.0"
        # A tenth of 15360 MiB, as the daemon says it.
        self.memory = "1G"
        self.fabric = FABRIC_VERSION
        self.cards("Disabled", "Exclusive_Process")
        self.service = {"ActiveState": "active", "UnitFileState": "enabled"}
        self.answers |= {
            "containerd": Result(0, DUMP, ""),
        }

    def cards(self, mig: str, compute: str) -> None:
        """Have both cards in a mode of MIG and of computing."""
        rows = "".join(CARDS.format(n, mig, compute) for n in (0, 1))
        self.answers["sharing"] = Result(0, rows, "")

    def run(self, argv: Sequence[str], *rest: object) -> Result:
        words = " ".join(argv)
        if "compute_mode" in words:
            return self.answers["sharing"]
        if "uuid,mig.mode.current" in words:
            return Result(0, "GPU-0, Disabled\nGPU-1, Disabled\n", "")
        if words == "nvidia-smi -L":
            return Result(0, "GPU 0: x (UUID: GPU-0)\nGPU 1: x (UUID: GPU-1)\n", "")
        if "mig -lgi" in words:
            return Result(6, "No MIG devices found.", "")
        if "fabric.state" in words:
            return Result(0, "0, Completed, Success\n1, Completed, Success\n", "")
        if argv[:2] == ["systemctl", "show"]:
            name = next(word for word in argv if word.startswith("--property=")).partition("=")[2]
            return Result(0, self.service.get(name, ""), "")
        if argv[0] == "dpkg-query":
            state = "hold\tinstalled" if "Status-Want" in words else "installed\tsource"
            return Result(0, f"{FABRIC}\t{self.fabric}\t{state}\n", "")
        if "default_active_thread_percentage" in words:
            return Result(0, f"{self.threads}\n", "")
        if "default_device_pinned_mem_limit 1" in words:
            return Result(0, f"{self.memory}\n", "")
        if "default_device_pinned_mem_limit" in words:
            return Result(0, "1G\n", "")
        return super().run(argv, *rest)

    def drifted(self, area: str, wish: str) -> list[str]:
        """What fails in an area that is asked for."""
        checks = self.collected(area, wish=WISH._replace(**WISHES[wish]))["checks"]
        return [check["id"] for check in checks if check["result"] == "fail"]


def stale(machine: Wide) -> None:
    text = machine.host.read(cdi.SPECIFICATION) or ""
    machine.file(cdi.SPECIFICATION, text.replace(VERSION, "470.256.02"))
    for library in cdi.LIBRARIES:
        machine.file(f"usr/lib/{library}.so.470.256.02", "")


KINDS: dict[str, tuple[str, str, Callable[[Wide], None], list[str]]] = {
    "CDI stale": ("toolkit", "toolkit", stale, ["cdi.current"]),
    "toolkit changed": (
        "toolkit",
        "toolkit",
        lambda m: m.answers.update({"nvidia-ctk --version": Result(0, "version 1.17.0\n", "")}),
        ["toolkit.version"],
    ),
    "MIG layout changed": (
        "sharing",
        "mps",
        lambda m: m.cards("Enabled", "Exclusive_Process"),
        ["sharing.mig"],
    ),
    "MPS limits changed": (
        "sharing",
        "mps",
        lambda m: setattr(m, "threads", "50.0"),
        ["sharing.mps_limits"],
    ),
    "MPS clients given more memory of a card": (
        "sharing",
        "mps",
        lambda m: setattr(m, "memory", "80G"),
        ["sharing.mps_memory"],
    ),
    "compute mode changed": (
        "sharing",
        "mps",
        lambda m: m.cards("Disabled", "Default"),
        ["sharing.compute_mode"],
    ),
    "Fabric Manager at another version": (
        "fabric",
        "fabric",
        lambda m: setattr(m, "fabric", "535.183.01-1"),
        ["fabric.packages"],
    ),
    "Fabric Manager stopped": (
        "fabric",
        "fabric",
        lambda m: m.service.update(ActiveState="inactive"),
        ["fabric.services"],
    ),
}


@pytest.mark.parametrize(("area", "wish"), [(k[0], k[1]) for k in KINDS.values()])
def test_an_untouched_host_has_not_drifted(tmp_path: Path, area: str, wish: str) -> None:
    assert Wide(tmp_path).drifted(area, wish) == []


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_found_alone(tmp_path: Path, kind: str) -> None:
    machine = Wide(tmp_path)
    area, wish, plant, expected = KINDS[kind]
    plant(machine)
    assert machine.drifted(area, wish) == expected
