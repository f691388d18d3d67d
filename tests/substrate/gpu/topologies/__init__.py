"""PCI topologies of real machines as data, written out as the folders that sysfs shows.

Each file names where it was read, and what had to be added to it (`assumed`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
MIB = 2**20
#: Flags of a 64-bit, prefetchable memory range in a function's `resource` file.
MEMORY = 0x14220C


def names() -> list[str]:
    """Return the names of all topologies, sorted."""
    return sorted(path.stem for path in HERE.glob("*.yml"))


def load(name: str) -> dict[str, Any]:
    """Return a topology as its file has it."""
    content: dict[str, Any] = yaml.safe_load((HERE / f"{name}.yml").read_text(encoding="utf-8"))
    return content


def write(name: str, root: Path, *, iommu: bool = True) -> None:
    """Write a topology below ``root``, as the kernel shows it with its IOMMU on or off."""
    topology = load(name)
    _put(root / "proc/cpuinfo", f"processor\t: 0\nvendor_id\t: {topology['cpu']}\n")
    for address, function in topology["functions"].items():
        folder = root / "sys/bus/pci/devices" / address
        vendor, device = function["id"].split(":")
        _put(folder / "vendor", f"0x{vendor}\n")
        _put(folder / "device", f"0x{device}\n")
        _put(folder / "class", f"0x{function['class']}\n")
        _put(folder / "numa_node", f"{function.get('node', -1)}\n")
        _put(folder / "resource", _resources(function.get("memory_mib", [])))
        _put(folder / "driver_override", "(null)\n")
        bind(root, address, function.get("driver"))
        if iommu:
            member = root / f"sys/kernel/iommu_groups/{function['group']}/devices/{address}"
            member.parent.mkdir(parents=True, exist_ok=True)
            member.symlink_to(f"../../../../bus/pci/devices/{address}")
    (root / "sys/kernel/iommu_groups").mkdir(parents=True, exist_ok=True)


def bind(root: Path, address: str, driver: str | None) -> None:
    """Show a function as bound to a driver, or to none."""
    folder = root / "sys/bus/pci/devices" / address
    (folder / "driver").unlink(missing_ok=True)
    _put(folder / "uevent", f"DRIVER={driver}\n" if driver else f"PCI_SLOT_NAME={address}\n")
    if driver:
        _put(root / f"sys/bus/pci/drivers/{driver}/unbind", "")
        (folder / "driver").symlink_to(f"../../drivers/{driver}")


def _resources(sizes: list[int]) -> str:
    lines, start = ["0x00000000fa000000 0x00000000faffffff 0x0000000000040200"], 1 << 40
    for size in sizes:
        end = start + size * MIB - 1
        lines.append(f"0x{start:016x} 0x{end:016x} 0x{MEMORY:016x}")
        start = end + 1
    return "\n".join(lines) + "\n"


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
