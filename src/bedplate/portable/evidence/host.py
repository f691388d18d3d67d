"""Collects a host's evidence, area by area. Everything it needs is read on the host itself."""

import platform
from typing import Any, Dict, List

from ..host import Host
from . import (
    baseline,
    checks,
    compute,
    container,
    cuda,
    driver,
    fabric,
    gpus,
    health,
    hpc,
    isolation,
    kernel,
    kubernetes,
    licence,
    owned,
    passthrough,
    plugin,
    rdma,
    runtime,
    sharing,
    slurm,
    toolkit,
    updates,
)
from .area import Area, Collected, Wishes
from .checks import skipped

#: In the order in which they are collected. ``driver`` to ``container`` want GPUs on the host.
AREAS: Dict[str, Area] = {
    "baseline": baseline.collect,
    "kernel": kernel.collect,
    "driver": driver.collect,
    "gpus": gpus.collect,
    "health": health.collect,
    "compute": compute.collect,
    "runtime": runtime.collect,
    "toolkit": toolkit.collect,
    "kubernetes": kubernetes.collect,
    "plugin": plugin.collect,
    "container": container.collect,
    "fabric": fabric.collect,
    "cuda": cuda.collect,
    "sharing": sharing.collect,
    "slurm": slurm.collect,
    "isolation": isolation.collect,
    "owned": owned.collect,
    "updates": updates.collect,
    "passthrough": passthrough.collect,
    "licence": licence.collect,
    "rdma": rdma.collect,
    "hpc": hpc.collect,
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
        "simulated": checks.simulated(host),
        "labels": to.labels,
        "facts": to.facts,
        "checks": to.checks,
    }
