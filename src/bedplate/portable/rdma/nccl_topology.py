"""NCCL's topology file: which GPUs and network cards are below one PCI switch.

On bare metal NCCL reads that from sysfs. A guest sees every passed-through function behind a port
of its own, so that NCCL would not let cards reach each other that are next to each other.
The form is that of NCCL's own dump (NCCL_TOPO_DUMP_FILE).
"""

import xml.etree.ElementTree as ET
from typing import Any, List, Mapping, Sequence

from .. import pci
from ..host import Host
from ..message import problem

#: A bridge that NCCL takes for a switch; its address stands for nothing of the guest's.
SWITCH_CLASS = "0x060400"
NODES = "/sys/devices/system/node"


def wrong(host: Host, groups: Sequence[Mapping[str, Any]], where: str) -> List[str]:
    """Functions that are not there, or in two groups."""
    present = {device.address for device in pci.scan(host)}
    found: List[str] = []
    seen = set()
    for group in groups:
        for function in group["functions"]:
            address = str(function).lower()
            if address not in present:
                fix = "Correct rdma_nccl_topology: addresses are those that lspci -D shows here."
                allowed = "a function of this host"
                found.append(problem("no such PCI function", where, address, allowed, fix))
            elif address in seen:
                fix = "Take it from one of them."
                found.append(
                    problem("function is below two switches", where, address, "one switch", fix)
                )
            seen.add(address)
    return found


def _affinity(host: Host, node: int) -> str:
    return (host.read(f"{NODES}/node{node}/cpumap") or "").strip()


def render(host: Host, groups: Sequence[Mapping[str, Any]]) -> str:
    """The file's text; links are as fast as sysfs says, or left out."""
    system = ET.Element("system", {"version": "1"})
    classes = {device.address: device.pci_class for device in pci.scan(host)}
    nodes = {}
    for number, group in enumerate(groups):
        node = int(group.get("node") or 0)
        if node not in nodes:
            attributes = {"numaid": str(node), "arch": "x86_64"}
            affinity = _affinity(host, node)
            if affinity:
                attributes["affinity"] = affinity
            nodes[node] = ET.SubElement(system, "cpu", attributes)
        # Beyond every bus that a machine has: no function of the guest is there.
        switch = ET.SubElement(
            nodes[node], "pci", {"busid": f"ffff:{number + 1:02x}:00.0", "class": SWITCH_CLASS}
        )
        for function in group["functions"]:
            address = str(function).lower()
            one = {"busid": address, "class": "0x" + classes.get(address, "")}
            for name, file in (
                ("link_speed", "max_link_speed"),
                ("link_width", "max_link_width"),
            ):
                text = (host.read(f"{pci.DEVICES}/{address}/{file}") or "").strip()
                # As sysfs has it: NCCL knows a generation by the whole text, " PCIe" included, and
                # takes any other for the third (kvDictPciGen in its src/graph/topo.cc).
                if text:
                    one[name] = text
            ET.SubElement(switch, "pci", one)
    ET.indent(system)
    header = "<!-- Managed by Bedplate (role rdma): changes here are lost. -->\n"
    return header + ET.tostring(system, encoding="unicode") + "\n"
