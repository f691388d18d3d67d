"""What a plan decides and no role or stack of this version carries out, at the setting's place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bedplate.common.errors import Problem, in_order
from bedplate.common.versions import natural
from bedplate.resolver import course_images, screening
from bedplate.resolver.wishes import schedulers, split_named
from bedplate.site.places import spelt

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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
    "below-cri_o": ("bedplate_sharing", "mode"),
    "shard-on": ("bedplate_sharing", "mode"),
    "cuda-on": ("bedplate_cuda",),
    "slurm-on": ("bedplate_host", "os"),
    "runtime": ("bedplate_container_runtime", "name"),
    "cni": ("bedplate_kubernetes", "cni"),
    "sources": ("bedplate_sources", "mode"),
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
#: What is found in place of the dimension's name, where a value is not a setting's own.
GOT = {
    "mps-on": "mode mps on {}",
    "below-cri_o": "mode {} below CRI-O",
    "shard-on": "Slurm's shards on {}",
    "cuda-on": "CUDA toolkits on {}",
    "slurm-on": "Slurm on {}",
    "unconfirmed": "packages of driver {} that no index has confirmed",
    "limited_claims": "claims with limited memory",
    "part nvidia_fabric": "Fabric Manager",
    "sources upstream": "downloads from the vendors",
}
#: What to do where another value of the setting is not what helps.
FIXES = {
    "below-cri_o": "choose another mode, or containerd as bedplate_container_runtime.name",
    "mps-on": "write time-slicing, or one of these systems as bedplate_host.os of the pool",
    "shard-on": "choose another mode, or a system of these for the pool's hosts",
    "cuda-on": "remove bedplate_cuda, or choose a system and a driver's source of these",
}
#: Lists of settings that name add-ons.
LISTS = ("bedplate_schedulers", "bedplate_operators")
PRESET: KeyPath = ("bedplate_preset",)
FROM = "-from"
WHAT = "not installable by this version"
#: A driver that nobody named, whose packages may not exist under their names.
UNCONFIRMED = "unconfirmed"


def parts(lock: Lock) -> list[tuple[str, str]]:
    """Return each part that cannot be installed, with the pool (or `cluster`) that has it.

    Where a runtime comes from is no part of its own if nothing installs that runtime.
    """
    found = [(part, name) for name, pool in lock.pools.items() for part in pool.not_yet]
    of_all = lock.cluster or lock.containers
    not_yet = of_all.not_yet if of_all else []
    without = {f"{part.removeprefix('runtime ')}{FROM}" for part in not_yet}
    shared = [part for part in not_yet if part.partition(" ")[0] not in without]
    elsewhere = [(part, "site") for part in lock.not_yet]
    return [*elsewhere, *((part, "cluster") for part in shared), *found]


def described(part: str) -> str:
    """Return a part as a reader of the plan knows it, as `cri-o from archive`."""
    dimension, _, value = part.partition(" ")
    if part in GOT:
        return GOT[part]
    if dimension.endswith(FROM):
        text = f"{dimension.removesuffix(FROM)} from {value}"
    elif dimension in GOT:
        text = GOT[dimension].format(value)
    else:
        text = GOT.get(value, value if dimension == "part" else part)
    return text.replace("_", "-")


def problems(site: Site, lock: Lock, catalogue: Catalogue) -> tuple[Problem, ...]:
    """Return a problem for each setting that cannot be installed, in the order of the files.

    An image that is still to be built keeps a setting from being installed too.
    """
    found = [*_problems(site, lock, catalogue), *course_images.problems(site, lock, catalogue)]
    return tuple(in_order(found))


def without_lock(site: Site, catalogue: Catalogue, refused: Iterable[Problem]) -> Iterator[Problem]:
    """Yield what settings alone say cannot be installed, but for those that are refused anyway."""
    there = {(one.file, one.line, one.column, one.key) for one in refused}
    for problem in _of_parts(site, screening.parts(site, catalogue), catalogue):
        if (problem.file, problem.line, problem.column, problem.key) not in there:
            yield problem


def _problems(site: Site, lock: Lock, catalogue: Catalogue) -> Iterator[Problem]:
    others = []
    for part, name in parts(lock):
        dimension, _, value = part.partition(" ")
        if dimension == UNCONFIRMED:
            yield _unconfirmed(site.pools[name][0], lock.pools[name], value)
        elif dimension == "cpu":
            known = _known(dimension, catalogue)
            host = _host(site, name, dimension, value)
            yield _other_cpu(host, lock.pools[name], value, known, catalogue)
        else:
            others.append((part, name))
    yield from _of_parts(site, others, catalogue)


def _known(dimension: str, catalogue: Catalogue) -> list[str]:
    fact = catalogue.installable.get(dimension)
    return [*fact.value.values, *fact.value.stand_in, *fact.value.unproved] if fact else []


def _of_parts(
    site: Site, found: Iterable[tuple[str, str]], catalogue: Catalogue
) -> Iterator[Problem]:
    for part, name in found:
        dimension, _, value = part.partition(" ")
        known = _known(dimension, catalogue)
        if dimension == "addon":
            yield _addon(site, value, known)
            continue
        host = _host(site, name, dimension, value)
        path = _path(host, dimension, value)
        place = host.places.of(path)
        allowed = ", ".join(sorted(known, key=natural)) if dimension != "part" and known else None
        yield Problem(
            WHAT,
            place.file,
            place.line,
            place.column,
            spelt(path),
            _got(part, path),
            allowed,
            FIXES.get(dimension) or ("choose one of these" if allowed else f"remove {spelt(path)}"),
            "installable",
        )


def _addon(site: Site, name: str, known: Sequence[str]) -> Problem:
    """An add-on that no stack installs, at the setting that names it."""
    for _, host in sorted(site.hosts.items()):
        if (path := _names_addon(host, name)) is not None:
            break
    else:
        raise AssertionError(f"{name} is locked, and no setting names it")
    place, is_scheduler = host.places.of(path), path[0] == LISTS[0]
    got, fix = name, "choose one of these, or remove it"
    if not is_scheduler:
        fix = f"remove {name} from {path[0]}" if path[0] == LISTS[1] else f"remove {spelt(path)}"
    if path == PRESET:
        got, fix = f"{name}, which it brings", "choose another preset"
    return Problem(
        WHAT,
        place.file,
        place.line,
        place.column,
        spelt(path),
        got,
        ", ".join(sorted(known, key=natural)) if is_scheduler else None,
        fix,
        "installable",
    )


def _names_addon(host: SiteHost, name: str) -> KeyPath | None:
    """Return where a host's settings name an add-on."""
    for key in LISTS:
        for index, text in enumerate(getattr(host.wishes, key)):
            if split_named(text)[0] == name:
                return key, index
    rdma = host.wishes.bedplate_rdma
    if rdma is not None and rdma.operator and split_named(rdma.operator)[0] == name:
        return "bedplate_rdma", "operator"
    return PRESET if name in schedulers(host) else None


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


def _path(host: SiteHost, dimension: str, value: str) -> KeyPath:
    """Return the setting that decides a part: of those, the one that the site has written."""
    if dimension == "part":
        path = PARTS.get(value, ("bedplate_gpu",))
        return path if _is_written(host, path) else path[:1]
    if dimension.endswith(FROM):
        source, name = ("bedplate_container_runtime", "source"), SETTINGS["runtime"]
        return source if _is_written(host, source) else name
    return SETTINGS[dimension]


def _is_written(host: SiteHost, path: KeyPath) -> bool:
    return path in host.places.own or path in host.places.known


def _got(part: str, path: KeyPath) -> str:
    """Return what is written: the setting's own value, or the part where the value is not it."""
    dimension, _, value = part.partition(" ")
    own = path[-1] == "source" or not (dimension in GOT or dimension.endswith(FROM))
    return value.replace("_", "-") if own and value not in GOT else described(part)
