"""NVIDIA GPUs on the PCI bus, as sysfs shows them, against what a pool declares."""

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

from .host import Host
from .message import problem

DEVICES = "/sys/bus/pci/devices"
NVIDIA = "10de"
#: PCI base class 0x03 (display controller): 0300 VGA, 0302 3D. Audio and USB functions are others.
DISPLAY = "03"


class PciDevice(NamedTuple):
    """One function on the bus; identifiers are lower-case hexadecimal without ``0x``."""

    address: str
    vendor: str
    device: str
    subsystem: Optional[str]
    pci_class: str
    driver: Optional[str]

    @property
    def identifier(self) -> str:
        """``vendor:device`` as a site writes it, for instance ``10de:1eb8``."""
        return f"{self.vendor}:{self.device}"


def _hex(host: Host, address: str, name: str) -> Optional[str]:
    text = host.read(f"{DEVICES}/{address}/{name}")
    if text is None:
        return None
    text = text.strip().lower()
    return text.removeprefix("0x")


def _driver(host: Host, address: str) -> Optional[str]:
    uevent = host.read(f"{DEVICES}/{address}/uevent") or ""
    for line in uevent.splitlines():
        if line.startswith("DRIVER="):
            return line[len("DRIVER=") :]
    return None


def scan(host: Host) -> List[PciDevice]:
    """All PCI functions of the host, sorted by address."""
    found = []
    for address in host.list(DEVICES):
        vendor, device = _hex(host, address, "vendor"), _hex(host, address, "device")
        if vendor is None or device is None:
            continue
        sub = (_hex(host, address, "subsystem_vendor"), _hex(host, address, "subsystem_device"))
        found.append(
            PciDevice(
                address=address,
                vendor=vendor,
                device=device,
                subsystem=None if None in sub else "{}:{}".format(*sub),
                pci_class=_hex(host, address, "class") or "",
                driver=_driver(host, address),
            )
        )
    return found


def gpus(devices: Sequence[PciDevice]) -> List[PciDevice]:
    """Only NVIDIA's GPUs among ``devices``."""
    return [d for d in devices if d.vendor == NVIDIA and d.pci_class.startswith(DISPLAY)]


def describe(devices: Sequence[PciDevice]) -> str:
    """``8 x 10de:2331`` per identifier, for messages."""
    counts: Dict[str, int] = {}
    for device in devices:
        counts[device.identifier] = counts.get(device.identifier, 0) + 1
    return ", ".join(f"{counts[i]} x {i}" for i in sorted(counts)) or "no NVIDIA GPU"


def _is(device: PciDevice, wish: Mapping[str, Any]) -> bool:
    if device.identifier not in [str(i).lower() for i in wish["pci"]]:
        return False
    # One identifier can be several cards (10de:25b6 is A16 or A2): the subsystem decides.
    subsystem = wish.get("subsystem")
    return subsystem is None or device.subsystem == str(subsystem).lower()


def compare(
    present: Sequence[PciDevice], declared: Sequence[Mapping[str, Any]], where: str
) -> List[str]:
    """Problems between the GPUs on the bus and those that the pool declares.

    ``declared`` holds ``{model, pci: [vendor:device, ...], count[, subsystem]}`` and is not empty.
    """
    wished = ", ".join(
        "{} x {} ({})".format(w["count"], w["model"], " or ".join(w["pci"])) for w in declared
    )
    fix = (
        "Correct bedplate_gpu of this host's pool, or the hardware, and run 'bedplate plan' again."
    )
    if not present:
        return [
            problem(
                "GPUs are declared, but none is on the PCI bus", where, "no NVIDIA GPU", wished, fix
            )
        ]
    problems = []
    for wish in declared:
        count = sum(_is(device, wish) for device in present)
        if count != int(wish["count"]):
            what = "another number of {} than declared".format(wish["model"])
            if count == 0:
                what = "another GPU model than declared"
            problems.append(problem(what, where, describe(present), wished, fix))
    foreign = [d for d in present if not any(_is(d, w) for w in declared)]
    if foreign and not problems:
        problems.append(
            problem("GPUs that are not declared", where, describe(foreign), wished, fix)
        )
    return problems
