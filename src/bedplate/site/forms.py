"""Wishes that are each well formed and don't go together, whatever the catalogue says."""

from __future__ import annotations

import ipaddress
from contextlib import suppress
from typing import TYPE_CHECKING

from bedplate.site import marks
from bedplate.site.membership import at
from bedplate.site.places import spelt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bedplate.common.errors import Problem
    from bedplate.site.courses import Volume
    from bedplate.site.effective import RawHost
    from bedplate.site.model import Wishes

type Path = tuple[str | int, ...]
#: Ports are 16 bits wide.
PORTS = 2**16 - 1


def problems_of(wishes: Wishes, raw: RawHost) -> list[Problem]:
    """Return what is wrong with the wishes of a host."""
    found = [*_gpus(wishes), *_network(wishes), *_given(wishes), *_guests(wishes)]
    found += [*_hours(wishes), *_hub(wishes), *_storage(wishes)]
    found += _node_ip(wishes)
    found += marks.problems(wishes.bedplate_labels, wishes.bedplate_taints)
    # A single GPU may be written without its list.
    single = isinstance(raw.wishes.get("bedplate_gpu"), dict)
    problems = []
    for path, what, got, allowed, fix in found:
        if single and path[0] == "bedplate_gpu":
            path = (path[0], *path[2:])
        problems.append(
            at(raw.places.of(path), what, spelt(path), got, allowed, fix, "setting-form")
        )
    return problems


def _gpus(wishes: Wishes) -> Iterator[tuple[Path, str, str, str, str]]:
    for index, gpu in enumerate(wishes.bedplate_gpu):
        if gpu.subsystem and not gpu.pci:
            path: Path = ("bedplate_gpu", index, "subsystem")
            got, fix = f"subsystem {gpu.subsystem} alone", "add pci, or leave subsystem out"
            yield path, "GPU has no pci", got, "subsystem with pci", fix


def _node_ip(wishes: Wishes) -> Iterator[tuple[Path, str, str, str, str]]:
    text = wishes.bedplate_node_ip
    with suppress(ValueError):
        if text is None or str(ipaddress.ip_address(text)) == text:
            return
    allowed, fix = "an IP address in its usual form, like 192.0.2.11", "correct it"
    yield ("bedplate_node_ip",), "no address of a node", str(text), allowed, fix


def _network(wishes: Wishes) -> Iterator[tuple[Path, str, str, str, str]]:
    kubernetes = wishes.bedplate_kubernetes
    if kubernetes is None:
        return
    name, _, port = kubernetes.endpoint.rpartition(":")
    path: Path = ("bedplate_kubernetes", "endpoint")
    if not 0 < int(port) <= PORTS:
        yield path, "no port", kubernetes.endpoint, f"a port from 1 to {PORTS}", "correct it"
    elif port.startswith("0"):
        allowed, fix = "a port without zeros before it", f"write {name}:{int(port)}"
        yield path, "no port", kubernetes.endpoint, allowed, fix
    subnets = {}
    for key in ("pod_subnet", "service_subnet"):
        path = ("bedplate_kubernetes", key)
        text = getattr(kubernetes, key)
        try:
            subnets[key] = ipaddress.ip_network(text)
        except ValueError as error:
            fix = f"correct it: {error}"
            with suppress(ValueError):
                fix = f"write {ipaddress.ip_network(text, strict=False)}"
            yield path, "no subnet", text, "a subnet like 10.244.0.0/16", fix
    pod_network = subnets.get("pod_subnet")
    if pod_network is not None and pod_network.version != 4 and kubernetes.cni == "flannel":
        path, allowed = ("bedplate_kubernetes", "pod_subnet"), "an IPv4 subnet like 10.244.0.0/16"
        fix = "choose an IPv4 subnet: flannel is configured for IPv4 alone"
        yield path, "flannel has no IPv6 pod network", str(pod_network), allowed, fix
    if kubernetes.mtu is not None and kubernetes.cni != "flannel":
        path, got = ("bedplate_kubernetes", "mtu"), f"mtu with cni: {kubernetes.cni}"
        yield path, "MTU is set for flannel alone", got, "mtu with cni: flannel", "remove mtu"
    if len(subnets) == 2:
        pods, services = subnets.values()
        if pods.version == services.version and pods.overlaps(services):
            path = ("bedplate_kubernetes", "service_subnet")
            what, got = "subnets overlap", f"{services}, and pod_subnet {pods}"
            yield path, what, got, "subnets apart from each other", "move one of them"


