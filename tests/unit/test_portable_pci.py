"""GPUs on the PCI bus against the declaration, from folders that look like sysfs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bedplate.portable import pci
from bedplate.portable.host import Host

if TYPE_CHECKING:
    from pathlib import Path

T4 = {"model": "t4-16gb", "pci": ["10de:1eb8"], "count": 2}
FIX = "Correct bedplate_gpu of this host's pool, or the hardware, and run 'bedplate plan' again."


def plug(
    root: Path, address: str, identifier: str, pci_class: str = "0x030200", sub: str = ""
) -> None:
    folder = root / "sys/bus/pci/devices" / address
    folder.mkdir(parents=True)
    vendor, device = identifier.split(":")
    (folder / "vendor").write_text(f"0x{vendor}\n")
    (folder / "device").write_text(f"0x{device}\n")
    (folder / "class").write_text(f"{pci_class}\n")
    (folder / "uevent").write_text("DRIVER=nvidia\n")
    if sub:
        (folder / "subsystem_vendor").write_text(f"0x{sub.split(':')[0]}\n")
        (folder / "subsystem_device").write_text(f"0x{sub.split(':')[1]}\n")


@pytest.fixture
def host(tmp_path: Path) -> Host:
    plug(tmp_path, "0000:00:00.0", "8086:1237", "0x060000")
    plug(tmp_path, "0000:17:00.0", "10de:1eb8", sub="10de:12a2")
    plug(tmp_path, "0000:17:00.1", "10de:10f8", "0x040300")  # a card's audio function is no GPU
    plug(tmp_path, "0000:2a:00.0", "10de:1eb8", sub="10de:12a2")
    return Host(str(tmp_path))


def test_only_display_functions_of_the_vendor_are_gpus(host: Host) -> None:
    found = pci.gpus(pci.scan(host))
    assert [(d.address, d.identifier, d.subsystem, d.driver) for d in found] == [
        ("0000:17:00.0", "10de:1eb8", "10de:12a2", "nvidia"),
        ("0000:2a:00.0", "10de:1eb8", "10de:12a2", "nvidia"),
    ]


def test_a_host_as_declared_has_no_problem(host: Host) -> None:
    assert pci.compare(pci.gpus(pci.scan(host)), [T4], "gpu-b") == []


def test_no_gpu_at_all(tmp_path: Path) -> None:
    assert pci.compare(pci.gpus(pci.scan(Host(str(tmp_path)))), [T4], "gpu-b") == [
        (
            "GPUs are declared, but none is on the PCI bus — gpu-b — got no NVIDIA GPU /"
            f" allowed 2 x t4-16gb (10de:1eb8) — {FIX}"
        )
    ]


@pytest.mark.parametrize(
    ("declared", "what", "allowed"),
    [
        (
            [{**T4, "count": 4}],
            "another number of t4-16gb than declared",
            "4 x t4-16gb (10de:1eb8)",
        ),
        (
            [{"model": "h100", "pci": ["10de:2331"], "count": 2}],
            "another GPU model than declared",
            "2 x h100 (10de:2331)",
        ),
        (
            [{**T4, "subsystem": "10de:ffff"}],
            "another GPU model than declared",
            "2 x t4-16gb (10de:1eb8)",
        ),
    ],
)
def test_differences_say_what_is_there(
    host: Host, declared: list[dict[str, object]], what: str, allowed: str
) -> None:
    assert pci.compare(pci.gpus(pci.scan(host)), declared, "gpu-b") == [
        f"{what} — gpu-b — got 2 x 10de:1eb8 / allowed {allowed} — {FIX}"
    ]


def test_cards_beside_the_declared_ones_are_named(tmp_path: Path) -> None:
    for address, identifier in (
        ("0000:01:00.0", "10de:1eb8"),
        ("0000:02:00.0", "10de:1eb8"),
        ("0000:03:00.0", "10de:2331"),
    ):
        plug(tmp_path, address, identifier)
    assert pci.compare(pci.gpus(pci.scan(Host(str(tmp_path)))), [T4], "gpu-b") == [
        (
            f"GPUs that are not declared — gpu-b — got 1 x 10de:2331 /"
            f" allowed 2 x t4-16gb (10de:1eb8) — {FIX}"
        )
    ]
