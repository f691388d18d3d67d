"""What is allowed. Pure functions from wishes and facts to refusals; their words are elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bedplate.resolver.explanations import refused, unknown
from bedplate.site.load import CONTROL_PLANE, HYPERVISORS, SLURM

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bedplate.catalogue import Catalogue
    from bedplate.catalogue.facts import Architecture, DriverPackages, Fact, GpuModel
    from bedplate.errors import Problem
    from bedplate.site import Site, SiteHost

type Gpus = tuple[Fact[GpuModel], ...]


def version_key(version: str) -> tuple[int, ...]:
    """Return what orders versions of digits and dots."""
    return tuple(int(part) for part in version.split("."))


def undecided(host: SiteHost) -> Iterator[Problem]:
    """Refuse wishes that are known but not decided yet, rather than ignoring them."""
    wishes = host.wishes
    found: list[tuple[tuple[str, ...], str, str]] = []
    if wishes.bedplate_sharing.mode != "none":
        found.append((("bedplate_sharing", "mode"), wishes.bedplate_sharing.mode, "none"))
    found += [
        (("bedplate_sharing", name), str(value), "nothing")
        for name in ("replicas", "profile")
        if (value := getattr(wishes.bedplate_sharing, name)) is not None
    ]
    if wishes.bedplate_host.kind != "bare-metal":
        found.append((("bedplate_host", "kind"), wishes.bedplate_host.kind, "bare-metal"))
    if wishes.bedplate_host.kernel is not None:
        found.append((("bedplate_host", "kernel"), wishes.bedplate_host.kernel, "nothing"))
    if wishes.bedplate_driver.source != "distro":
        found.append((("bedplate_driver", "source"), wishes.bedplate_driver.source, "distro"))
    if wishes.bedplate_kubernetes.cni != "flannel":
        found.append((("bedplate_kubernetes", "cni"), wishes.bedplate_kubernetes.cni, "flannel"))
    if wishes.bedplate_rdma is not None:
        found.append((("bedplate_rdma",), wishes.bedplate_rdma.stack, "nothing"))
    found += [
        ((key,), ", ".join(values), "nothing")
        for key in ("bedplate_cuda", "bedplate_schedulers", "bedplate_frameworks")
        if (values := getattr(wishes, key))
    ]
    found += [
        (("bedplate_pins", name), version, "nvidia_driver")
        for name, version in sorted(wishes.bedplate_pins.items())
        if name != "nvidia_driver"
    ]
    for path, got, allowed in found:
        fix = "leave it out" if allowed == "nothing" else f"write {allowed}, or leave it out"
        if path[0] == "bedplate_pins":
            fix = "remove the pin"
        yield refused("undecided", host, path, got, allowed, fix)


def shared(site: Site, catalogue: Catalogue) -> Iterator[Problem]:
    """Check what all hosts share."""
    hosts = [host for _, host in sorted(site.hosts.items())]
    host = hosts[0]
    wished = host.wishes.bedplate_kubernetes
    if not releases(wished.version, catalogue):
        path = ("bedplate_kubernetes", "version")
        known = {minor(v) for v in catalogue.kubernetes} | set(catalogue.kubernetes)
        yield unknown("kubernetes-known", host, path, wished.version, known)
    sources = host.wishes.bedplate_sources
    if sources.mode == "mirror" and sources.url is None:
        fix = "add url, or write mode: upstream"
        yield refused(
            "mirror-url", host, ("bedplate_sources",), "mode mirror", "mode with url", fix
        )
    if sources.mode == "upstream" and sources.url is not None:
        fix = "write mode: mirror, or remove url"
        path = ("bedplate_sources", "url")
        yield refused("upstream-url", host, path, sources.url, "url with mode mirror", fix)
    for group in (HYPERVISORS, SLURM):
        for member in hosts:
            if group in member.groups:
                got = f"{member.name} in group {group}"
                fix = f"remove it from {group}"
                yield refused("undecided", member, ("ansible_host",), got, "no hosts in it", fix)
    yield from _control_plane(site, host)


def _control_plane(site: Site, host: SiteHost) -> Iterator[Problem]:
    members = [h for _, h in sorted(site.hosts.items()) if CONTROL_PLANE in h.groups]
    path = ("bedplate_kubernetes", "endpoint")
    if not members and CONTROL_PLANE not in site.groups:
        allowed = "an odd number of hosts, or an empty group where the cluster is made elsewhere"
        fix = f"put hosts into the group {CONTROL_PLANE}"
        yield refused("control-plane", host, path, f"no group {CONTROL_PLANE}", allowed, fix)
    elif members and len(members) % 2 == 0:
        got, allowed = f"{len(members)} hosts in {CONTROL_PLANE}", "an odd number"
        fix = f"leave {members[-1].name} out of {CONTROL_PLANE}, or add one host"
        yield refused("control-plane", members[-1], ("ansible_host",), got, allowed, fix)
    endpoint = host.wishes.bedplate_kubernetes.endpoint.rsplit(":", 1)[0].strip("[]")
    for _, other in sorted(site.hosts.items()):
        if endpoint in {other.address, other.name} and members and other not in members:
            allowed = "a control plane host, or a name that reaches all of them"
            fix = f"write {members[0].address} or a load balancer's name"
            yield refused("endpoint-is-host", host, path, f"{endpoint}, {other.name}", allowed, fix)


def minor(version: str) -> str:
    """Return 1.36 for 1.36.3."""
    return ".".join(version.split(".")[:2])


def releases(wished: str, catalogue: Catalogue) -> list[str]:
    """Return the known Kubernetes releases that satisfy a wish, newest first."""
    found = [v for v in catalogue.kubernetes if wished in {v, minor(v)}]
    return sorted(found, key=version_key, reverse=True)


def system(host: SiteHost, catalogue: Catalogue) -> Iterator[Problem]:
    """Check that the operating system is known."""
    if (name := host.wishes.bedplate_host.os) not in catalogue.systems:
        path = ("bedplate_host", "os")
        yield unknown("system-known", host, path, name, catalogue.systems)


def gpus_of(host: SiteHost, catalogue: Catalogue) -> tuple[Gpus, list[Problem]]:
    """Return the facts of the pool's GPUs, or why there are none."""
    wished = host.wishes.bedplate_gpu
    if not wished:
        example = "{model: h100-pcie-80gb, count: 8}"
        fix = f"set bedplate_gpu: {example} in group_vars/{host.pool}.yml"
        allowed = "at least one GPU"
        return (), [refused("gpu-count", host, ("bedplate_gpu",), "none", allowed, fix)]
    facts: list[Fact[GpuModel]] = []
    problems: list[Problem] = []
    for index, gpu in enumerate(wished):
        path = ("bedplate_gpu", index)
        by_pci = [f for f in catalogue.gpus.values() if gpu.pci and gpu.pci in f.value.pci]
        if gpu.subsystem is not None:
            fix = "leave it out"
            got = gpu.subsystem
            problems.append(refused("undecided", host, (*path, "subsystem"), got, "nothing", fix))
        elif gpu.model is not None and gpu.model not in catalogue.gpus:
            names = catalogue.gpus
            problems.append(unknown("gpu-known", host, (*path, "model"), gpu.model, names))
        elif gpu.model is None and not by_pci:
            known = [pci for f in catalogue.gpus.values() for pci in f.value.pci]
            got = gpu.pci or "neither model nor pci"
            problems.append(unknown("gpu-known", host, (*path, "pci"), got, known))
        else:
            fact = by_pci[0] if gpu.model is None else catalogue.gpus[gpu.model]
            if gpu.pci is not None and gpu.pci not in fact.value.pci:
                known = fact.value.pci
                problems.append(unknown("gpu-known", host, (*path, "pci"), gpu.pci, known))
            facts.append(fact)
            least = fact.value.nvswitch_from
            if least is not None and gpu.count >= least:
                got = f"{gpu.count}, which NVSwitch joins: the host needs Fabric Manager"
                fix = "wait for the version that decides nvidia_fabric"
                allowed = f"fewer than {least}"
                where = (*path, "count")
                problems.append(refused("undecided", host, where, got, allowed, fix))
    if len({fact.value.model for fact in facts}) > 1:
        got = ", ".join(fact.value.model for fact in facts)
        fix = "give each model a pool of its own"
        problems.append(refused("undecided", host, ("bedplate_gpu",), got, "one model", fix))
    return tuple(facts), problems


