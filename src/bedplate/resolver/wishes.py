"""What a site sets, one by one: each with its place, what it leaves to choose, and its weight.

The weight says how hard a wish is to change for its user: boards are bought, a version is a word.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING

from bedplate.resolver import node_needs
from bedplate.resolver.sharing_words import asks_limits
from bedplate.resolver.terms import Name, function
from bedplate.site.courses import listed
from bedplate.site.presets.model import load_presets

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bedplate.catalogue import Catalogue
    from bedplate.catalogue.facts import Fact
    from bedplate.catalogue.hardware_facts import GpuModel
    from bedplate.site import SiteHost
    from bedplate.site.places import KeyPath

CLUSTER = "cluster"
#: The device plugin starts the MPS control daemon, HAMi is a scheduler of Kubernetes, and claims
#: are its objects; nothing else has any of them. `time-slicing` is Slurm's resource `shard` there.
IN_KUBERNETES_ONLY = ("mps", "hami", "dra")
VERSION_OF_NAMED = re.compile(r"-(?P<version>[0-9]+(\.[0-9]+)*)$")
#: Heavier wishes are changed last.
WEIGHTS = {
    "gpu": 100,
    "kind": 95,
    "os": 90,
    "secure_boot": 70,
    "kernel": 60,
    "runtime": 50,
    "cni": 45,
    "kubernetes": 40,
    "sharing": 35,
    "rdma": 30,
    "addon": 28,
    "framework": 26,
    "cuda": 24,
    "profile": 22,
    "replicas": 20,
    "isolation": 19,
    "seats": 18,
    "source": 16,
    "flavour": 14,
    "branch": 12,
    "pin": 10,
    "setting": 8,
}


@dataclass(frozen=True)
class Wish:
    """One wish of a subject.

    Attributes:
        host: whose wish it is; it knows the place.
        subject: a pool, a group of hosts without GPUs, or `cluster`.
        path: where it is written.
        label: what is written.
        kind: what it is about: a key of `WEIGHTS`.
        component: the decision that it restricts or asks for, as the program spells it; None for
            wishes that are no choice.
        asks: the component is decided only because of this wish.
        model: the board of a wish for GPUs.
        number: how many, where the wish is a number.
        gpus: compute capabilities for which a framework's build has code, beside the pool's own.
    """

    host: SiteHost = field(compare=False, repr=False)
    subject: str
    path: KeyPath
    label: str
    kind: str
    component: Name | None = None
    asks: bool = False
    model: Fact[GpuModel] | None = field(default=None, compare=False)
    number: int = 0
    gpus: frozenset[str] = frozenset()

    @property
    def weight(self) -> int:
        """Return how hard it is to change."""
        return WEIGHTS[self.kind]


@dataclass(frozen=True)
class Subject:
    """What is decided together: the shared components, a pool, or hosts without GPUs."""

    name: str
    hosts: int
    host: SiteHost
    wishes: tuple[Wish, ...]


def split_named(text: str) -> tuple[str, str | None]:
    """Return the name and the version of `pytorch-2.8`; the version may be left out."""
    found = VERSION_OF_NAMED.search(text)
    return (text[: found.start()], found["version"]) if found else (text, None)


def begins(version: str, wanted: str | None) -> bool:
    """Tell whether a version is the wanted one, or one of the wanted series."""
    return wanted is None or version == wanted or version.startswith(f"{wanted}.")


def model_of(host: SiteHost, index: int, catalogue: Catalogue) -> Fact[GpuModel] | None:
    """Return the board that a wish for GPUs means, None if it is unknown or not one board.

    The pair of device and subsystem counts first; a device id alone is a board only where no other
    one shares it.
    """
    wished = host.wishes.bedplate_gpu[index]
    if wished.model is not None:
        fact = catalogue.gpu_models.get(wished.model)
        if fact is None or (wished.pci is not None and wished.pci not in fact.value.pci):
            return None
        narrowed = wished.subsystem is not None and bool(fact.value.subsystems)
        return None if narrowed and wished.subsystem not in fact.value.subsystems else fact
    boards = [fact for fact in catalogue.gpu_models.values() if wished.pci in fact.value.pci]
    exact = [fact for fact in boards if wished.subsystem in fact.value.subsystems]
    plain = [fact for fact in boards if not fact.value.subsystems]
    found = exact or plain or (boards if wished.subsystem is None else [])
    return found[0] if len(found) == 1 else None


def shares_of(host: SiteHost) -> int | None:
    """Return the shares of a card: the replicas that are wished, or as many parts as fit in it."""
    sharing = host.wishes.bedplate_sharing
    if sharing.replicas is not None:
        return sharing.replicas
    if isinstance(sharing.share, float):
        return int(Decimal(1) / Decimal(str(float(sharing.share))))
    return None


def cluster_wishes(host: SiteHost, catalogue: Catalogue) -> Iterator[Wish]:
    """Yield what is wished of the shared components, as any one host says it."""
    wishes = host.wishes
    if (kubernetes := wishes.bedplate_kubernetes) is not None:
        path = ("bedplate_kubernetes", "version")
        if kubernetes.version is not None:
            yield Wish(host, CLUSTER, path, kubernetes.version, "kubernetes", Name("kubernetes"))
        path = ("bedplate_kubernetes", "cni")
        yield Wish(host, CLUSTER, path, kubernetes.cni, "cni", Name("cni"))
        for place, label in node_needs.settings(host, catalogue).items():
            yield Wish(host, CLUSTER, place, label, "setting")
    runtime = wishes.bedplate_container_runtime
    path = ("bedplate_container_runtime", "name")
    yield Wish(host, CLUSTER, path, runtime.name, "runtime", Name("runtime"))
    if runtime.source is not None:
        path = ("bedplate_container_runtime", "source")
        yield Wish(host, CLUSTER, path, runtime.source, "runtime", Name("runtime"))
    for key in ("bedplate_schedulers", "bedplate_operators"):
        for index, text in enumerate(getattr(wishes, key)):
            yield addon_wish(host, (key, index), text)
    for name in sorted(schedulers(host) - named(host)):
        yield addon_wish(host, ("bedplate_preset",), name)


def named(host: SiteHost) -> set[str]:
    """Return the schedulers that a site names itself."""
    return {split_named(text)[0] for text in host.wishes.bedplate_schedulers}


def schedulers(host: SiteHost) -> set[str]:
    """Return the names of the schedulers that a site gets: its own, and its preset's."""
    chosen = host.wishes.bedplate_preset
    return named(host) | set(load_presets()[chosen.name].schedulers if chosen else ())


