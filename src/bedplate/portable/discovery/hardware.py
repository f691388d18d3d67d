"""Hardware as the kernel shows it: accelerators, IOMMU groups, disks, network, firmware."""

from typing import Any, Dict, List, Optional

from .. import pci
from ..host import Host

#: PCI base class of processing accelerators; the display controllers' is ``pci.DISPLAY``.
PROCESSING = "12"
#: PCI class of bridges between PCI buses: they stay with the host when a group goes to a guest.
PCI_BRIDGE = "0604"
GROUPS = "/sys/kernel/iommu_groups"
EFI = "/sys/firmware/efi"
#: The GUID of the UEFI specification's own variables.
EFI_VARIABLE = EFI + "/efivars/{}-8be4df61-93ca-11d2-aa0d-00e098032b8c"
#: Where DKMS of the distributions keeps the key that it signs modules with.
SIGNING_KEYS = ("/var/lib/dkms/mok.pub", "/var/lib/shim-signed/mok/MOK.der")
SECTOR = 512
DMI = "/sys/class/dmi/id"


def _line(host: Host, path: str) -> Optional[str]:
    """The only line of a small file; None where it is absent or empty."""
    text = (host.read(path) or "").strip()
    return text or None


def _number(host: Host, path: str) -> Optional[int]:
    text = _line(host, path)
    return int(text) if text and text.lstrip("-").isdigit() else None


def accelerators(host: Host) -> List[Dict[str, Any]]:
    """Every function that may be an accelerator, or NVIDIA's, sorted by address.

    NVIDIA's are all there, its switches being bridges; of other makers those of the classes
    display and processing accelerator. What each of them is, the catalogue knows. Virtual
    functions are left out: they are shares of a card, not cards.
    """
    return [
        {
            "address": device.address,
            "id": device.identifier,
            "subsystem": device.subsystem,
            "class": device.pci_class[:4],
            "driver": device.driver,
            "numa_node": _number(host, f"{pci.DEVICES}/{device.address}/numa_node"),
        }
        for device in pci.scan(host)
        if (device.vendor == pci.NVIDIA or device.pci_class.startswith((pci.DISPLAY, PROCESSING)))
        and not host.exists(f"{pci.DEVICES}/{device.address}/physfn")
    ]


def iommu(host: Host) -> Dict[str, Any]:
    """Whether the IOMMU is in use, its groups by number, and what the command line says of it.

    Bridges are left out of the groups.
    """
    bridges = {d.address for d in pci.scan(host) if d.pci_class.startswith(PCI_BRIDGE)}
    groups = {
        number: [a for a in host.list(f"{GROUPS}/{number}/devices") if a not in bridges]
        for number in sorted(host.list(GROUPS), key=lambda name: (len(name), name))
    }
    arguments = (host.read("/proc/cmdline") or "").split()
    return {
        "active": bool(groups),
        "groups": {number: devices for number, devices in groups.items() if devices},
        "arguments": [a for a in arguments if "iommu" in a or a.startswith("vfio")],
    }


def _efi_flag(host: Host, name: str) -> Optional[bool]:
    # Four bytes of attributes, then the value.
    text = host.read(EFI_VARIABLE.format(name))
    return text[4] == "\x01" if text is not None and len(text) > 4 else None


def secure_boot(host: Host) -> Dict[str, Any]:
    """Secure Boot's ``state`` (enabled, disabled, unsupported, unknown), and DKMS's ``key``.

    ``key`` is enrolled, not enrolled, absent or unknown: with an enrolled one, modules that are
    built here load under Secure Boot.
    """
    if not host.exists(EFI):
        return {"state": "unsupported", "reason": "the host was not started by UEFI", "key": None}
    enabled, reason = _efi_flag(host, "SecureBoot"), None
    if enabled and _efi_flag(host, "SetupMode"):
        enabled, reason = False, "the firmware is in setup mode"
    if enabled is None:
        answer = host.run(["mokutil", "--sb-state"])
        said = answer.out.lower()
        enabled = "enabled" in said if "secureboot " in said else None
        reason = None if enabled is not None else answer.said
    state = "unknown" if enabled is None else "enabled" if enabled else "disabled"
    return {"state": state, "reason": reason, "key": _signing_key(host)}


def _signing_key(host: Host) -> str:
    keys = [path for path in SIGNING_KEYS if host.exists(path)]
    if not keys:
        return "absent"
    for path in keys:
        answer = host.run(["mokutil", "--test-key", path])
        said = answer.out + answer.err
        if "already enrolled" in said:
            return "enrolled"
        if "not enrolled" not in said:
            return "unknown"
    return "not enrolled"


def disks(host: Host) -> List[Dict[str, Any]]:
    """Fixed disks; no partitions, and nothing that is made of other disks or of memory."""
    found = []
    for name in host.list("/sys/block"):
        folder = f"/sys/block/{name}"
        if not host.exists(folder + "/device") or _number(host, folder + "/removable"):
            continue
        if _number(host, folder + "/hidden"):  # one path of a disk that has several
            continue
        found.append(
            {
                "name": name,
                "bytes": (_number(host, folder + "/size") or 0) * SECTOR,
                "rotational": _number(host, folder + "/queue/rotational") == 1,
                "model": _line(host, folder + "/device/model"),
            }
        )
    return found


def _bound(host: Host, folder: str) -> Dict[str, Optional[str]]:
    """PCI address and driver of what ``folder`` stands for."""
    fields = {}
    for line in (host.read(folder + "/device/uevent") or "").splitlines():
        key, _, value = line.partition("=")
        fields[key] = value
    return {"address": fields.get("PCI_SLOT_NAME"), "driver": fields.get("DRIVER")}


def nics(host: Host) -> List[Dict[str, Any]]:
    """Network interfaces that are hardware; speed in Mbit/s, None where there is no link."""
    capable = {card["address"] for card in rdma(host) if card["address"]}
    found = []
    for name in host.list("/sys/class/net"):
        folder = f"/sys/class/net/{name}"
        if not host.exists(folder + "/device"):
            continue
        bound = _bound(host, folder)
        speed = _number(host, folder + "/speed")
        found.append(
            dict(
                bound,
                name=name,
                mac=_line(host, folder + "/address"),
                state=_line(host, folder + "/operstate"),
                speed=speed if speed is not None and speed > 0 else None,
                rdma=bound["address"] in capable,
            )
        )
    return found


def rdma(host: Host) -> List[Dict[str, Any]]:
    """RDMA devices with their ports, as the kernel's InfiniBand core lists them."""
    found = []
    for name in host.list("/sys/class/infiniband"):
        folder = f"/sys/class/infiniband/{name}"
        ports = [
            {
                "port": int(port),
                "link": _line(host, f"{folder}/ports/{port}/link_layer"),
                "state": (_line(host, f"{folder}/ports/{port}/state") or "").partition(": ")[2],
                "rate": _line(host, f"{folder}/ports/{port}/rate"),
            }
            for port in host.list(folder + "/ports")
            if port.isdigit()
        ]
        found.append(
            dict(
                _bound(host, folder),
                name=name,
                firmware=_line(host, folder + "/fw_ver"),
                board=_line(host, folder + "/board_id"),
                ports=ports,
            )
        )
    return found


def board(host: Host) -> Dict[str, Optional[str]]:
    """Maker, product and firmware of the machine; no serial numbers."""
    names = (
        "sys_vendor",
        "product_name",
        "board_vendor",
        "board_name",
        "bios_vendor",
        "bios_version",
        "bios_date",
    )
    return {name: _line(host, f"{DMI}/{name}") for name in names}
