"""Every kind of drift, planted on a host made of a folder: one fault, one item."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from bedplate.portable.host import Result
from tests.unit.evidence_machine import (
    AREAS,
    CONFIGURATION,
    GOOD,
    MANIFEST,
    PACKAGES,
    ROW,
    SYSCTLS,
    VERSION,
    Machine,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: `playbooks/drift.yml` starts no containers.
LOOKED_AT = tuple(area for area in AREAS if area not in ("compute", "container"))


def packages(machine: Machine, **changed: str) -> None:
    text = ""
    for name, version in PACKAGES.items():
        row = changed.get(name.replace("-", "_"), f"{version}\thold")
        text += f"{name}\t{row}\tinstalled\n"
    machine.answers["dpkg-query"] = Result(0, text, "")


def answer(machine: Machine, name: str, text: str) -> None:
    machine.answers[name] = Result(0, text, "")


def append(machine: Machine, path: str) -> None:
    machine.file(path, (machine.host.read(path) or "") + "# theirs\n")


def other_kernel(machine: Machine) -> None:
    machine.file("etc/bedplate/driver.json", json.dumps({**GOOD, "kernel": "6.1.0-1-amd64"}))


def other_library(machine: Machine) -> None:
    """A module of another version brings its own library along."""
    machine.module("535.183.01")
    answer(machine, "nvidia-smi", (ROW.format(0) + ROW.format(1)).replace(VERSION, "535.183.01"))


KINDS: dict[str, tuple[Callable[[Machine], None], list[str]]] = {
    "driver package changed": (
        lambda m: packages(m, nvidia_smi="535.183.01-1\thold"),
        ["driver.packages"],
    ),
    "loaded module differs from the package": (other_library, ["driver.loaded_version"]),
    "kernel moved": (other_kernel, ["driver.kernel"]),
    "hold removed": (
        lambda m: packages(m, nvidia_smi=f"{PACKAGES['nvidia-smi']}\tinstall"),
        ["driver.held"],
    ),
    "flavour changed": (
        lambda m: m.module(VERSION, "Open Kernel Module"),
        ["driver.flavour"],
    ),
    "nouveau back": (lambda m: m.file("sys/module/nouveau/x", ""), ["driver.nouveau"]),
    "runtime configuration edited": (
        lambda m: append(m, CONFIGURATION),
        ["owned.container_runtime"],
    ),
    "persistence off": (
        lambda m: answer(m, "nvidia-smi", ROW.format(0) + ROW.format(1).replace("En", "Dis")),
        ["driver.persistence"],
    ),
    "kubelet version changed": (
        lambda m: answer(m, "kubelet", "Kubernetes v1.36.4\n"),
        ["kubelet.version"],
    ),
    "containerd version changed": (
        lambda m: answer(m, "ctr version", "Server:\n  Version:  v2.4.1\n"),
        ["runtime.version"],
    ),
    "device plugin manifest edited": (
        lambda m: append(m, MANIFEST),
        ["owned.nvidia_device_plugin"],
    ),
    "sysctl changed": (
        lambda m: m.file("proc/sys/net/ipv4/ip_forward", "0\n"),
        ["kernel.sysctls"],
    ),
    "kernel module unloaded": (
        lambda m: (m.root / "sys/module/br_netfilter").rename(m.root / "gone"),
        ["kernel.modules"],
    ),
    "kernel settings edited": (lambda m: append(m, SYSCTLS), ["owned.host"]),
    "unattended upgrades on": (
        lambda m: answer(m, "apt-config", 'APT::Periodic::Unattended-Upgrade "1";\n'),
        ["updates.unattended"],
    ),
}


def state(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """Every file of the host, with its mode, time and content."""
    return {
        str(path.relative_to(root)): (
            path.stat().st_mode,
            path.stat().st_mtime_ns,
            path.read_bytes(),
        )
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def test_an_untouched_host_has_not_drifted(tmp_path: Path) -> None:
    assert Machine(tmp_path).failing(*LOOKED_AT) == []


@pytest.mark.parametrize("kind", KINDS)
def test_drift_is_found_alone_and_nothing_is_changed(tmp_path: Path, kind: str) -> None:
    machine = Machine(tmp_path)
    plant, expected = KINDS[kind]
    plant(machine)
    before = state(tmp_path)
    assert machine.failing(*LOOKED_AT) == expected
    assert state(tmp_path) == before
