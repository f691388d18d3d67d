"""Which packages a lock's hosts install, and from which archives: of lock and catalogue alone."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from bedplate.bill.needs import VENDOR, Repository, of_distribution
from bedplate.bill.repository import trusted
from bedplate.lock.offers import pools_of_nodes, pools_with_containers
from bedplate.portable.packages import dnf

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from bedplate.catalogue import Catalogue
    from bedplate.lock import Lock
    from bedplate.lock.model import Cluster, Containers, Pool, Runtime

#: The distribution's package of a runtime; CRI-O is in none.
OF_DISTRO = {"containerd": "containerd", "docker": "docker.io", "podman": "podman"}
RUNTIMES = {"containerd": "containerd", "cri_o": "cri-o", "docker": "docker", "podman": "podman"}
#: MPS' control daemon where the distribution packages it alone, and whose version it has.
MPS, MPS_LIKE = "nvidia-cuda-mps", "libcuda1"
VENDOR_RELEASE = "-1"
RED_HAT = ("rhel-", "rocky-")
#: What the packages of a kernel are called; the headers go with them.
KERNEL = {"deb": ("linux-image-",), "rpm": ("kernel-", "kernel-core-", "kernel-modules-")}
HEADERS = {"deb": "linux-headers-", "rpm": "kernel-devel"}


@dataclass(frozen=True)
class Source:
    """An archive that packages are taken from.

    Attributes:
        repository: its address, suites, components and key.
        origin: what its index says of itself, where only exact versions are taken from it.
    """

    repository: Repository
    origin: str = ""


@dataclass(frozen=True)
class Wanted:
    """What hosts of one system install together.

    Attributes:
        name: a pool, or what else the hosts are.
        packages: versions by name; an empty one is any, and one may end with a star.
        streams: those of dnf's modules that hosts enable, by module.
    """

    name: str
    packages: Mapping[str, str]
    streams: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class System:
    """All that hosts of one system install, and where it comes from; no sources: none are known."""

    name: str
    format: str
    sources: tuple[Source, ...]
    wanted: tuple[Wanted, ...]


def format_of(system: str) -> str:
    """Return the format of a system's packages."""
    return "rpm" if system.startswith(RED_HAT) else "deb"


def systems(lock: Lock, catalogue: Catalogue, more: Iterable[str] = ()) -> list[System]:
    """Return what each system of the lock's pools installs, and of *more* systems.

    The lock doesn't say the system of hosts that are in no pool: they are taken to have one of
    those.
    """
    names = sorted({pool.os for pool in lock.pools.values()} | set(more))
    return [_system(name, lock, catalogue) for name in names]


def _system(name: str, lock: Lock, catalogue: Catalogue) -> System:
    pools = {key: pool for key, pool in lock.pools.items() if pool.os == name}
    wanted = [
        Wanted(key, dict(_of_pool(key, pool, lock, catalogue)), _streams(pool, catalogue))
        for key, pool in pools.items()
    ]
    parts = _Parts(catalogue, name)
    if lock.cluster is not None:
        by = lock.cluster.kubernetes.endpoint_by
        balanced = {} if by == "external" else dict(parts.of(by))
        wanted.append(Wanted("control_plane", dict(_runtime(lock.cluster, parts)) | balanced))
    if any("slurm" in host.groups for host in lock.hosts.values()):
        wanted.append(Wanted("slurm", dict(parts.of("slurm"))))
    if format_of(name) == "rpm":  # dnf's transactions hold what they install
        wanted = [
            replace(one, packages={**one.packages, dnf.VERSIONLOCK_PACKAGE: ""})
            for one in wanted
            if one.packages
        ]
    found = tuple(_sources(name, pools.values(), lock, catalogue))
    return System(name, format_of(name), found, tuple(one for one in wanted if one.packages))


def _streams(pool: Pool, catalogue: Catalogue) -> dict[str, str]:
    """Return the stream of the vendor's module that has a pool's driver."""
    driver, vendor = pool.nvidia_driver, catalogue.repositories.get(f"{pool.os}-{VENDOR}")
    if driver is None or driver.source != VENDOR or vendor is None or vendor.value.module is None:
        return {}
    stream = vendor.value.streams[driver.flavour].replace("{branch}", driver.branch)
    return {vendor.value.module: stream}


@dataclass(frozen=True)
class _Parts:
    catalogue: Catalogue
    system: str

    def of(self, part: str) -> Iterator[tuple[str, str]]:
        """Yield the packages of a part that the distribution has in one version."""
        fact = self.catalogue.host_packages.get(f"{self.system}-{part}")
        for package in fact.value.packages if fact else ():
            yield package, ""


