"""Wishes that are each well formed and don't go together, whatever the catalogue says."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from bedplate.site.membership import at
from bedplate.site.places import spelt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bedplate.errors import Problem
    from bedplate.site.effective import RawHost
    from bedplate.site.model import Wishes

type Path = tuple[str | int, ...]
#: Ports are 16 bits wide.
PORTS = 2**16 - 1


def problems_of(wishes: Wishes, raw: RawHost) -> list[Problem]:
    """Return what is wrong with the wishes of a host."""
    found = [*_gpus(wishes), *_network(wishes), *_sources(wishes), *_passthrough(wishes)]
    # A single GPU may be written without its list.
    single = isinstance(raw.wishes.get("bedplate_gpu"), dict)
    problems = []
    for path, what, got, allowed, fix in found:
        if single and path[0] == "bedplate_gpu":
            path = (path[0], *path[2:])
        problems.append(at(raw.places.of(path), what, spelt(path), got, allowed, fix, "wish-form"))
    return problems


def _gpus(wishes: Wishes) -> Iterator[tuple[Path, str, str, str, str]]:
    for index, gpu in enumerate(wishes.bedplate_gpu):
        path: Path = ("bedplate_gpu", index)
        if gpu.model and gpu.pci:
            got, fix = f"model {gpu.model} and pci {gpu.pci}", "leave one out"
            yield (*path, "pci"), "GPU is named twice", got, "model or pci", fix
        elif not gpu.model and not gpu.pci:
            yield path, "GPU has no name", "neither model nor pci", "model or pci", "add model"
        if gpu.subsystem and not gpu.pci:
            got, fix = f"subsystem {gpu.subsystem} alone", "add pci, or leave subsystem out"
            yield (*path, "subsystem"), "GPU has no pci", got, "subsystem with pci", fix


def _network(wishes: Wishes) -> Iterator[tuple[Path, str, str, str, str]]:
    kubernetes = wishes.bedplate_kubernetes
    port = int(kubernetes.endpoint.rpartition(":")[2])
    if not 0 < port <= PORTS:
        path: Path = ("bedplate_kubernetes", "endpoint")
        yield path, "no port", kubernetes.endpoint, f"a port from 1 to {PORTS}", "correct it"
    subnets = {}
    for key in ("pod_subnet", "service_subnet"):
        path = ("bedplate_kubernetes", key)
        text = getattr(kubernetes, key)
        try:
            subnets[key] = ipaddress.ip_network(text)
        except ValueError as error:
            yield path, "no subnet", text, "a subnet like 10.244.0.0/16", f"correct it: {error}"
    if len(subnets) == 2:
        pods, services = subnets.values()
        if pods.version == services.version and pods.overlaps(services):
            path = ("bedplate_kubernetes", "service_subnet")
            what, got = "subnets overlap", f"{services}, and pod_subnet {pods}"
            yield path, what, got, "subnets apart from each other", "move one of them"


def _sources(wishes: Wishes) -> Iterator[tuple[Path, str, str, str, str]]:
    sources = wishes.bedplate_sources
    path: Path = ("bedplate_sources",)
    if sources.mode == "mirror" and not sources.url:
        fix = "add url, or write mode: upstream"
        yield path, "mirror has no address", "mode mirror", "mode with url", fix
    if sources.mode == "upstream" and sources.url:
        path = ("bedplate_sources", "url")
        fix = "write mode: mirror, or leave url out"
        yield path, "address without a mirror", sources.url, "url with mode mirror", fix


def _passthrough(wishes: Wishes) -> Iterator[tuple[Path, str, str, str, str]]:
    given, kind = wishes.bedplate_passthrough, wishes.bedplate_host.kind
    path: Path = ("bedplate_passthrough",)
    if given is None:
        return
    if kind != "hypervisor":
        fix = "leave it out, or set it for the hypervisors alone"
        yield path, "passthrough is a hypervisor's", f"kind {kind}", "kind hypervisor", fix
    for index, device in enumerate(given.devices):
        inner: Path = (*path, "devices", index)
        if device in given.devices[:index]:
            yield inner, "device is there twice", device, "each device once", "remove one"
        elif not any(device in group for group in given.iommu_groups):
            fix = "list its group: find /sys/kernel/iommu_groups -type l"
            yield inner, "device is in no IOMMU group", device, "a device of iommu_groups", fix
