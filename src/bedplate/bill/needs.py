"""What a lock needs, by name and version: a pure function of lock and catalogue."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bedplate.catalogue.published_facts import Artifact
from bedplate.common.versions import parts
from bedplate.lock import builds
from bedplate.lock.offers import pools_of_nodes, pools_with_containers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bedplate.catalogue import Catalogue
    from bedplate.catalogue.driver_facts import DistributionArchive
    from bedplate.lock import Lock
    from bedplate.lock.model import Addon, Framework

ARCHIVE, VENDOR, DISTRO = "archive", "vendor-repo", "distro"
#: The image that mounts datasets from elsewhere.
CACHE = "data-cache"
REGISTRY = ("registry", "registry-proxy")
#: The hub's image: where there is no hub, what records the use of GPUs runs its Python.
PYTHON = "hub"
#: The setting that needs a site's own images, and the tags by which bill and mirror have them.
KEY_OF_OWN = "bedplate_images"
OWN_TAG, OWN_DIGITS = "bedplate-", 16


@dataclass(frozen=True)
class NeededFile:
    """A file: its version, and the fact that says where it is published."""

    version: str
    artifact: Artifact

    def filled(self, text: str) -> str:
        """Return an address of the fact for this version."""
        return text.replace("{version}", self.version)


@dataclass(frozen=True)
class Starts:
    """What an image needs to start as a notebook.

    Attributes:
        hub: the version of the hub's JupyterHub.
        material: whether a course fetches material into homes.
        homes: whether a course mounts homes over the image's.
    """

    hub: str
    material: bool = False
    homes: bool = False

    @property
    def packages(self) -> tuple[str, ...]:
        """Return the Python packages, as the bill has their versions."""
        return ("jupyterhub", "jupyterlab", *(("nbgitpuller",) if self.material else ()))

    def accepts(self, version: str) -> bool:
        """Tell whether the hub goes with a notebook's JupyterHub: it compares the majors alone.

        Source: `_check_version` in https://github.com/jupyterhub/jupyterhub/blob/5.5.0/jupyterhub/_version.py
        """
        return parts(version)[:1] == parts(self.hub)[:1]

    def known(self, versions: Mapping[str, str]) -> bool:
        """Tell whether an image with these versions has all of it."""
        return all(name in versions for name in self.packages) and self.accepts(
            versions["jupyterhub"]
        )


@dataclass(frozen=True)
class NeededImage:
    """An image.

    Attributes:
        needed_by: what asks for it: a name of the catalogue's images, or a file that names it.
        hosts: those that have it before they join: control-plane, node, gpu or nobody.
        moves: its maker sets the tag to newer builds on purpose.
        built: the site builds it itself.
        optional: a bill is whole without it.
        digest: what it is asked by; None to ask by its tag.
        starts: what it needs as a notebook, where that is not known without reading it.
    """

    needed_by: str
    hosts: str = "node"
    moves: bool = False
    built: bool = False
    optional: bool = False
    digest: str | None = None
    starts: Starts | None = None


@dataclass(frozen=True)
class Repository:
    """A signed repository.

    Attributes:
        index: its address.
        key: where its key is published.
        fingerprint: what the key is trusted by.
        format: deb or rpm.
        suites: apt's suites; none for a repository without suites.
        components: apt's components.
        signed_index: whether its owner signs the index. Of one that is not signed, the packages
            are.
    """

    index: str
    key: str
    fingerprint: str
    format: str = "deb"
    suites: tuple[str, ...] = ()
    components: tuple[str, ...] = ()
    signed_index: bool = True


@dataclass(frozen=True)
class NeededPackages:
    """Exact package versions that hosts take from signed repositories, any of them.

    Where hosts have sources of their own for them, as for a distribution's packages, the indexes
    are not `needed`: what cannot be read is left open.
    """

    repositories: tuple[Repository, ...]
    packages: Mapping[str, str]
    needed: bool = True


@dataclass(frozen=True)
class Needs:
    """Everything that a lock installs: files by artefact, images by name, packages by source."""

    files: Mapping[str, NeededFile] = field(default_factory=dict)
    images: Mapping[str, NeededImage] = field(default_factory=dict)
    packages: Mapping[str, NeededPackages] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Tell whether there is anything to install."""
        return bool(self.files or self.images or self.packages)


