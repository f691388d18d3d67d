"""PCI functions that a hypervisor gives to guests: what they are, and whether they can be given.

A function goes to a guest with its whole IOMMU group, bridges excepted, because the members of a
group can reach each other's memory behind the IOMMU's back (the kernel's
Documentation/driver-api/vfio.rst).
"""

import os
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from .. import pci
from ..host import Host
from ..message import problem

GROUPS = "/sys/kernel/iommu_groups"
#: PCI-to-PCI bridges stay with the host when a group goes to a guest; so do host bridges.
BRIDGES = ("0600", "0604")
#: The driver that holds a function for guests.
DRIVER = "vfio-pci"
#: The flag that marks a memory range of a function as 64 bits wide (linux/ioport.h).
IORESOURCE_MEM = 0x00000200
IORESOURCE_MEM_64 = 0x00100000


class Function(NamedTuple):
    """One PCI function; ``group`` is None while the IOMMU is off, ``node`` where there is one."""

    address: str
    identifier: str
    pci_class: str
    driver: Optional[str]
    group: Optional[str]
    node: Optional[int]
    above_4g: int
    #: Of a virtual function, which comes and goes with its card's driver: the physical one.
    physical: str = ""

    @property
    def slot(self) -> str:
        """The address without the function: what a card is plugged into."""
        return self.address.rpartition(".")[0]

    @property
    def virtual(self) -> bool:
        """Whether it is a virtual function."""
        return bool(self.physical)

    @property
    def bridge(self) -> bool:
        """Whether it is a bridge, which stays with the host."""
        return self.pci_class.startswith(BRIDGES)

    def __str__(self) -> str:
        return f"{self.address} ({self.identifier})"


class Binding(NamedTuple):
    """How functions come to vfio-pci: ids that it claims, and addresses that are overridden."""

    ids: List[str]
    addresses: List[str]


def _node(host: Host, address: str) -> Optional[int]:
    text = (host.read(f"{pci.DEVICES}/{address}/numa_node") or "").strip()
    # -1 says that the firmware did not tell; a machine with one node may do that.
    return int(text) if text.isdigit() else None


def _physical(host: Host, address: str) -> str:
    link = f"{pci.DEVICES}/{address}/physfn"
    return os.path.basename(os.path.realpath(host.path(link))) if host.exists(link) else ""


def _above_4g(host: Host, address: str) -> int:
    """Bytes of the function's 64-bit memory ranges: a guest needs as much address space."""
    total = 0
    for line in (host.read(f"{pci.DEVICES}/{address}/resource") or "").splitlines():
        start, end, flags = (int(word, 16) for word in (line.split() + ["0"] * 3)[:3])
        if flags & IORESOURCE_MEM and flags & IORESOURCE_MEM_64 and end > start:
            total += end - start + 1
    return total


def groups(host: Host) -> Dict[str, List[str]]:
    """The addresses of each IOMMU group, by number; empty while the IOMMU is off."""
    return {n: host.list(f"{GROUPS}/{n}/devices") for n in host.list(GROUPS)}


def functions(host: Host) -> Dict[str, Function]:
    """Every PCI function of the host by address."""
    member = {address: n for n, found in groups(host).items() for address in found}
    return {
        device.address: Function(
            device.address,
            device.identifier,
            device.pci_class,
            device.driver,
            member.get(device.address),
            _node(host, device.address),
            _above_4g(host, device.address),
            _physical(host, device.address),
        )
        for device in pci.scan(host)
    }


def active(host: Host) -> bool:
    """Whether the IOMMU is on: the kernel then makes groups."""
    return bool(host.list(GROUPS))


def _absent(present: Mapping[str, Function], wished: Sequence[str], where: str) -> List[str]:
    gpus = ", ".join(str(f) for f in present.values() if f.pci_class.startswith(pci.DISPLAY))
    return [
        problem(
            "no such PCI function",
            where,
            address,
            gpus or "no display controller on the bus",
            "Correct bedplate_passthrough, or the hardware, and run 'bedplate plan' again.",
        )
        for address in wished
        if address not in present
    ]


def _virtual(given: Sequence[Function], where: str) -> List[str]:
    """Virtual functions, for which nothing is there at boot when vfio-pci takes its functions.

    A guest would not see one either: a device's other functions are found by its function 0.
    """
    return [
        problem(
            "a virtual function is given away",
            where,
            f"{function}, which is of {function.physical}",
            "physical functions",
            f"Give {function.physical} in its place, or share that GPU by bedplate_vgpu, and run"
            " 'bedplate plan' again.",
        )
        for function in given
        if function.virtual
    ]


