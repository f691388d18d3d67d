"""RDMA devices of a host, its GPUs' way to them, and the settings of RoCE and NCCL."""

import re
from typing import Any, Dict, List, Mapping, Optional

from .. import nvidia
from ..discovery import hardware
from ..host import Host

NCCL_CONF = "/etc/nccl.conf"
#: The kernel's settings of connections that the RDMA connection manager makes, by device.
CONNECTIONS = "/sys/kernel/config/rdma_cm"
PEERMEM = "nvidia_peermem"
#: Frames of a priority are marked in the upper six of the type of service's eight bits.
DSCP_SHIFT = 2
ACTIVE = "ACTIVE"
ETHERNET = "Ethernet"
#: Devices that the shared device plugin wants of each network card that it offers.
FOR_PODS = ("rdma_cm", "umad", "uverbs")


def devices(host: Host, names: List[str]) -> List[Dict[str, Any]]:
    """RDMA devices with their ports; only the named ones, or all where none is named."""
    return [one for one in hardware.rdma(host) if not names or one["name"] in names]


def inactive(found: List[Dict[str, Any]]) -> List[str]:
    """Ports that are not active, as ``mlx5_0/1 (DOWN)``."""
    return [
        "{}/{} ({})".format(one["name"], port["port"], port["state"] or "unknown")
        for one in found
        for port in one["ports"]
        if port["state"] != ACTIVE
    ]


def gpu_path(host: Host, method: str) -> Optional[str]:
    """Why GPU memory cannot be reached by the network cards; None where it can.

    DMA-BUF needs the open module and a kernel that exports memory of PCI devices to each other.
    """
    loaded = nvidia.loaded_module(host)
    if loaded is None:
        return "no nvidia module is loaded"
    if method == "peermem":
        return None if host.exists(f"/sys/module/{PEERMEM}") else f"{PEERMEM} is not loaded"
    if loaded.flavour != "open":
        return f"the loaded module is {loaded.flavour}; DMA-BUF is the open one's"
    release = (host.read("/proc/sys/kernel/osrelease") or "").strip()
    config = host.read(f"/boot/config-{release}")
    if config is not None and "CONFIG_PCI_P2PDMA=y" not in config.splitlines():
        return f"kernel {release} is built without CONFIG_PCI_P2PDMA"
    return None


def traffic_class(dscp: int) -> int:
    """The type of service (IPv4) or traffic class (IPv6) that carries a DSCP value."""
    return dscp << DSCP_SHIFT


def nccl(
    method: str, roce: Mapping[str, Any], devices_: List[str], extra: Mapping[str, Any]
) -> Dict[str, str]:
    """NCCL's environment: which devices, how marked, which way to GPU memory; ``extra`` wins.

    An equals sign before the list asks for exact names: ``mlx5_1`` would mean ``mlx5_10`` too.
    """
    found: Dict[str, str] = {}
    if devices_:
        found["NCCL_IB_HCA"] = "=" + ",".join(devices_)
    if method != "dma-buf":
        found["NCCL_DMABUF_ENABLE"] = "0"
    if roce:
        found["NCCL_IB_TC"] = str(traffic_class(int(roce["dscp"])))
        if roce.get("gid_index") is not None:
            found["NCCL_IB_GID_INDEX"] = str(roce["gid_index"])
    found.update({name: str(value) for name, value in extra.items()})
    return dict(sorted(found.items()))


def parse_nccl(text: Optional[str]) -> Dict[str, str]:
    """The settings in a file as /etc/nccl.conf is."""
    lines = (line.split("#")[0].strip() for line in (text or "").splitlines())
    pairs = (line.partition("=") for line in lines if "=" in line)
    return {name.strip(): value.strip() for name, _, value in pairs}


def roce_state(host: Host, device: str, port: int) -> Dict[str, Any]:
    """How connections of a RoCE port are marked, and whether they use routable addresses."""
    folder = f"{CONNECTIONS}/{device}/ports/{port}"
    tos = (host.read(f"{folder}/default_roce_tos") or "").strip()
    mode = (host.read(f"{folder}/default_roce_mode") or "").strip()
    return {"tos": int(tos) if tos.isdigit() else None, "mode": mode or None}


def lossless_priorities(host: Host, interface: str) -> Optional[List[int]]:
    """The priorities with flow control, as iproute2's dcb shows them; None where it does not."""
    answer = host.run(["dcb", "pfc", "show", "dev", interface])
    if answer.code != 0:
        return None
    found = re.search(r"prio-pfc((?:\s+\d:(?:on|off))+)", answer.out)
    pairs = (pair.split(":") for pair in found.group(1).split()) if found else ()
    return sorted(int(number) for number, state in pairs if state == "on")


def dscp_priority(host: Host, interface: str, dscp: int) -> Optional[int]:
    """The priority that a DSCP value runs in, as the maker's tool tells, or else iproute2's dcb.

    None where a port goes by something else than DSCP, or nothing tells of this value.
    """
    answer = host.run(["mlnx_qos", "-i", interface])
    if answer.code == 0:
        # A line has eight values at most, and a priority as many lines as it needs.
        lines = re.findall(r"prio:(\d) dscp:([\d,]+)", answer.out)
        pairs = [(value, number) for number, values in lines for value in values.split(",")]
    else:
        # By numbers: several values have names of their own.
        shown = host.run(["dcb", "-N", "app", "show", "dev", interface, "dscp-prio"])
        pairs = re.findall(r"\b(\d+):(\d)\b", shown.out) if shown.code == 0 else []
    # Of several for one value the kernel takes the highest.
    return max(
        (int(number) for value, number in pairs if value and int(value) == dscp), default=None
    )
