"""Which NUMA nodes a host's GPUs belong to, and how near its RDMA devices are, as node labels."""

import os
from typing import Dict, List, Optional

from .. import pci
from ..discovery import hardware
from ..host import Host

PREFIX = "topology.bedplate.io/"
#: What the kernel says of a device where it knows of no NUMA node.
UNKNOWN = "-1"
SWITCH, NUMA, FAR = "same-switch", "same-numa-node", "other-numa-node"
#: /sys/devices/pciDDDD:BB, then the root port: two devices that share more are below one switch.
BEYOND_THE_PORT = 3


def _numa(host: Host, address: str) -> Optional[str]:
    text = (host.read(f"{pci.DEVICES}/{address}/numa_node") or "").strip()
    return text if text and text != UNKNOWN else None


def _bridges(host: Host, address: str) -> List[str]:
    """The host bridge and the bridges above a device, from the top."""
    path = os.path.realpath(host.path(f"{pci.DEVICES}/{address}"))
    folders = path[len(os.path.realpath(host.path("/"))) :].strip("/").split("/")
    return folders[2:-1] if folders[:2] == ["sys", "devices"] else []


def _below_one_switch(host: Host, one: str, other: str) -> bool:
    shared = 0
    for mine, its in zip(_bridges(host, one), _bridges(host, other)):
        if mine != its:
            break
        shared += 1
    return shared >= BEYOND_THE_PORT


def _nearest(host: Host, gpu: str, cards: List[str]) -> Optional[str]:
    if any(_below_one_switch(host, gpu, card) for card in cards):
        return SWITCH
    nodes = {_numa(host, card) for card in cards}
    mine = _numa(host, gpu)
    if mine is None or None in nodes:
        return None
    return NUMA if mine in nodes else FAR


def labels(host: Host) -> Dict[str, str]:
    """Labels of what is known: the number of NUMA nodes that have GPUs; how near an RDMA device
    the GPU is that has the longest way to one."""
    gpus = [device.address for device in pci.gpus(pci.scan(host))]
    found: Dict[str, str] = {}
    nodes = [_numa(host, address) for address in gpus]
    if nodes and None not in nodes:
        found[PREFIX + "gpu-numa-nodes"] = str(len(set(nodes)))
    cards = [str(card["address"]) for card in hardware.rdma(host) if card["address"]]
    near = [_nearest(host, address, cards) for address in gpus] if cards else []
    for way in (FAR, NUMA, SWITCH):
        if way in near and None not in near:
            found[PREFIX + "rdma"] = way
            break
    return found