def _of_pool(name: str, pool: Pool, lock: Lock, catalogue: Catalogue) -> Iterator[tuple[str, str]]:
    parts = _Parts(catalogue, pool.os)
    if pool.kind == "hypervisor":
        yield from parts.of("hypervisor")
    driver = pool.nvidia_driver
    if driver is not None:
        yield from driver.packages.items()
        if driver.source != "precompiled":
            yield from _headers(pool, parts)
        if pool.sharing.mode == "mps" and MPS_LIKE in driver.packages:
            yield MPS, driver.packages[MPS_LIKE]
    if pool.nvidia_fabric is not None:
        yield from pool.nvidia_fabric.packages.items()
    if pool.kernel:
        for start in KERNEL[format_of(pool.os)]:
            yield f"{start}{pool.kernel}", ""
    for version in pool.cuda_toolkit:
        release = "-".join(version.split(".")[:2])
        yield f"cuda-toolkit-{release}", version + VENDOR_RELEASE
    if pool.rdma is not None and pool.rdma.stack == "inbox":
        yield from parts.of("rdma")
    for package in pool.hpc_tools.packages.values() if pool.hpc_tools else ():
        yield package, ""
    shared = lock.cluster or lock.containers
    if shared is not None and name in pools_with_containers(lock):
        yield from _runtime(shared, parts)
    nodes = name in pools_of_nodes(lock)
    if nodes and lock.cluster is not None and _mounts_nfs(name, lock.cluster):
        yield from parts.of("nfs")


def _mounts_nfs(pool: str, cluster: Cluster) -> bool:
    """Tell whether the nodes of a pool get an NFS client: those of courses (from_lock.yml)."""
    taught = {name for course in cluster.courses.values() for name in course.pools}
    return cluster.storage is not None and cluster.storage.of_nfs and pool in taught


def _headers(pool: Pool, parts: _Parts) -> Iterator[tuple[str, str]]:
    """Yield what the driver's module is built with: for the site's kernel, or for the newest."""
    start = HEADERS[format_of(pool.os)]
    for package, version in parts.of("module"):
        if pool.kernel and package.startswith(start):
            yield f"{start.rstrip('-')}-{pool.kernel}", version
        else:
            yield package, version


def _decided(shared: Cluster | Containers) -> tuple[str, Runtime]:
    """Return the hosts' container runtime, by the lock's name of it."""
    found = {name: getattr(shared, name, None) for name in RUNTIMES}
    return next((name, one) for name, one in found.items() if one is not None)


def _runtime(shared: Cluster | Containers, parts: _Parts) -> Iterator[tuple[str, str]]:
    name, runtime = _decided(shared)
    replaced = {"runc"} if runtime.source == "vendor-repo" and name != "cri_o" else set()
    for package, version in parts.of(RUNTIMES[name]):
        if package not in replaced:
            yield package, version
    if runtime.source == "vendor-repo":
        yield from runtime.packages.items()
    elif runtime.source == "distro" and name in OF_DISTRO:
        yield OF_DISTRO[name], f"{runtime.version}*"


def _sources(
    name: str, pools: Collection[Pool], lock: Lock, catalogue: Catalogue
) -> Iterator[Source]:
    """Yield a system's archives, each with the key that the site trusts for its host.

    None where those of the distribution are not known: what the vendors' depend on lies there.
    """
    distribution = list(_distribution(name, catalogue))
    if not distribution:
        return
    for source in (
        *distribution,
        *_driver_vendor(name, pools, catalogue),
        *_runtime_vendor(name, lock.cluster or lock.containers, catalogue),
    ):
        yield replace(source, repository=trusted(source.repository, lock.sources.keys))


def _distribution(name: str, catalogue: Catalogue) -> Iterator[Source]:
    for one in (fact.value for fact in catalogue.distribution_archives.values()):
        if one.os == name:
            yield Source(of_distribution(one, one.further))


def _driver_vendor(name: str, pools: Collection[Pool], catalogue: Catalogue) -> Iterator[Source]:
    drivers = {pool.nvidia_driver.source for pool in pools if pool.nvidia_driver}
    vendor = catalogue.repositories.get(f"{name}-{VENDOR}")
    if vendor and (VENDOR in drivers or any(pool.cuda_toolkit for pool in pools)):
        fact = vendor.value
        key = fact.url + fact.key
        yield Source(Repository(fact.url, key, fact.fingerprint, fact.format), fact.origin)


def _runtime_vendor(
    name: str, shared: Cluster | Containers | None, catalogue: Catalogue
) -> Iterator[Source]:
    if shared is None:
        return
    called, runtime = _decided(shared)
    if runtime.source != VENDOR:
        return
    minor = ".".join(runtime.version.split(".")[:2])
    for one in (fact.value for fact in catalogue.runtime_repositories.values()):
        if one.os == name and RUNTIMES[called] in one.runtimes:
            suite = one.suite if one.suite != "/" else None
            repository = Repository(
                one.url.replace("{minor}", minor),
                one.key.replace("{minor}", minor),
                one.fingerprint,
                one.format,
                suites=(suite,) if suite else (),
                components=(one.components or "main",) if suite else (),
                signed_index=one.format == "deb",
            )
            yield Source(repository, one.origin.replace("{minor}", minor))
