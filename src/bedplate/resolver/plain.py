"""What is wrong with settings alone, without deciding anything: unknown names, sums."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bedplate.common.versions import minor
from bedplate.resolver import (
    configuration,
    control_planes,
    course_images,
    courses,
    guests,
    images,
    networks,
    node_marks,
    ports,
    presets,
    sharing_checks,
    sources,
    teams,
    topology,
)
from bedplate.resolver.explanations import (
    refused,
    unknown,
    unknown_accelerator,
)
from bedplate.resolver.wishes import (
    POOL_PINS,
    SHARED_PINS,
    begins,
    frameworks_of,
    model_of,
    pin_wishes,
    split_named,
)
from bedplate.site.site import POOLS, SLURM, WORKERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from bedplate.catalogue import Catalogue
    from bedplate.common.errors import Problem
    from bedplate.site import Site, SiteHost
    from bedplate.site.places import Place


def check(site: Site, catalogue: Catalogue) -> Iterator[Problem]:
    """Yield everything that is wrong before there is anything to decide."""
    hosts = [host for _, host in sorted(site.hosts.items())]
    for host in hosts:
        yield from _system(host, catalogue)
        yield from _passthrough(host)
    yield from guests.check(site, catalogue)
    yield from _runtime(site, hosts[0])
    yield from _shared(site, hosts[0], catalogue)
    yield from control_planes.check(site)
    yield from node_marks.check(site)
    yield from networks.check(site, catalogue)
    yield from ports.check(site)
    yield from configuration.check(site, catalogue)
    yield from teams.check(site)
    if site.nodes:
        yield from courses.check(site)
        yield from images.check(site, catalogue)
        yield from course_images.check(site, catalogue)
    yield from topology.check(site)
    yield from presets.check(site)
    for pool in site.pools.values():
        yield from _pool(pool[0], catalogue)
    firsts = [pool[0] for pool in site.pools.values()]
    yield from _pins([*firsts, *(host for host in hosts if host.pool is None)], catalogue)


def _system(host: SiteHost, catalogue: Catalogue) -> Iterator[Problem]:
    wished = host.wishes.bedplate_host
    if wished.os not in catalogue.systems:
        instead = catalogue.instead_of_system(wished.os)
        yield refused("system-known", host, ("bedplate_host", "os"), wished.os, *instead)
    elif wished.kernel is not None:
        of = [f.value.os for f in catalogue.kernels.values() if f.value.kernel == wished.kernel]
        if wished.os not in of:  # Kernels that no system has are unknown, and taken.
            path = ("bedplate_host", "kernel")
            got, allowed = f"{wished.kernel}, of {', '.join(of)}", f"a kernel of {wished.os}"
            fix = "write what uname -r prints on the host, or correct os"
            yield refused("kernel-known", host, path, got, allowed, fix)


def _passthrough(host: SiteHost) -> Iterator[Problem]:
    given = host.wishes.bedplate_passthrough
    kind = host.wishes.bedplate_host.kind
    for key in ("bedplate_passthrough", "bedplate_vgpu"):
        if getattr(host.wishes, key) is not None and kind != "hypervisor":
            fix = "write kind: hypervisor, or remove it"
            yield refused("hypervisor-bare", host, (key,), f"kind {kind}", "kind hypervisor", fix)
    if given is None:
        return
    devices = set(given.devices)
    for index, group in enumerate(given.iommu_groups):
        inside = devices & set(group)
        beside = sorted(set(group) - devices)
        if inside and beside:
            path: tuple[str | int, ...] = ("bedplate_passthrough", "iommu_groups", index)
            got = f"{', '.join(sorted(inside))} in one group with {', '.join(beside)}"
            fix = "give the whole group, or move the GPU to a slot with ACS"
            yield refused("iommu-groups", host, path, got, "groups with given devices only", fix)
    known = {address for group in given.iommu_groups for address in group}
    for index, address in enumerate(given.devices):
        if address not in known:
            path = ("bedplate_passthrough", "devices", index)
            fix = "turn the IOMMU on, and copy the groups that bedplate.gpu.discover found"
            yield refused("iommu-groups", host, path, address, "an address in an IOMMU group", fix)


def _runtime(site: Site, host: SiteHost) -> Iterator[Problem]:
    """Refuse a runtime that no host of the site could use: kubelet speaks to two of them alone."""
    every = site.hosts.values()
    path, name = ("bedplate_container_runtime", "name"), host.wishes.bedplate_container_runtime.name
    if site.nodes and name == "docker":
        got = "docker with bedplate_kubernetes: kubelet needs cri-dockerd for it"
        allowed = "containerd, cri-o"
        fix = "write containerd, or remove bedplate_kubernetes where Docker is used without it"
        yield refused("docker-kubernetes", host, path, got, allowed, fix)
    elif site.nodes and name == "podman":
        got, allowed = "podman with bedplate_kubernetes", "containerd, cri-o"
        fix = f"write containerd: jobs of {SLURM} have containers in a site without Kubernetes"
        yield refused("docker-kubernetes", host, path, got, allowed, fix)
    elif name != "containerd" and not any(one.runs_containers for one in every):
        got, fix = f"{name}, and no host in {POOLS}", "remove it"
        if any(SLURM in one.groups for one in every):
            got += ": jobs of Slurm have their containers by Podman"
            if name == "docker":
                got += ", since Docker's daemon would start them outside of their job"
            fix = f"write podman, or remove it, or move the hosts from {SLURM} to {POOLS}"
        yield refused("runtime-unused", host, path, got, "nothing", fix)


def _shared(site: Site, host: SiteHost, catalogue: Catalogue) -> Iterator[Problem]:
    wishes = host.wishes
    kubernetes = wishes.bedplate_kubernetes
    wanted = kubernetes.version if kubernetes is not None else None
    if wanted is not None and not any(begins(one, wanted) for one in catalogue.kubernetes):
        known = {minor(version) for version in catalogue.kubernetes} | set(catalogue.kubernetes)
        path: tuple[str | int, ...] = ("bedplate_kubernetes", "version")
        yield unknown("kubernetes-known", host, path, wanted, known)
    yield from sources.problems_of(site, host)
    for key in ("bedplate_schedulers", "bedplate_operators"):
        for index, text in enumerate(getattr(wishes, key)):
            yield from addon(host, (key, index), text, catalogue)


def addon(
    host: SiteHost, path: Sequence[str | int], text: str, catalogue: Catalogue
) -> Iterator[Problem]:
    """Check that an add-on is known, with its version."""
    versions = [(fact.value.addon, fact.value.version) for fact in catalogue.addons.values()]
    yield from _named("addon-known", host, path, text, versions)


def _named(
    rule: str,
    host: SiteHost,
    path: Sequence[str | int],
    text: str,
    versions: Iterable[tuple[str, str]],
    also: Iterable[str] = (),
) -> Iterator[Problem]:
    known = list(versions)
    name, version = split_named(text)
    if any(one == name and begins(its, version) for one, its in known):
        return
    names = {one for one, _ in known} | set(also)
    same = {f"{one}-{its}" for one, its in known if one == name}
    yield unknown(rule, host, path, text, same or names)


def _pool(host: SiteHost, catalogue: Catalogue) -> Iterator[Problem]:
    wishes = host.wishes
    if not wishes.bedplate_gpu and wishes.bedplate_accelerator is None:
        fix = "write {model: …, count: …}; bedplate.gpu.discover proposes it"
        if POOLS in host.groups:
            fix += f"; nodes without a GPU belong into the group {WORKERS}"
        yield refused("gpu-count", host, ("bedplate_gpu",), "none", "at least one", fix)
    yield from _accelerator(host, catalogue)
    yield from _gpus(host, catalogue)
    yield from _driver(host, catalogue)
    if wishes.bedplate_host.kind == "hypervisor":
        yield from _bare(host)
        return
    yield from sharing_checks.check(host, catalogue)
    for index, text in enumerate(wishes.bedplate_cuda):
        if not any(begins(version, text) for version in catalogue.cuda_toolkits):
            known = {minor(version) for version in catalogue.cuda_toolkits}
            yield unknown("cuda-known", host, ("bedplate_cuda", index), text, known)
    yield from _cuda_twice(host)
    builds = [(f.value.framework, f.value.version) for f in catalogue.frameworks.values()]
    own = {name for name, one in wishes.bedplate_images.items() if one.pool == host.pool}
    for text, path in frameworks_of(host).items():
        also = own if path[0] == courses.KEY else ()
        for problem in _named("framework-known", host, path, text, builds, also):
            own_image = f", or add your own image {text} to bedplate_images with pool: {host.pool}"
            # A version is that of a framework.
            images = path[0] == courses.KEY and not split_named(text)[1]
            images = images and not wishes.bedplate_images
            yield replace(problem, fix=problem.fix + own_image) if images else problem
    if wishes.bedplate_rdma is not None and wishes.bedplate_rdma.operator is not None:
        path = ("bedplate_rdma", "operator")
        yield from addon(host, path, wishes.bedplate_rdma.operator, catalogue)


def _cuda_twice(host: SiteHost) -> Iterator[Problem]:
    """Releases of one minor version share a folder on the host: only one of them can be there."""
    seen: list[str] = []
    for index, text in enumerate(host.wishes.bedplate_cuda):
        for other in seen:
            if begins(other, text) or begins(text, other) or minor(other) == minor(text):
                path, fix = ("bedplate_cuda", index), f"keep {other} or {text}"
                got = f"{text} with {other}"
                yield refused("cuda-twice", host, path, got, "one of them", fix)
                break
        seen.append(text)


def _accelerator(host: SiteHost, catalogue: Catalogue) -> Iterator[Problem]:
    wished = host.wishes.bedplate_accelerator
    if wished is None:
        return
    path = ("bedplate_accelerator", "model")
    known = [
        name for name, fact in catalogue.accelerators.items() if fact.value.vendor == wished.vendor
    ]
    if wished.model not in known:
        yield unknown_accelerator(host, path, wished.model, known)
    if host.wishes.bedplate_gpu:
        fix = "give each kind a pool of its own"
        got = f"{wished.model} with {len(host.wishes.bedplate_gpu)} kinds of GPU"
        yield refused("accelerator-known", host, ("bedplate_gpu",), got, "one maker in a pool", fix)
    keys = (
        "bedplate_cuda",
        "bedplate_frameworks",
        "bedplate_rdma",
        "bedplate_forward_compatibility",
    )
    asked: list[tuple[str, ...]] = [(key,) for key in keys if getattr(host.wishes, key)]
    sharing = host.wishes.bedplate_sharing
    if sharing.mode != "none" or sharing.seats is not None:
        asked.append(("bedplate_sharing", "mode" if sharing.mode != "none" else "seats"))
    for key in asked:
        got = f"set for {wished.vendor} accelerators"
        yield refused("accelerator-known", host, key, got, "nothing", "remove it")


def _gpus(host: SiteHost, catalogue: Catalogue) -> Iterator[Problem]:
    seen: set[str] = set()
    for index, gpu in enumerate(host.wishes.bedplate_gpu):
        path: tuple[str | int, ...] = ("bedplate_gpu", index)
        fact = model_of(host, index, catalogue)
        if fact is not None and fact.value.model in seen:
            fix = "write one entry with the sum"
            got = f"{fact.value.model} again"
            yield refused("gpu-count", host, path, got, "each model once", fix)
        if fact is not None:
            seen.add(fact.value.model)
        elif gpu.model is not None and gpu.model not in catalogue.gpu_models:
            instead = catalogue.instead_of_gpu(gpu.model)
            yield refused("gpu-known", host, (*path, "model"), gpu.model, *instead)
        elif gpu.model is not None:
            board = catalogue.gpu_models[gpu.model].value
            if gpu.pci is not None and gpu.pci not in board.pci:
                yield unknown("gpu-known", host, (*path, "pci"), gpu.pci, board.pci)
            else:
                told = gpu.subsystem or ""
                yield unknown("gpu-known", host, (*path, "subsystem"), told, board.subsystems)
        elif gpu.pci is None:
            fix = "write model: or pci:"
            got = "neither model nor pci"
            yield refused("gpu-known", host, path, got, "one of them", fix)
        else:
            boards = [f.value for f in catalogue.gpu_models.values() if gpu.pci in f.value.pci]
            if boards and gpu.subsystem is None:
                known = sorted(one for board in boards for one in board.subsystems)
                allowed = ", ".join(known)
                got = f"{gpu.pci}, which is {len(boards)} models"
                fix = f"add subsystem: {' or '.join(known)}"
                yield refused("gpu-known", host, (*path, "pci"), got, allowed, fix)
            elif boards:
                known = [one for board in boards for one in board.subsystems]
                where = (*path, "subsystem")
                yield unknown("gpu-known", host, where, gpu.subsystem or "", known)
            else:
                known = [one for f in catalogue.gpu_models.values() for one in f.value.pci]
                yield unknown("gpu-known", host, (*path, "pci"), gpu.pci, known)
    if SLURM in host.groups and len(seen) > 1:
        got, allowed = " and ".join(sorted(seen)), "one model in a node of Slurm"
        fix = f"leave one model in these hosts, or put the pool into {POOLS}, where pods choose one"
        yield refused("slurm-models", host, ("bedplate_gpu",), got, allowed, fix)


def _driver(host: SiteHost, catalogue: Catalogue) -> Iterator[Problem]:
    branch = host.wishes.bedplate_driver.branch
    if branch is not None and branch not in catalogue.driver_branches:
        path = ("bedplate_driver", "branch")
        yield unknown("branch-known", host, path, branch, catalogue.driver_branches)


def _bare(host: SiteHost) -> Iterator[Problem]:
    wishes = host.wishes
    asked = [
        ("bedplate_cuda", wishes.bedplate_cuda),
        ("bedplate_frameworks", wishes.bedplate_frameworks),
        ("bedplate_rdma", wishes.bedplate_rdma),
        ("bedplate_sharing", wishes.bedplate_sharing.mode != "none"),
    ]
    for key, value in asked:
        if value:
            fix = "set it for the pool of the guests"
            got = "set for a hypervisor, which gives its GPUs away"
            yield refused("hypervisor-bare", host, (key,), got, "nothing", fix)


def _pins(hosts: Sequence[SiteHost], catalogue: Catalogue) -> Iterator[Problem]:
    """Refuse versions that nobody knows, and pins that pin nothing for any host they are set for.

    A pin in group_vars/all is set for all hosts, and decides something for some of them.
    """
    idle: dict[tuple[Place, str, str], SiteHost] = {}
    effective: set[tuple[Place, str, str]] = set()
    for host in hosts:
        hypervisor = host.wishes.bedplate_host.kind == "hypervisor"
        pins = () if hypervisor else pin_wishes("", host)
        mine = {str(wish.path[1]) for wish in pins}
        for pinned, version in sorted(host.wishes.bedplate_pins.items()):
            path = ("bedplate_pins", pinned)
            # Places may be unknown, and then alike: two versions are two pins all the same.
            at = (host.places.of(path), pinned, version)
            if pinned not in mine:
                idle.setdefault(at, host)
                continue
            known = set(_versions(pinned, catalogue))
            if version not in known and at not in effective:
                yield unknown("pin-known", host, path, version, known)
            effective.add(at)
    for (_, pinned, _), host in ((at, host) for at, host in idle.items() if at not in effective):
        yield _idle_pin(pinned, host)


def _idle_pin(pinned: str, host: SiteHost) -> Problem:
    path, version = ("bedplate_pins", pinned), host.wishes.bedplate_pins[pinned]
    if asked := _asked(pinned, host):
        allowed = ", ".join(one or "" for one in asked)
        fix = "ask for that version, or remove the pin"
        return refused("pin-known", host, path, version, allowed, fix)
    usual = (*SHARED_PINS, *POOL_PINS)
    if pinned == "cuda_toolkit":
        fix = "ask for a toolkit with bedplate_cuda, or remove the pin"
        return refused("pin-known", host, path, pinned, "a pin of what these hosts get", fix)
    if pinned in usual:
        allowed = "a pin of what these hosts get"
        return refused("pin-known", host, path, pinned, allowed, "remove the pin")
    return unknown("pin-known", host, path, pinned, usual)


def _asked(pinned: str, host: SiteHost) -> list[str | None]:
    """Return the versions that are wished of a pinned CUDA toolkit, framework or add-on."""
    wishes = host.wishes
    if pinned == "cuda_toolkit":
        return list(wishes.bedplate_cuda)
    named = [*frameworks_of(host), *wishes.bedplate_schedulers, *wishes.bedplate_operators]
    split = [split_named(text) for text in named]
    return [version for name, version in split if name.replace("-", "_") == pinned]


def _versions(pinned: str, catalogue: Catalogue) -> Iterator[str]:
    if pinned in POOL_PINS:
        yield from (fact.value.version for fact in catalogue.driver_packages.values())
    for table, field in (
        (catalogue.container_runtimes, "runtime"),
        (catalogue.components, "component"),
        (catalogue.frameworks, "framework"),
        (catalogue.addons, "addon"),
    ):
        for fact in table.values():
            if getattr(fact.value, field).replace("-", "_") == pinned:
                yield fact.value.version
    if pinned == "kubernetes":
        yield from catalogue.kubernetes
    if pinned == "cuda_toolkit":
        yield from catalogue.cuda_toolkits