def _given(wishes: Wishes) -> Iterator[tuple[Path, str, str, str, str]]:
    given, shared = wishes.bedplate_passthrough, wishes.bedplate_vgpu
    devices, cards = given.devices if given else [], shared.cards if shared else []
    for index, device in enumerate(devices):
        if device in devices[:index]:
            path: Path = ("bedplate_passthrough", "devices", index)
            yield path, "device is there twice", device, "each device once", "remove one"
    for index, card in enumerate(cards):
        path = ("bedplate_vgpu", "cards", index)
        if card in cards[:index]:
            yield path, "GPU is there twice", card, "each GPU once", "remove one"
        if card in devices:
            fix = "leave it to one of them"
            allowed = "a GPU that no guest is given whole"
            yield path, "GPU is shared and given away", card, allowed, fix


def _guests(wishes: Wishes) -> Iterator[tuple[Path, str, str, str, str]]:
    for name, guest in sorted(wishes.bedplate_guests.items()):
        if bool(guest.devices) == bool(guest.vgpu):
            got = "both" if guest.devices else "neither"
            path: Path = ("bedplate_guests", name)
            fix = "write one of them"
            yield path, "guest needs devices or vgpu", got, "devices, or vgpu profiles", fix


def _hours(wishes: Wishes) -> Iterator[tuple[Path, str, str, str, str]]:
    for index, course in enumerate(wishes.bedplate_courses):
        for place, text in enumerate(course.hours):
            begin, _, end = text.partition(" ")[2].partition("-")
            # Both have two digits an hour, and are in order as text.
            if end > begin:
                continue
            path: Path = ("bedplate_courses", index, "hours", place)
            day, fix = text[:3], f"write {text[:3]} {end}-{begin}, or correct it"
            if end == begin:
                fix = "correct it"
            elif end != "00:00":
                fix += (
                    f"; over midnight it is two: {day} {begin}-24:00 and the next day 00:00-{end}"
                )
            else:
                fix = f"write {day} {begin}-24:00"
            allowed = "an end after the beginning, on the same day"
            yield path, "hours end before they begin", text, allowed, fix


def _hub(wishes: Wishes) -> Iterator[tuple[Path, str, str, str, str]]:
    hub = wishes.bedplate_hub
    if hub is None:
        return
    for way in ("oauth", "lti"):
        path: Path = ("bedplate_hub", way)
        if hub.sign_in == way and getattr(hub, way) is None:
            fix = f"add {way}:, or write sign_in: native"
            yield path[:1], f"sign-in by {way} has no settings", "nothing", f"{way}: {{…}}", fix
        elif hub.sign_in != way and getattr(hub, way) is not None:
            got, fix = f"{way} with sign_in: {hub.sign_in}", f"write sign_in: {way}, or remove it"
            yield path, "settings of another sign-in", got, f"{way} with sign_in: {way}", fix


#: Where data may lie; homes are written to, which a web server is not. Their path has two parts.
PLACES, HOMES = ("path", "nfs", "url"), 2


def _storage(wishes: Wishes) -> Iterator[tuple[Path, str, str, str, str]]:
    storage = wishes.bedplate_storage
    if storage is None:
        return
    volumes: dict[Path, Volume] = {}
    if storage.homes is not None:
        volumes["bedplate_storage", "homes"] = storage.homes
    for name, volume in sorted(storage.datasets.items()):
        volumes["bedplate_storage", "datasets", name] = volume
    for path, volume in volumes.items():
        allowed = ("path", "nfs") if path[-1] == "homes" and len(path) == HOMES else PLACES
        places = [name for name in PLACES if getattr(volume, name) is not None]
        if len(places) != 1 or places[0] not in allowed:
            got = " and ".join(places) or "nowhere"
            yield path, "data lies in one place", got, ", or ".join(allowed), "write one of them"
