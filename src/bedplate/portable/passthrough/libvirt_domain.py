"""A guest with passed-through devices as libvirt's domain XML, and what matters of one.

The form follows libvirt's own schema (domain.rng): Q35 with a root port for each card, host
devices that libvirt takes from and gives back to the host, processors and memory of the NUMA node
that the cards are on, huge pages.
"""

import re
import xml.etree.ElementTree as ET
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

#: Marks a domain as ours in libvirt's metadata: others are never touched.
NAMESPACE = "urn:bedplate:guest"
#: What QEMU's Q35 sets aside for 64-bit memory ranges by itself: never less than that.
OWN_ADDRESS_SPACE = 32 * 2**30
_NUMBERS = re.compile(r"^\d+(-\d+)?(,\d+(-\d+)?)*$")
_ADDRESS = re.compile(r"^([0-9a-f]{4}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])$")


class Guest(NamedTuple):
    """One guest; ``nodes`` are the NUMA nodes of its devices, ``address_space`` in bytes.

    ``functions`` and ``mediated`` are shares of cards: virtual functions that stay with NVIDIA's
    driver, and identities of mediated devices.
    """

    name: str
    devices: Sequence[str]
    cpus: int
    memory_gib: int
    disk: str
    network: str
    cpuset: str
    nodes: Sequence[int]
    address_space: int
    page_size: str
    kind: str = "kvm"
    mac: str = ""
    functions: Sequence[str] = ()
    mediated: Sequence[str] = ()


def _parts(address: str) -> Dict[str, str]:
    match = _ADDRESS.match(address)
    if match is None:
        raise ValueError(f"no PCI address: {address}")
    names = ("domain", "bus", "slot", "function")
    return {name: f"0x{part}" for name, part in zip(names, match.groups())}


def _add(parent: ET.Element, tag: str, text: str = "", **attributes: str) -> ET.Element:
    element = ET.SubElement(parent, tag, attributes)
    if text:
        element.text = text
    return element


def _host_devices(devices: ET.Element, guest: Guest) -> None:
    """Functions of one card stay functions of one card in the guest, behind one root port."""
    slots = sorted({address.rpartition(".")[0] for address in guest.devices})
    for number, slot in enumerate(slots, 1):
        _add(devices, "controller", type="pci", index=str(number), model="pcie-root-port")
        mine = sorted(a for a in guest.devices if a.rpartition(".")[0] == slot)
        for address in mine:
            device = _add(devices, "hostdev", mode="subsystem", type="pci", managed="yes")
            _add(device, "driver", name="vfio")
            _add(_add(device, "source"), "address", **_parts(address))
            place = _add(device, "address", type="pci", domain="0x0000", slot="0x00")
            place.set("bus", f"0x{number:02x}")
            place.set("function", _parts(address)["function"])
            if address == mine[0] and len(mine) > 1:
                place.set("multifunction", "on")


def _shares(devices: ET.Element, guest: Guest) -> None:
    """Shares of cards: whoever takes a virtual function from NVIDIA's driver takes the share."""
    for address in guest.functions:
        device = _add(devices, "hostdev", mode="subsystem", type="pci", managed="no")
        _add(_add(device, "source"), "address", **_parts(address))
    for identity in guest.mediated:
        device = _add(devices, "hostdev", mode="subsystem", type="mdev", model="vfio-pci")
        _add(_add(device, "source"), "address", uuid=identity)


def _placement(domain: ET.Element, guest: Guest) -> None:
    if guest.page_size:
        size, unit = guest.page_size[:-1], guest.page_size[-1] + "iB"
        _add(_add(_add(domain, "memoryBacking"), "hugepages"), "page", size=size, unit=unit)
    _add(domain, "vcpu", str(guest.cpus), placement="static")
    if guest.cpuset:
        _add(_add(domain, "cputune"), "emulatorpin", cpuset=guest.cpuset)
        tune = domain.find("cputune")
        assert tune is not None  # noqa: S101 just made
        for number in range(guest.cpus):
            pin = ET.Element("vcpupin", {"vcpu": str(number), "cpuset": guest.cpuset})
            tune.insert(number, pin)
    if guest.nodes:
        nodeset = ",".join(str(node) for node in guest.nodes)
        # Huge pages are reserved per node: a guest that finds none there does not start, which is
        # better than one that is slow and nobody knows why. One on several nodes takes as much of
        # each as was reserved for it there: it may not use up what is another guest's.
        mode = "strict" if len(guest.nodes) == 1 else "interleave"
        _add(_add(domain, "numatune"), "memory", mode=mode, nodeset=nodeset)


