"""Figures of one run on one machine, as ratios: `make benchmarks`.

A site of its own (the end-to-end tests' copy of the demo) goes through its life; printed are the
seconds of each phase, the no-op run of site.yml against the first, the cluster stack against bare
kubeadm commands on the same hosts, planning against reading the inventory, the hosts' playbook
against bare commands and the nearest peer (hosts.py), and the largest memory of each control-side
program (memory.py). A part alone:
`python -m tests.benchmarks site|planning|courses|hosts [first|built|again|scale ...]`.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from tests.benchmarks import courses, filling, hosts, planning, queueing, resolving
from tests.benchmarks.by_hand import assert_same_network, make_cluster
from tests.benchmarks.memory import MeasuredCommands
from tests.site.conftest import copy_description, copy_site, forget_stacks
from tests.site.hosts import on_host


def timed(site: MeasuredCommands, label: str) -> float:
    """Take the seconds of the phase that has just run, under a name of its own."""
    name, seconds = list(site.phases.items())[-1]
    del site.phases[name]
    site.phases[label] = seconds
    return seconds


def measure(site: MeasuredCommands) -> dict[str, float]:
    """Go through the site's life and return the ratios."""
    site.substrate("up")
    site.plan()
    site.resolve()
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
        **site.memory.figures(),
    }


def measure_site() -> tuple[dict[str, float], dict[str, float]]:
    """Measure the site's life on hosts that are taken down after it."""
    with tempfile.TemporaryDirectory(prefix="bedplate-benchmark-") as folder:
        site = MeasuredCommands(
            copy_site(Path(folder) / "e2e", upstream=False),
            copy_description(Path(folder) / "e2e.yml"),
        )
        site.substrate("down")
        forget_stacks()
        try:
            ratios = measure(site)
        finally:
            site.substrate("down")
            forget_stacks()
    return site.phases, ratios


def measure_hosts(parts: list[str]) -> tuple[dict[str, float], dict[str, float]]:
    """Measure the hosts' playbook; print what is no single figure."""
    with tempfile.TemporaryDirectory(prefix="bedplate-benchmark-") as folder:
        figures = hosts.measure(Path(folder), set(parts) or set(hosts.PARTS))
    print("", *figures.notes, sep="\n")
    return figures.seconds, figures.ratios


def main() -> int:
    """Measure, print, and take everything down again."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parts = ["site", "planning", "courses", "resolving", "filling", "queueing", "hosts"]
    parser.add_argument("part", nargs="?", choices=parts, help="default: all")
    parser.add_argument("of_hosts", nargs="*", help=f"of the part hosts: {', '.join(hosts.PARTS)}")
    arguments = parser.parse_args()
    if unknown := set(arguments.of_hosts) - set(hosts.PARTS):
        parser.error(f"{', '.join(sorted(unknown))}: unknown / allowed {', '.join(hosts.PARTS)}")
    started = time.monotonic()
    seconds: dict[str, float] = {}
    ratios: dict[str, float] = {}
    measured = {
        "site": measure_site,
        "planning": planning.measure,
        "courses": courses.measure,
        "resolving": resolving.measure,
        "filling": filling.measure,
        "queueing": queueing.measure,
        "hosts": lambda: measure_hosts(arguments.of_hosts),
    }
    for part, take in measured.items():
        if arguments.part in {part, None}:
            more_seconds, more_ratios = take()
            seconds |= more_seconds
            ratios |= more_ratios
    took = time.monotonic() - started
    print(f"\n{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, {took:.0f} s in all")
    for label, value in [*seconds.items(), *ratios.items()]:
        print(f"{label:52} {value:10.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
