"""Collects a host's evidence, area by area. Everything it needs is read on the host itself."""

import platform
from typing import Any, Dict, List

from . import (
    baseline_evidence,
    container_evidence,
    driver_evidence,
    evidence,
    gpus_evidence,
    isolation_evidence,
    kubernetes_evidence,
    plugin_evidence,
    runtime_evidence,
    slurm_evidence,
    toolkit_evidence,
)
from .evidence import skipped
from .evidence_area import Area, Collected, Wishes
from .host import Host

#: In the order in which they are collected. ``driver`` to ``container`` want GPUs on the host.
AREAS: Dict[str, Area] = {
    "baseline": baseline_evidence.collect,
    "driver": driver_evidence.collect,
    "gpus": gpus_evidence.collect,
    "runtime": runtime_evidence.collect,
    "toolkit": toolkit_evidence.collect,
    "kubernetes": kubernetes_evidence.collect,
    "plugin": plugin_evidence.collect,
    "container": container_evidence.collect,
    "slurm": slurm_evidence.collect,
    "isolation": isolation_evidence.collect,
}
GPU_AREAS = ("driver", "gpus", "toolkit", "plugin", "container", "isolation")


def collect(host: Host, wish: Wishes, areas: List[str]) -> Dict[str, Any]:
    """Evidence of the host in the named ``areas``: ``{simulated, labels, facts, checks}``."""
    to = Collected([], {"kernel": platform.release(), "joined": host.joined}, {})
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