def addon_wish(host: SiteHost, path: KeyPath, text: str) -> Wish:
    """Return a wish for an add-on."""
    component = function("addon", split_named(text)[0])
    return Wish(host, CLUSTER, path, text, "addon", component, asks=True)


#: The component that owns the GPUs of pools of mode dra, and is there for them alone.
DRA_DRIVER = "nvidia_dra_driver"
#: Pins of what is decided per pool; all others are of shared components.
POOL_PINS = {
    "nvidia_driver": Name("driver"),
    "nvidia_fabric": Name("driver"),
}
SHARED_PINS = {
    "kubernetes": Name("kubernetes"),
    "containerd": Name("runtime"),
    "cri_o": Name("runtime"),
    "docker": Name("runtime"),
    "podman": Name("runtime"),
    "flannel": Name("cni"),
    "cilium": Name("cni"),
    "cni_plugins": Name("cni_plugins"),
    "cri_tools": Name("cri_tools"),
    "nvidia_container_toolkit": Name("nvidia_container_toolkit"),
    "nvidia_device_plugin": Name("nvidia_device_plugin"),
}


def frameworks_of(host: SiteHost) -> dict[str, KeyPath]:
    """Return the frameworks of a host's pool, its own and those of courses, with their places."""
    wishes = host.wishes
    found: dict[str, KeyPath] = {}
    for index, text in enumerate(wishes.bedplate_frameworks):
        found.setdefault(text, ("bedplate_frameworks", index))
    for one in listed(wishes.bedplate_courses):
        course = one.course
        for place, text in enumerate(course.frameworks if host.pool in course.pool else ()):
            if text not in wishes.bedplate_images:
                found.setdefault(text, one.at("frameworks", place))
    return found


def pin_wishes(subject: str, host: SiteHost) -> Iterator[Wish]:
    """Yield the pins of a host that pin something; the others are refused elsewhere."""
    wishes = host.wishes
    frameworks = {split_named(text)[0] for text in frameworks_of(host)}
    addons = schedulers(host) | {split_named(text)[0] for text in wishes.bedplate_operators}
    for pinned, version in sorted(wishes.bedplate_pins.items()):
        path = ("bedplate_pins", pinned)
        if pinned == DRA_DRIVER and wishes.bedplate_sharing.mode == "dra":
            yield Wish(host, CLUSTER, path, version, "pin", Name(DRA_DRIVER))
        if pinned in SHARED_PINS:
            yield Wish(host, CLUSTER, path, version, "pin", SHARED_PINS[pinned])
        elif pinned.replace("_", "-") in addons:
            component = function("addon", pinned.replace("_", "-"))
            yield Wish(host, CLUSTER, path, version, "pin", component)
        elif pinned in POOL_PINS and host.pool is not None and wishes.bedplate_gpu:
            yield Wish(host, subject, path, version, "pin", POOL_PINS[pinned])
        elif (name := pinned.replace("_", "-")) in frameworks:
            for text in frameworks_of(host):
                framework, wanted = split_named(text)
                if framework == name and begins(version, wanted):
                    yield Wish(host, subject, path, version, "pin", function("framework", text))
        elif pinned == "cuda_toolkit":
            for wanted in wishes.bedplate_cuda:
                if begins(version, wanted):
                    yield Wish(host, subject, path, version, "pin", function("cuda", wanted))


