"""Which values of a preset, and which parts, go with each other and with the site."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bedplate.resolver.explanations import refused
from bedplate.resolver.teams import preset
from bedplate.resolver.wishes import schedulers
from bedplate.site.site import SLURM

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bedplate.common.errors import Problem
    from bedplate.site import Site, SiteHost
    from bedplate.site.presets.model import Preset

#: The add-on that starts the pods of a workload together.
GANG = "volcano"
HPC = "batch-hpc"
KEY = "bedplate_preset"


def check(site: Site) -> Iterator[Problem]:
    """Yield what does not go together, before anything is decided."""
    host = next(iter(sorted(site.hosts.items())))[1]
    decided = preset(host)
    if host.wishes.bedplate_preset is None or decided is None:
        return
    if not site.nodes:
        fix = "remove the preset: Slurm has a queue of its own"
        got = f"{decided.name} without nodes of Kubernetes"
        yield refused("preset-cluster", host, (KEY,), got, "a preset of a cluster", fix)
        return
    if decided.name == HPC and not any(SLURM in one.groups for one in site.hosts.values()):
        fix = f"put a pool into the group {SLURM}, or choose another preset"
        got = f"{HPC} with no host in Slurm"
        yield refused("preset-cluster", host, (KEY,), got, "Slurm and Kubernetes side by side", fix)
    yield from _placement(site, host, decided)
    if decided.queue.fair_sharing and not decided.queue.borrowing:
        path = (KEY, "queue", "fair_sharing" if _changed(host, "fair_sharing") else "borrowing")
        got = "fair_sharing with borrowing: false"
        fix = "write borrowing: true, or fair_sharing: false"
        allowed = "fair sharing of what teams borrow"
        yield refused("preset-queue", host, path, got, allowed, fix)


def _changed(host: SiteHost, value: str) -> bool:
    chosen = host.wishes.bedplate_preset
    return chosen is not None and getattr(chosen.queue, value) is not None


def _placement(site: Site, host: SiteHost, decided: Preset) -> Iterator[Problem]:
    placement = decided.placement
    path = (KEY, "placement")
    if placement.gang and GANG not in schedulers(host):
        fix = "add volcano to bedplate_schedulers, or write gang: false"
        got = f"gang: true with {', '.join(sorted(schedulers(host)))} alone"
        allowed = f"gang with {GANG}"
        yield refused("preset-gang", host, (*path, "gang"), got, allowed, fix)
    modes = {one.wishes.bedplate_sharing.mode for one in site.nodes if one.pool}
    if placement.gang and modes == {"dra"} and "volcano" in schedulers(host):
        fix = "write gang: false, or another mode for a pool"
        allowed = "gang with a pool whose GPUs a device plugin offers"
        got = "gang: true with pools of mode dra alone, whose claims Volcano does not allocate"
        yield refused("preset-gang", host, (*path, "gang"), got, allowed, fix)
    placed = [one.wishes.bedplate_topology for one in site.nodes if one.pool]
    if placement.topology == "required" and not any(placed):
        fix = "write bedplate_topology: {rack: …} for the hosts, or topology: preferred"
        got = "topology: required, and no host says where it stands"
        allowed = "required with rack, leaf or nvlink_domain of hosts"
        yield refused("preset-topology", host, (*path, "topology"), got, allowed, fix)
    if placement.extender:
        yield from _extender(site, host, decided)


def _extender(site: Site, host: SiteHost, decided: Preset) -> Iterator[Problem]:
    """Only one part may count the shares of a GPU, and only one may choose a pod's node."""
    path = (KEY, "placement", "extender")
    if decided.placement.gang:
        fix = "write gang: false, or extender: false"
        got = "extender: true with gang: true, whose pods the extender never sees"
        allowed = "one scheduler for a pod: kube-scheduler with the extender, or that of gangs"
        yield refused("preset-extender", host, path, got, allowed, fix)
    for name, members in site.pools.items():
        mode = members[0].wishes.bedplate_sharing.mode
        if mode != "none" and members[0] in site.nodes:
            where = ("bedplate_sharing", "mode")
            got = f"{mode} in {name} with placement.extender: true"
            fix = "write mode: none, or extender: false"
            allowed = "none: the extender counts shares itself"
            yield refused("preset-extender", members[0], where, got, allowed, fix)