def _torn(present: Mapping[str, Function], given: Sequence[Function], where: str) -> List[str]:
    """Cards of which a function is left behind, even where it has a group of its own.

    A guest's driver resets the whole card: its audio and USB would vanish under the host.
    """
    addresses, problems = {f.address for f in given}, []
    for slot in sorted({f.slot for f in given if not f.virtual}):
        mates = [f for f in present.values() if f.slot == slot and not f.virtual]
        left = [f for f in mates if f.address not in addresses]
        if left:
            mine = ", ".join(f.address for f in given if f.slot == slot)
            problems.append(
                problem(
                    "functions of a given GPU stay behind",
                    where,
                    f"{mine} without {', '.join(str(f) for f in left)}",
                    "all functions of a GPU",
                    "Add them to devices of bedplate_passthrough, and run 'bedplate plan' again.",
                )
            )
    return problems


def _shared(present: Mapping[str, Function], given: Sequence[Function], where: str) -> List[str]:
    """Groups that hold something else beside what is given; the whole group is named."""
    addresses, problems = {f.address for f in given}, []
    for group in sorted({f.group for f in given if f.group is not None}, key=int):
        whole = [f for f in present.values() if f.group == group]
        beside = [f for f in whole if f.address not in addresses and not f.bridge]
        if not beside:
            continue
        problems.append(
            problem(
                f"IOMMU group {group} holds more than is given away",
                where,
                ", ".join(f"{f}{' given' if f.address in addresses else ''}" for f in whole),
                "given functions and bridges only",
                f"Give {', '.join(f.address for f in beside)} too, switch on ACS in the firmware, "
                "or move the GPU to a slot below another root port.",
            )
        )
    return problems


def _moved(
    present: Mapping[str, Function],
    given: Sequence[Function],
    locked: Sequence[Sequence[str]],
    where: str,
) -> List[str]:
    real = sorted(
        sorted(f.address for f in present.values() if f.group == group and not f.bridge)
        for group in {f.group for f in given if f.group is not None}
    )
    wished = sorted(sorted(group) for group in locked)
    if not locked or real == wished:
        return []
    shown = ["; ".join(" ".join(group) for group in one) or "none" for one in (real, wished)]
    fix = "Run bedplate.gpu.discover, take its iommu_groups over, and run 'bedplate plan' again."
    return [problem("other IOMMU groups than the lock's", where, shown[0], shown[1], fix)]


def problems(
    present: Mapping[str, Function],
    devices: Sequence[str],
    locked: Sequence[Sequence[str]],
    where: str,
) -> List[str]:
    """Why ``devices`` cannot be given to guests; with the IOMMU off, what can be told without it.

    ``locked`` are the groups that were read when the site was planned; none are not compared.
    """
    found = _absent(present, devices, where)
    if found:
        return found
    given = [present[address] for address in devices]
    for function in given:
        if function.bridge:
            allowed = "functions of GPUs"
            fix = "Leave bridges out: they stay with the host."
            found.append(problem("a bridge is given away", where, str(function), allowed, fix))
    found += _virtual(given, where)
    found += _torn(present, given, where)
    if not found and any(f.group is not None for f in present.values()):
        for function in (f for f in given if f.group is None):
            allowed, fix = "an IOMMU group", "See the kernel's log for DMAR or AMD-Vi messages."
            found.append(problem("no IOMMU behind it", where, str(function), allowed, fix))
        found += _shared(present, given, where)
        found += [] if found else _moved(present, given, locked, where)
    return found


def binding(present: Mapping[str, Function], devices: Sequence[str], by: str = "auto") -> Binding:
    """How to give ``devices`` to vfio-pci.

    ``by`` auto: an identifier is claimed where all functions of the host that have it are given,
    so that vfio-pci has them from the initramfs on. Where an equal one stays with the host, only
    addresses tell the two apart. ``by`` address uses addresses alone.
    """
    given = set(devices)
    kept = {f.identifier for f in present.values() if f.address not in given}
    ids = {present[address].identifier for address in devices} - kept
    return Binding(sorted(ids) if by == "auto" else [], sorted(given))


def nodes(present: Mapping[str, Function], devices: Sequence[str]) -> Tuple[int, ...]:
    """The NUMA nodes that the devices are on; empty where the firmware does not tell."""
    return tuple(sorted({n for n in (present[a].node for a in devices) if n is not None}))


def address_space(present: Mapping[str, Function], devices: Sequence[str]) -> int:
    """Bytes of 64-bit address space that a guest needs for the devices: a power of two.

    Ranges are aligned to their size, so twice the sum always has room for them.
    """
    total = sum(present[address].above_4g for address in devices)
    return 1 << (2 * total - 1).bit_length() if total else 0
