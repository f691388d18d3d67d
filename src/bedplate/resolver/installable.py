"""What a plan decides and no role or stack of this version carries out, at the setting's place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bedplate.errors import Problem, in_order
from bedplate.resolver.wishes import named, schedulers
from bedplate.site.places import spelt

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bedplate.catalogue import Catalogue
    from bedplate.lock import Lock
    from bedplate.lock.model import Pool
    from bedplate.site import Site, SiteHost
    from bedplate.site.places import KeyPath

#: The setting that a dimension of the facts `installable` is decided by.
SETTINGS: dict[str, KeyPath] = {
    "os": ("bedplate_host", "os"),
    "kind": ("bedplate_host", "kind"),
    "cpu": ("bedplate_gpu",),
    "source": ("bedplate_driver", "source"),
    "sharing": ("bedplate_sharing", "mode"),
    "mps-on": ("bedplate_sharing", "mode"),
    "shard-on": ("bedplate_sharing", "mode"),
    "cuda-on": ("bedplate_cuda",),
    "slurm-on": ("bedplate_host", "os"),
    "runtime": ("bedplate_container_runtime", "name"),
    "cni": ("bedplate_kubernetes", "cni"),
    "sources": ("bedplate_sources", "mode"),
    "addon": ("bedplate_schedulers",),
}
#: The same for the parts of a pool.
PARTS: dict[str, KeyPath] = {
    "kernel": ("bedplate_host", "kernel"),
    "secure_boot": ("bedplate_host", "secure_boot"),
    "cuda_toolkit": ("bedplate_cuda",),
    "accelerator": ("bedplate_accelerator",),
    "mig_layout": ("bedplate_sharing",),
    "limited_claims": ("bedplate_sharing", "isolation"),
    "vgpu": ("bedplate_vgpu",),
    "rdma": ("bedplate_rdma",),
    "rdma_pods": ("bedplate_rdma", "pods"),
    "frameworks": ("bedplate_frameworks",),
    "extender": ("bedplate_preset", "placement", "extender"),
}
#: A driver that nobody named, whose packages may not exist under their names.
UNCONFIRMED = "unconfirmed"
#: Dimensions whose values are the setting's own.
PLAIN = {"os", "kind", "source", "sharing", "runtime", "cni", "sources", "addon", "part"}


def parts(lock: Lock) -> list[tuple[str, str]]:
    """Return each part that cannot be installed, with the pool (or `cluster`) that has it."""
    found = [(part, name) for name, pool in lock.pools.items() for part in pool.not_yet]
    name, not_yet = ("cluster", lock.cluster.not_yet) if lock.cluster else ("site", lock.not_yet)
    return [*((part, name) for part in not_yet), *found]


def problems(site: Site, lock: Lock, catalogue: Catalogue) -> tuple[Problem, ...]:
    """Return a problem for each setting that cannot be installed, in the order of the files."""
    return tuple(in_order(list(_problems(site, lock, catalogue))))


def _problems(site: Site, lock: Lock, catalogue: Catalogue) -> Iterator[Problem]:
    for part, name in parts(lock):
        dimension, _, value = part.partition(" ")
        if dimension == UNCONFIRMED:
            yield _unconfirmed(site.pools[name][0], lock.pools[name], value)
            continue
        host = _host(site, name, dimension, value)
        path = _path(dimension, value)
        if dimension == "addon" and value in schedulers(host) - named(host):
            path = ("bedplate_preset",)
        place = host.places.of(path)
        fact = catalogue.installable.get(dimension)
        known = [*fact.value.values, *fact.value.stand_in, *fact.value.unproved] if fact else []
        if dimension == "cpu":
            yield _other_cpu(host, lock.pools[name], value, known, catalogue)
            continue
        allowed = ", ".join(sorted(known)) if dimension != "part" and known else None
        yield Problem(
            "not installable by this version",
            place.file,
            place.line,
            place.column,
            spelt(path),
            (value if dimension in PLAIN else part).replace("_", "-"),
            allowed,
            "choose one of these" if allowed else "remove it",
            "installable",
        )


def _other_cpu(
    host: SiteHost, pool: Pool, cpu: str, known: Sequence[str], catalogue: Catalogue
) -> Problem:
    """A GPU that is one with a CPU of hosts that nothing is carried out on."""
    path = SETTINGS["cpu"]
    place = host.places.of(path)
    facts = [catalogue.gpu_models[gpu.model] for gpu in pool.gpu]
    its = [fact for fact in facts if fact.value.host_cpu == cpu]
    return Problem(
        "hosts are not installed by this version",
        place.file,
        place.line,
        place.column,
        spelt(path),
        f"{', '.join(fact.value.model for fact in its)}, whose hosts are {cpu}",
        f"GPUs of {', '.join(known)} hosts",
        "remove the pool: this version can only plan it",
        "installable",
    )


def _unconfirmed(host: SiteHost, pool: Pool, version: str) -> Problem:
    """Nothing that is confirmed goes with the settings, and nobody named this driver."""
    path: KeyPath = ("bedplate_driver",)
    place, driver = host.places.of(path), pool.nvidia_driver
    if driver is None:
        raise AssertionError(f"no driver is locked, and {version} is unconfirmed")
    return Problem(
        "no index has confirmed the driver's packages",
        place.file,
        place.line,
        place.column,
        spelt(path),
        f"{version} from {driver.source} for {pool.os}",
        "a driver whose packages are confirmed, or one that the settings name",
        f'write branch: "{driver.branch}" and source: {driver.source} to take it all the same, '
        "or choose another branch, source or system",
        "installable",
    )


def _host(site: Site, name: str, dimension: str, value: str) -> SiteHost:
    hosts = site.pools.get(name) or [host for _, host in sorted(site.hosts.items())]
    of_system = (h for h in hosts if h.pool is None and h.wishes.bedplate_host.os == value)
    return next(of_system, hosts[0]) if dimension == "os" else hosts[0]


def _path(dimension: str, value: str) -> KeyPath:
    if dimension == "part":
        return PARTS.get(value, ("bedplate_gpu",))
    return SETTINGS.get(dimension) or ("bedplate_container_runtime", "source")
