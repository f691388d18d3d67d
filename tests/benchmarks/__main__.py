"""Figures of one run on one machine, as ratios: `make benchmarks`.

A site of its own (the end-to-end tests' copy of the demo) goes through its life; printed are the
seconds of each phase, the no-op run of site.yml against the first, the cluster stack against bare
kubeadm commands on the same hosts, planning against reading the inventory, and the largest memory
of a control-side process.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from tests.benchmarks import planning
from tests.benchmarks.by_hand import assert_same_network, make_cluster
from tests.site.conftest import copy_description, copy_site, forget_stacks
from tests.site.hosts import on_host
from tests.substrate.commands import SiteCommands


def timed(site: SiteCommands, label: str) -> float:
    """Take the seconds of the phase that has just run, under a name of its own."""
    name, seconds = list(site.phases.items())[-1]
    del site.phases[name]
    site.phases[label] = seconds
    return seconds


def measure(site: SiteCommands) -> dict[str, float]:
    """Go through the site's life and return the ratios."""
    site.substrate("up")
    site.plan()
    site.playbook()
    first = timed(site, "site.yml, first")
    site.playbook()
    again = timed(site, "site.yml, again")
    site.select("cluster")
    site.up("cluster")
    timed(site, "cluster stack, images not pulled yet")
    assert_same_network(site)
    site.pulumi("cluster", "destroy", "--yes", "--skip-preview")
    site.up("cluster")
    stack = timed(site, "cluster stack")
    site.pulumi("cluster", "destroy", "--yes", "--skip-preview")
    by_hand = make_cluster(site)
    site.phases["bare kubeadm"] = by_hand
    workers = on_host(
        site, "cp1", "kubectl --kubeconfig /etc/kubernetes/admin.conf get nodes -o name"
    )
    return {
        "site.yml: again / first": again / first,
        "cluster stack / bare kubeadm (goal 1.1)": stack / by_hand,
        "nodes in both": float(len(workers.split())),
        "largest control-side process, MiB": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        / 1024,
    }


def main() -> int:
    """Measure, print, and take everything down again."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bedplate-benchmark-") as folder:
        site = SiteCommands(
            copy_site(Path(folder) / "e2e"), copy_description(Path(folder) / "e2e.yml")
        )
        site.substrate("down")
        forget_stacks()
        try:
            ratios = measure(site)
        finally:
            site.substrate("down")
            forget_stacks()
    planned, planning_ratios = planning.measure()
    ratios |= planning_ratios
    seconds = time.monotonic() - started
    print(f"\n{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, {seconds:.0f} s in all")
    for label, value in [*site.phases.items(), *planned.items(), *ratios.items()]:
        print(f"{label:44} {value:10.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