def xml(guest: Guest, uuid: str = "") -> str:
    """The domain's XML; ``uuid`` is that of a domain which is there already."""
    ET.register_namespace("bedplate", NAMESPACE)
    domain = ET.Element("domain", {"type": guest.kind})
    _add(domain, "name", guest.name)
    if uuid:
        _add(domain, "uuid", uuid)
    _add(_add(domain, "metadata"), f"{{{NAMESPACE}}}guest", "managed by Bedplate")
    _add(domain, "memory", str(guest.memory_gib), unit="GiB")
    _placement(domain, guest)
    system = _add(domain, "os", firmware="efi")
    _add(system, "type", "hvm", arch="x86_64", machine="q35")
    _add(system, "boot", dev="hd")
    features = _add(domain, "features")
    for name in ("acpi", "apic"):
        _add(features, name)
    # A guest has to see the processor's own address width: large cards are mapped far up.
    model = "host-passthrough" if guest.kind == "kvm" else "maximum"
    _add(domain, "cpu", mode=model)
    _add(domain, "on_reboot", "restart")
    devices = _add(domain, "devices")
    root = _add(devices, "controller", type="pci", index="0", model="pcie-root")
    if guest.address_space > OWN_ADDRESS_SPACE:
        _add(root, "pcihole64", str(guest.address_space // 1024), unit="KiB")
    _host_devices(devices, guest)
    _shares(devices, guest)
    disk = _add(devices, "disk", device="disk", type="block" if _block(guest.disk) else "file")
    image = "raw" if _block(guest.disk) or guest.disk.endswith((".img", ".raw")) else "qcow2"
    _add(disk, "driver", name="qemu", type=image)
    _add(disk, "source", **{"dev" if _block(guest.disk) else "file": guest.disk})
    _add(disk, "target", dev="vda", bus="virtio")
    interface = _add(devices, "interface", type="bridge")
    if guest.mac:
        _add(interface, "mac", address=guest.mac)
    _add(interface, "source", bridge=guest.network)
    _add(interface, "model", type="virtio")
    _add(devices, "console", type="pty")
    _add(devices, "memballoon", model="none")  # memory of a guest with devices is pinned
    ET.indent(domain)
    return ET.tostring(domain, encoding="unicode") + "\n"


def _block(disk: str) -> bool:
    return disk.startswith("/dev/")


def _host_device(device: ET.Element) -> Optional[str]:
    address = device.find("source/address")
    if device.get("type") != "pci" or address is None:
        return None
    got = {k: int(v, 16) for k, v in address.attrib.items() if k != "type"}
    return "{:04x}:{bus:02x}:{slot:02x}.{function:x}".format(got.get("domain", 0), **got)


def host_devices(text: str) -> List[str]:
    """The addresses of the PCI functions that a domain is given, sorted."""
    found = [_host_device(device) for device in ET.fromstring(text).iter("hostdev")]  # noqa: S314
    return sorted(address for address in found if address)


def mediated_devices(text: str) -> List[str]:
    """The identities of the mediated devices that a domain is given, sorted."""
    sources = ET.fromstring(text).iterfind("devices/hostdev[@type='mdev']/source/address")  # noqa: S314
    return sorted(source.get("uuid", "") for source in sources)


def ours(text: str) -> bool:
    """Whether a domain was defined by us."""
    return ET.fromstring(text).find(f"metadata/{{{NAMESPACE}}}guest") is not None  # noqa: S314


def uuid_of(text: str) -> str:
    """The domain's identity."""
    return ET.fromstring(text).findtext("uuid") or ""  # noqa: S314


def mac_of(text: str) -> str:
    """The address of a domain's first interface, which is the one that we define."""
    address = ET.fromstring(text).find("devices/interface[1]/mac")  # noqa: S314
    return (address.get("address") or "").lower() if address is not None else ""


def _bytes(element: Optional[ET.Element]) -> int:
    if element is None:
        return 0
    units = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "M": 10**6, "G": 10**9}
    return int(element.text or 0) * units[element.get("unit", "KiB")]


def _list(text: Optional[str]) -> Optional[str]:
    """A list of processors or nodes as libvirt writes it back, whatever form it was given in.

    >>> _list("0,1,8-9,2")
    '0-2,8-9'
    """
    if text is None or not _NUMBERS.match(text):
        return text
    numbers = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        numbers |= set(range(int(first), int(last or first) + 1))
    ends = [(n, n + 1 in numbers) for n in sorted(numbers) if {n - 1, n + 1} - numbers]
    found = "".join(f"{n}{'-' if more else ','}" for n, more in ends)
    return found.rstrip(",")


def essence(text: str) -> Mapping[str, Any]:
    """What we decide of a domain, read from any XML of it: libvirt fills in the rest itself.

    Without an address of ours the interface's is libvirt's choice, and nothing to compare.
    """
    domain = ET.fromstring(text)  # noqa: S314
    page = domain.find("memoryBacking/hugepages/page")
    memory = domain.find("numatune/memory")
    machine = domain.find("os/type")
    name = (machine.get("machine") or "") if machine is not None else ""
    mac = mac_of(text)
    return {
        "type": domain.get("type"),
        "machine": "q35" if "q35" in name else name,
        "memory_bytes": _bytes(domain.find("memory")),
        "cpus": domain.findtext("vcpu"),
        "pinned": sorted(
            (int(p.get("vcpu", "0")), _list(p.get("cpuset"))) for p in domain.iter("vcpupin")
        ),
        "memory_nodes": _list(memory.get("nodeset")) if memory is not None else None,
        "memory_mode": memory.get("mode", "strict") if memory is not None else None,
        "huge_page_bytes": _bytes_of_page(page),
        "cpu": [cpu.get("mode") for cpu in domain.findall("cpu")],
        "address_space": _bytes(domain.find("devices/controller/pcihole64")),
        "host_devices": host_devices(text),
        "managed": sorted(
            {d.get("managed", "no") for d in domain.iterfind("devices/hostdev[@type='pci']")}
        ),
        "mediated": mediated_devices(text),
        "disks": [s.get("file") or s.get("dev") for s in domain.iterfind("devices/disk/source")],
        "networks": [
            s.get("bridge") or s.get("network") for s in domain.iterfind("devices/interface/source")
        ],
        **({"mac": mac} if mac else {}),
    }


def _bytes_of_page(page: Optional[ET.Element]) -> int:
    if page is None:
        return 0
    units = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
    return int(page.get("size", "0")) * units[page.get("unit", "KiB")]


def differences(have: Mapping[str, Any], want: Mapping[str, Any]) -> List[str]:
    """What of a domain is not as it is to be, one line each."""
    return [
        f"{key}: {have.get(key)} instead of {want[key]}"
        for key in want
        if have.get(key) != want[key]
    ]