def architectures_of(gpus: Gpus, catalogue: Catalogue) -> list[Fact[Architecture]]:
    """Return the facts about the architectures of some GPUs."""
    return [catalogue.architectures[gpu.value.architecture] for gpu in gpus]


def drives(branch: str, architecture: Architecture) -> bool:
    """Tell whether a driver branch drives an architecture."""
    last = architecture.last_branch
    return int(architecture.first_branch) <= int(branch) and (
        last is None or int(branch) <= int(last)
    )


def driver_wish(host: SiteHost, gpus: Gpus, catalogue: Catalogue) -> Iterator[Problem]:
    """Check what is asked of the driver against the GPUs, package or not."""
    wished = host.wishes.bedplate_driver
    pin = host.wishes.bedplate_pins.get("nvidia_driver")
    path: tuple[str, str] = ("bedplate_driver", "branch")
    branch = wished.branch
    if branch is None and pin is not None:
        path, branch = ("bedplate_pins", "nvidia_driver"), pin.split(".")[0]
    if branch is not None and branch not in catalogue.branches:
        yield unknown("branch-known", host, path, branch, catalogue.branches)
        return
    for gpu, fact in zip(gpus, architectures_of(gpus, catalogue), strict=True):
        known = fact.value
        if branch is not None and not drives(branch, known):
            span = (
                f"{known.first_branch} or newer"
                if known.last_branch is None
                else (f"{known.first_branch} to {known.last_branch}")
            )
            fix = f"write {known.last_branch or known.first_branch}, or a policy"
            got = f"{branch} for {gpu.value.model} ({known.architecture})"
            yield refused("branch-drives-gpu", host, path, got, span, fix, [fact.source.url])
        if wished.flavour is not None and wished.flavour not in known.flavours:
            got = f"{wished.flavour} for {gpu.value.model} ({known.architecture})"
            allowed = ", ".join(known.flavours)
            where = ("bedplate_driver", "flavour")
            fix = f"write {known.flavours[0]}"
            yield refused("flavour-drives-gpu", host, where, got, allowed, fix, [fact.source.url])