def host_wishes(subject: str, host: SiteHost) -> Iterator[Wish]:
    """Yield what is wished of the system of some hosts that wish the same."""
    wished = host.wishes.bedplate_host
    yield Wish(host, subject, ("bedplate_host", "os"), wished.os, "os", Name("os"))
    yield Wish(host, subject, ("bedplate_host", "kind"), wished.kind, "kind", Name("kind"))
    if wished.kernel is not None:
        yield Wish(
            host, subject, ("bedplate_host", "kernel"), wished.kernel, "kernel", Name("kernel")
        )


def names_driver(wishes: Sequence[Wish]) -> bool:
    """Tell whether a pool's wishes name its driver: by its version, or by branch and source."""
    kinds = {wish.kind for wish in wishes if wish.component == Name("driver")}
    return "pin" in kinds or {"branch", "source"} <= kinds


def pool_wishes(subject: str, hosts: Sequence[SiteHost], catalogue: Catalogue) -> Iterator[Wish]:
    """Yield what is wished of a pool, boards first."""
    host = hosts[0]
    wishes = host.wishes
    for index, gpu in enumerate(wishes.bedplate_gpu):
        fact = model_of(host, index, catalogue)
        if fact is not None:
            path: KeyPath = ("bedplate_gpu", index, "model" if gpu.model is not None else "pci")
            label = gpu.model or gpu.pci or ""
            yield Wish(host, subject, path, label, "gpu", model=fact, number=gpu.count)
    yield from host_wishes(subject, host)
    if wishes.bedplate_host.kind == "hypervisor":
        return
    if wishes.bedplate_host.secure_boot:
        yield Wish(host, subject, ("bedplate_host", "secure_boot"), "true", "secure_boot")
    driver = wishes.bedplate_driver
    if wishes.bedplate_gpu:
        for key in ("branch", "flavour", "source"):
            if (value := getattr(driver, key)) is not None:
                yield Wish(host, subject, ("bedplate_driver", key), value, key, Name("driver"))
    for index, text in enumerate(wishes.bedplate_cuda):
        yield Wish(
            host, subject, ("bedplate_cuda", index), text, "cuda", function("cuda", text), asks=True
        )
    sharing = wishes.bedplate_sharing
    yield Wish(
        host, subject, ("bedplate_sharing", "mode"), sharing.mode, "sharing", Name("sharing")
    )
    if (count := shares_of(host)) is not None:
        key, label = (
            ("replicas", str(count))
            if sharing.replicas is not None
            else ("share", str(sharing.share))
        )
        path = ("bedplate_sharing", key)
        yield Wish(host, subject, path, label, "replicas", Name("replicas"), number=count)
    if sharing.profile is not None:
        path = ("bedplate_sharing", "profile")
        yield Wish(host, subject, path, sharing.profile, "profile", Name("profile"))
    if asks_limits(sharing) or (sharing.mode == "mps" and sharing.isolation is not None):
        path = ("bedplate_sharing", "isolation")
        yield Wish(host, subject, path, str(sharing.isolation), "isolation")
    if sharing.seats is not None:
        path = ("bedplate_sharing", "seats")
        yield Wish(host, subject, path, str(sharing.seats), "seats", number=sharing.seats)
    if wishes.bedplate_rdma is not None:
        path = ("bedplate_rdma", "stack")
        yield Wish(host, subject, path, wishes.bedplate_rdma.stack, "rdma", Name("rdma"), asks=True)
        if wishes.bedplate_rdma.operator is not None:
            yield addon_wish(host, ("bedplate_rdma", "operator"), wishes.bedplate_rdma.operator)
    for text, path in frameworks_of(host).items():
        component = function("framework", text)
        yield Wish(host, subject, path, text, "framework", component, asks=True)
    yield from pin_wishes(subject, host)
