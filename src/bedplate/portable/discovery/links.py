"""What a running driver tells of its GPUs: identity, VBIOS, and how NVLink joins them."""

import re
from typing import Any, Dict, List, Optional

from .. import nvidia
from ..host import Host

ABSENT: Dict[str, Any] = {"known": False, "reason": "no NVIDIA driver is loaded"}
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_GPU = re.compile(r"^GPU (?P<number>\d+): ")
_LINK = re.compile(r"^\s+Link \d+: (?:(?P<rate>[\d.]+) GB/s|<inactive>)")
#: Instead of links, where none of a GPU's is up (https://github.com/leptonai/gpud/issues/1085).
_DOWN = re.compile(r"NVML: .* all links are inactive", re.IGNORECASE)


def gpus(host: Host) -> Dict[str, Any]:
    """GPUs as nvidia-smi lists them: ``{known, list}`` or ``{known, reason}``."""
    found, reason = nvidia.query(host)
    if reason is not None:
        return {"known": False, "reason": reason}
    return {
        "known": True,
        "list": [
            {"index": g.number, "name": g.name, "uuid": g.uuid, "memory_mib": g.memory}
            for g in found
        ],
    }


def vbios(host: Host) -> Dict[str, str]:
    """VBIOS versions by PCI address; empty where nvidia-smi does not say."""
    answer = host.run(
        ["nvidia-smi", "--query-gpu=pci.bus_id,vbios_version", "--format=csv,noheader"]
    )
    rows = [line.split(",") for line in answer.out.splitlines()] if answer.code == 0 else []
    return {row[0].strip().lower(): row[1].strip() for row in rows if len(row) == 2}


def parse_matrix(text: str) -> Dict[str, Dict[str, str]]:
    """The GPU-to-GPU part of ``nvidia-smi topo -m``: ``{"GPU0": {"GPU1": "NV18"}}``."""
    columns: List[str] = []
    found: Dict[str, Dict[str, str]] = {}
    for line in _ESCAPE.sub("", text).splitlines():
        fields = [field.strip() for field in line.split("\t")]
        if not columns:
            columns = [f for f in fields if re.match(r"^GPU\d+$", f)]
        elif fields[0] in columns:
            row = dict(zip(columns, fields[1:]))
            found[fields[0]] = {to: how for to, how in row.items() if to != fields[0]}
        elif found:
            break  # NICs and the legend come after the GPUs
    return found


def parse_status(text: str) -> List[Dict[str, Any]]:
    """``nvidia-smi nvlink -s``: links of each GPU, and the rate of the active ones in GB/s.

    ``inactive`` is None where all are down and their number is not told.
    """
    found: List[Dict[str, Any]] = []
    for line in text.splitlines():
        gpu, link = _GPU.match(line), _LINK.match(line)
        if gpu:
            found.append(
                {"gpu": int(gpu.group("number")), "active": 0, "inactive": 0, "rate": None}
            )
        elif link and found:
            rate: Optional[str] = link.group("rate")
            found[-1]["active" if rate else "inactive"] += 1
            found[-1]["rate"] = float(rate) if rate else found[-1]["rate"]
        elif found and _DOWN.search(line):
            found[-1]["inactive"] = None
    return found


def linked(found: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """Those GPUs of ``parse_status`` that have links, up or down."""
    return [one for one in found if one["active"] or one["inactive"] != 0]


def nvlink(host: Host) -> Dict[str, Any]:
    """Topology of the GPUs among each other: ``{known, matrix, links}`` or ``{known, reason}``."""
    matrix = host.run(["nvidia-smi", "topo", "-m"])
    if matrix.code != 0:
        return {"known": False, "reason": matrix.said}
    status = host.run(["nvidia-smi", "nvlink", "-s"])
    # Cards without NVLink make it fail, or print no link: both say that there is none.
    links = parse_status(status.out) if status.code == 0 else []
    return {
        "known": True,
        "matrix": parse_matrix(matrix.out),
        "links": linked(links),
    }