def of_distribution(archive: DistributionArchive, further: Sequence[str] = ()) -> Repository:
    """Return the repository that a fact describes, with *further* components."""
    return Repository(
        archive.url,
        archive.key,
        archive.fingerprint,
        archive.format,
        suites=tuple(archive.suites),
        components=(*archive.components, *further),
        signed_index=archive.signed_index,
    )


def needs_of(lock: Lock, catalogue: Catalogue) -> Needs:
    """Return what a lock needs. The images that a manifest names are known once it is read."""
    return Needs(
        dict(files_of(lock, catalogue)),
        dict(images_of(lock, catalogue)),
        dict(_packages(lock, catalogue)),
    )


def files_of(lock: Lock, catalogue: Catalogue) -> Iterator[tuple[str, NeededFile]]:
    """Yield the files that a lock needs, by artefact."""
    gpus = any(lock.pools[pool].gpu for pool in pools_with_containers(lock))
    for name, fact in sorted(catalogue.artifacts.items()):
        component = fact.value.component
        part = _part(lock, component)
        if part is None or getattr(part, "source", ARCHIVE) != ARCHIVE:
            continue  # not chosen, or taken from packages
        if gpus or component != "nvidia_container_toolkit":
            yield name, NeededFile(part.version, fact.value)
    charts = {
        (one.value.addon, one.value.version): one.value.chart for one in catalogue.addons.values()
    }
    for addon in _addons(lock):
        if chart := charts.get((addon.name, addon.version)):
            name = chart_of(addon.name)
            artifact = Artifact(artifact=name, component=addon.name, chart=chart)
            yield name, NeededFile(addon.version, artifact)


def chart_of(addon: str) -> str:
    """Return the bill's name of an add-on's chart."""
    return f"{addon}-chart"


def _addons(lock: Lock) -> list[Addon]:
    """Return the add-ons that stacks of this version install."""
    if lock.cluster is None:
        return []
    later = set(lock.cluster.not_yet)
    return [addon for addon in lock.cluster.addons if f"addon {addon.name}" not in later]


def _part(lock: Lock, component: str) -> Any:
    """Return what the lock decided of a component.

    The network and add-ons are there under names of their own.
    """
    if lock.cluster is None:
        return getattr(lock.containers, component, None)
    if addon := next((one for one in _addons(lock) if one.name == component), None):
        return addon
    cni = lock.cluster.cni
    if cni is not None and cni.name == component:
        return cni
    return getattr(lock.cluster, component, None)


def images_of(lock: Lock, catalogue: Catalogue) -> Iterator[tuple[str, NeededImage]]:
    """Yield the images that a lock needs, by name, but for those that a manifest names."""
    if lock.cluster is None:
        return
    for name, fact in sorted(catalogue.images.items()):
        image = fact.value
        part = _part(lock, image.component) if image.component else None
        if image.component and part is None and not (name == PYTHON and lock.cluster.usage):
            continue
        if image.notebook:
            continue  # below: of builds
        if (name == CACHE and not _cached(lock)) or (name in REGISTRY and not _pushed(lock)):
            continue
        reference = image.reference
        for field_ in ("version", "image_tag"):
            reference = reference.replace(f"{{{field_}}}", str(getattr(part, field_, "")))
        yield reference, NeededImage(name, image.hosts, image.moves)
    yield from notebooks_of(lock, catalogue)
    yield from own_of(lock, catalogue)
    gpus = any(lock.pools[pool].gpu for pool in pools_of_nodes(lock))
    if gpus and lock.cluster.nvidia_device_plugin:
        yield lock.cluster.nvidia_device_plugin.image, NeededImage("nvidia_device_plugin", "gpu")
    if (plugin := lock.cluster.rdma_device_plugin) is not None:
        yield plugin.image, NeededImage("rdma_device_plugin", "gpu")


def _cached(lock: Lock) -> bool:
    storage = lock.cluster.storage if lock.cluster else None
    return storage is not None and any(one.url for one in storage.datasets.values())


def _pushed(lock: Lock) -> bool:
    return any(one.registry_mib for one in lock.courses.values())


