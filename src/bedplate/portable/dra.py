"""GPUs that a DRA driver publishes: the devices of a node's ResourceSlices, and what the API says.

Shapes: resource.k8s.io/v1 of Kubernetes 1.34 and later.
"""

import json
import re
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from .host import Host
from .quantities import MEBIBYTE, parse

#: NVIDIA's driver for whole GPUs and shares of them, by its own name.
DRIVER = "gpu.nvidia.com"
#: Every device class is a resource of this name too, whether it declares one or not: on by default
#: from Kubernetes 1.36 on.
IMPLICIT = "deviceclass.resource.kubernetes.io/"
UNIT = "bedplate-dra-driver.service"
UNIT_FILE = "/etc/systemd/system/" + UNIT
SOCKET = "/var/lib/kubelet/plugins_registry/gpu.nvidia.com-reg.sock"
#: kubelet's own credentials: they may list the slices of their node.
KUBELET = "/etc/kubernetes/kubelet.conf"
SLICES = "resourceslices.resource.k8s.io"
_NODE = re.compile(r"--node-name=(\S+)")


class Device(NamedTuple):
    """One GPU of a slice; memory in MiB, 0 where it says none."""

    name: str
    uuid: str
    memory: int
    shared: bool
    taints: List[str]


def is_driver(resource: str) -> bool:
    """Whether what a node offers is counted by a DRA driver's devices.

    Extended resources have a domain and a name; a driver is a domain alone.
    """
    return "/" not in resource


def devices(slices: Iterable[Mapping[str, Any]], node: str, driver: str = DRIVER) -> List[Device]:
    """The devices of a node by name: of each pool its newest generation alone."""
    mine = [
        one["spec"]
        for one in slices
        if one["spec"].get("nodeName") == node and one["spec"].get("driver") == driver
    ]
    newest: Dict[str, int] = {}
    for spec in mine:
        pool = spec["pool"]
        newest[pool["name"]] = max(pool.get("generation", 0), newest.get(pool["name"], 0))
    found = [
        _device(one)
        for spec in mine
        if spec["pool"].get("generation", 0) == newest[spec["pool"]["name"]]
        for one in spec.get("devices") or []
    ]
    return sorted(found)


def _device(one: Mapping[str, Any]) -> Device:
    attributes = one.get("attributes") or {}
    capacity = (one.get("capacity") or {}).get("memory") or {}
    return Device(
        name=one["name"],
        uuid=str((attributes.get("uuid") or {}).get("string", "")),
        memory=int(parse(capacity.get("value", 0)) // MEBIBYTE),
        shared=bool(one.get("allowMultipleAllocations", False)),
        taints=sorted(
            "{}={}:{}".format(taint["key"], taint.get("value", ""), taint["effect"])
            for taint in one.get("taints") or []
        ),
    )


def published(host: Host) -> Tuple[List[Device], Optional[str]]:
    """What the API has of this node's GPUs, asked as kubelet; the reason where it has no answer."""
    named = _NODE.search(host.read(UNIT_FILE) or "")
    if named is None:
        return [], f"{UNIT_FILE} names no node"
    node = named.group(1)
    answer = host.run(
        [
            "kubectl",
            "--kubeconfig",
            host.path(KUBELET),
            "--request-timeout=20s",
            "get",
            SLICES,
            f"--field-selector=spec.nodeName={node}",
            "--output=json",
        ],
        timeout=40,
    )
    if answer.code != 0:
        return [], answer.said
    return devices(json.loads(answer.out)["items"], node), None