def drivers_for(
    host: SiteHost, gpus: Gpus, catalogue: Catalogue
) -> tuple[list[Fact[DriverPackages]], list[Problem]]:
    """Return the packaged drivers that satisfy all wishes of a pool, or why there are none."""
    wishes, wished = host.wishes, host.wishes.bedplate_driver
    architectures = [fact.value for fact in architectures_of(gpus, catalogue)]
    fitting = [
        fact
        for fact in catalogue.drivers
        if fact.value.os == wishes.bedplate_host.os
        and fact.value.source == wished.source
        and all(drives(fact.value.branch, a) for a in architectures)
        and all(fact.value.flavour in a.flavours for a in architectures)
    ]
    path: tuple[str, ...] = ("bedplate_driver",)
    if not fitting:
        packaged = sorted({fact.value.os for fact in catalogue.drivers})
        got = f"{wishes.bedplate_host.os} with source {wished.source}"
        fix = f"write os: {packaged[0]}"
        where = ("bedplate_host", "os")
        return [], [refused("driver-packaged", host, where, got, ", ".join(packaged), fix)]
    narrowed = [f for f in fitting if wished.flavour in {None, f.value.flavour}]
    if not narrowed:
        offered = ", ".join(sorted({f.value.flavour for f in fitting}))
        path = ("bedplate_driver", "flavour")
        fix = f"write {offered}"
        return [], [refused("driver-packaged", host, path, str(wished.flavour), offered, fix)]
    fitting = narrowed
    if (pin := wishes.bedplate_pins.get("nvidia_driver")) is not None:
        narrowed = [f for f in fitting if f.value.version == pin]
        if not narrowed:
            path, known = ("bedplate_pins", "nvidia_driver"), {f.value.version for f in fitting}
            return [], [unknown("pin-known", host, path, pin, known)]
        fitting = narrowed
    offered = ", ".join(sorted({f.value.branch for f in fitting}))
    if wished.branch is not None:
        narrowed = [f for f in fitting if f.value.branch == wished.branch]
        path, got, rule = ("bedplate_driver", "branch"), wished.branch, "driver-packaged"
        fix = f"write {offered}"
    else:
        types = {f.value.branch: catalogue.branches[f.value.branch].value.type for f in fitting}
        narrowed = [f for f in fitting if types[f.value.branch] == wished.policy or pin is not None]
        path, got, rule = ("bedplate_driver", "policy"), wished.policy, "policy-packaged"
        offered = ", ".join(f"{kind} ({branch})" for branch, kind in sorted(types.items()))
        fix = f"write {min(types.values())}"
    if not narrowed:
        got = f"{got} on {wishes.bedplate_host.os} with source {wished.source}"
        return [], [refused(rule, host, path, got, offered, fix)]
    return narrowed, []