def notebooks_of(lock: Lock, catalogue: Catalogue) -> Iterator[tuple[str, NeededImage]]:
    """Yield the notebooks of courses: an image for each build, the base where a course has none.

    One that a fact says to hold that very build is taken; any other is one that the site builds.
    Jobs run these images too, those of a course's team as well: those of the other builds are there
    once they are built.
    """
    wanted: dict[str, Framework | None] = {}
    for course in lock.courses.values():
        wanted |= {
            builds.notebook(build): build
            for build in builds.of_course(lock, course)
            if not isinstance(build, builds.Own)
        }
        if not course.frameworks:
            wanted[builds.notebook(None)] = None
    of_courses = set(wanted)
    if lock.teams:
        pools = sorted(pools_of_nodes(lock))
        of_pools = [build for pool in pools for build in lock.pools[pool].frameworks]
        wanted |= {builds.notebook(build): build for build in of_pools}
    known = {f"notebook-{fact.value.notebook}": fact.value for fact in catalogue.images.values()}
    for name, build in sorted(wanted.items()):
        if (image := known.get(name)) is not None:
            yield image.reference, NeededImage(name, image.hosts, image.moves)
        elif build is not None:
            reference = builds.notebook_of(build.name, build.version, build.variant)
            optional = name not in of_courses
            yield reference, NeededImage(name, "nobody", built=True, optional=optional)


def jupyterhub_of(catalogue: Catalogue) -> str:
    """Return the version of JupyterHub in the hub's image: notebooks have the same."""
    version = catalogue.images["hub"].value.jupyterhub
    if version is None:
        raise AssertionError("the fact of the hub's image says its JupyterHub")
    return version


def starts_of(lock: Lock, catalogue: Catalogue, name: str | None = None) -> Starts:
    """Return what notebooks of an own image need; without its name, those of any course."""
    those = [one for one in lock.courses.values() if name is None or name in one.frameworks]
    material, homes = (
        any(getattr(one, field_) is not None for one in those)
        for field_ in ("material", "storage_mib")
    )
    return Starts(jupyterhub_of(catalogue), material, homes)


def own_of(lock: Lock, catalogue: Catalogue) -> Iterator[tuple[str, NeededImage]]:
    """Yield the images of `bedplate_images`, those of jobs too: pods have them by their digests.

    A registry keeps what a tag names, so each has a tag of its digest in place of its own, which
    may name another one tomorrow.
    """
    if lock.cluster is None:
        return
    of_courses = {name for one in lock.cluster.courses.values() for name in one.frameworks}
    for name, own in sorted(lock.cluster.images.items()):
        named, _, digest = own.image.partition("@")
        host, slash, path = named.partition("/")
        tag = f"{OWN_TAG}{digest.removeprefix('sha256:')[:OWN_DIGITS]}"
        reference = f"{host}{slash}{path.partition(':')[0]}:{tag}"
        starts = starts_of(lock, catalogue, name) if name in of_courses else None
        yield reference, NeededImage(f"{KEY_OF_OWN}.{name}", "nobody", digest=digest, starts=starts)


def _packages(lock: Lock, catalogue: Catalogue) -> Iterator[tuple[str, NeededPackages]]:
    found: dict[tuple[str, str], dict[str, str]] = {}
    for pool in lock.pools.values():
        if pool.nvidia_driver is None:
            continue
        source = {"precompiled": DISTRO}.get(pool.nvidia_driver.source, pool.nvidia_driver.source)
        names = found.setdefault((pool.os, source), {})
        names |= pool.nvidia_driver.packages
        if pool.nvidia_fabric is not None:
            names |= pool.nvidia_fabric.packages
    for (system, source), names in sorted(found.items()):
        packages = dict(sorted(names.items()))
        if source == VENDOR:
            fact = catalogue.repositories[f"{system}-{VENDOR}"].value
            one = Repository(fact.url, fact.url + fact.key, fact.fingerprint, fact.format)
            yield f"{system} {VENDOR}", NeededPackages((one,), packages)
        elif source == DISTRO and lock.sources.mode == "upstream":
            archives = [one.value for one in catalogue.distribution_archives.values()]
            repositories = tuple(of_distribution(one) for one in archives if one.os == system)
            if repositories:
                yield f"{system} {DISTRO}", NeededPackages(repositories, packages, needed=False)
