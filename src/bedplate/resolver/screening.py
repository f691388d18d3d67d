"""What settings alone say cannot be installed: known also where nothing can be decided.

`installable` finds the rest in the lock: a driver's source that nobody named, Fabric Manager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bedplate.resolver import locking
from bedplate.resolver.wishes import schedulers, split_named
from bedplate.site.site import SLURM

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bedplate.catalogue import Catalogue
    from bedplate.site import Site, SiteHost


def parts(site: Site, catalogue: Catalogue) -> Iterator[tuple[str, str]]:
    """Yield each part that cannot be installed, with the pool (or `cluster`) that asks for it."""
    first = next(host for _, host in sorted(site.hosts.items()))
    for part in locking.not_built(_shared(site, first, catalogue), catalogue):
        yield part, "cluster"
    for name, hosts in site.pools.items():
        for part in locking.not_built(_pool(hosts[0], catalogue), catalogue):
            yield part, name


def _shared(site: Site, host: SiteHost, catalogue: Catalogue) -> Iterator[tuple[str, str]]:
    wishes = host.wishes
    yield "sources", wishes.bedplate_sources.mode
    systems = {one.wishes.bedplate_host.os for one in site.hosts.values() if one.pool is None}
    yield from (("os", system) for system in systems & set(catalogue.systems))
    if not site.nodes:
        return
    if wishes.bedplate_kubernetes is not None:
        yield "cni", wishes.bedplate_kubernetes.cni
    runtime = wishes.bedplate_container_runtime
    if runtime.name not in ("docker", "podman"):  # refused with Kubernetes
        field = runtime.name.replace("-", "_")
        yield "runtime", field
        if runtime.source is not None:
            yield f"{field}-from", runtime.source
    known = {fact.value.addon for fact in catalogue.addons.values()}
    asked = {split_named(text)[0] for text in wishes.bedplate_operators} | schedulers(host)
    yield from (("addon", name) for name in asked & known)


def _pool(host: SiteHost, catalogue: Catalogue) -> Iterator[tuple[str, str]]:
    wishes, system = host.wishes, host.wishes.bedplate_host
    sharing, source, slurm = (
        wishes.bedplate_sharing,
        wishes.bedplate_driver.source,
        SLURM in host.groups,
    )
    mode = sharing.mode
    yield "kind", system.kind
    yield "sharing", mode
    if system.os in catalogue.systems:
        yield "os", system.os
        if slurm:
            yield "slurm-on", system.os
        if slurm and mode == "time-slicing":
            yield "shard-on", system.os
        if mode == "mps":
            yield "mps-on", system.os
        if source is not None and wishes.bedplate_cuda:
            yield "cuda-on", f"{system.os} {source}"
    if source is not None:
        yield "source", source
    if host.is_node and mode != "none" and wishes.bedplate_container_runtime.name == "cri-o":
        yield "below-cri_o", mode
    for name, asked in (
        ("kernel", system.kernel),
        ("secure_boot", system.secure_boot),
        ("accelerator", wishes.bedplate_accelerator),
        ("vgpu", wishes.bedplate_vgpu),
        ("rdma", wishes.bedplate_rdma),
        ("rdma_pods", wishes.bedplate_rdma and wishes.bedplate_rdma.pods),
        ("frameworks", wishes.bedplate_frameworks),
        ("mig_layout", sharing.profiles),
        ("mixed_gpus", wishes.bedplate_gpu[1:]),
    ):
        if asked:
            yield "part", name
