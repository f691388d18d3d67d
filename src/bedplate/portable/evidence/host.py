"""Collects a host's evidence, area by area. Everything it needs is read on the host itself."""

import platform
from typing import Any, Dict, List

from ..host import Host
from . import baseline as baseline_evidence
from . import checks as evidence
from . import compute as compute_evidence
from . import container as container_evidence
from . import cuda as cuda_evidence
from . import driver as driver_evidence
from . import fabric as fabric_evidence
from . import gpus as gpus_evidence
from . import health as health_evidence
from . import isolation as isolation_evidence
from . import kernel as kernel_evidence
from . import kubernetes as kubernetes_evidence
from . import owned as owned_evidence
from . import passthrough as passthrough_evidence
from . import plugin as plugin_evidence
from . import rdma as rdma_evidence
from . import runtime as runtime_evidence
from . import sharing as sharing_evidence
from . import slurm as slurm_evidence
from . import toolkit as toolkit_evidence
from . import updates as updates_evidence
from .area import Area, Collected, Wishes
from .checks import skipped

#: In the order in which they are collected. ``driver`` to ``container`` want GPUs on the host.
AREAS: Dict[str, Area] = {
    "baseline": baseline_evidence.collect,
    "kernel": kernel_evidence.collect,
    "driver": driver_evidence.collect,
    "gpus": gpus_evidence.collect,
    "health": health_evidence.collect,
    "compute": compute_evidence.collect,
    "runtime": runtime_evidence.collect,
    "toolkit": toolkit_evidence.collect,
    "kubernetes": kubernetes_evidence.collect,
    "plugin": plugin_evidence.collect,
    "container": container_evidence.collect,
    "fabric": fabric_evidence.collect,
    "cuda": cuda_evidence.collect,
    "sharing": sharing_evidence.collect,
    "slurm": slurm_evidence.collect,
    "isolation": isolation_evidence.collect,
    "owned": owned_evidence.collect,
    "updates": updates_evidence.collect,
    "passthrough": passthrough_evidence.collect,
    "rdma": rdma_evidence.collect,
}
GPU_AREAS = ("driver", "gpus", "health", "compute", "toolkit", "plugin", "container", "isolation")


def machine(host: Host) -> Dict[str, str]:
    """What tells one machine from another under the same name."""
    return {
        "id": (host.read("/etc/machine-id") or "").strip(),
        "serial": (host.read("/sys/class/dmi/id/product_serial") or "").strip(),
    }


def collect(host: Host, wish: Wishes, areas: List[str]) -> Dict[str, Any]:
    """Evidence of the host in the named ``areas``: ``{simulated, labels, facts, checks}``."""
    facts = {"kernel": platform.release(), "joined": host.joined, "machine": machine(host)}
    to = Collected([], facts, {})
    for name, collector in AREAS.items():
        if name not in areas:
            continue
        if name in GPU_AREAS and not wish.gpus:
            to.checks.append(
                skipped(name, "GPU side of the host", "the site declares no GPU for this host")
            )
        else:
            collector(host, wish, to)
    return {
        "simulated": evidence.simulated(host),
        "labels": to.labels,
        "facts": to.facts,
        "checks": to.checks,
    }
