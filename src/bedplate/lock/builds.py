"""What courses run: builds of frameworks that a lock decided, own images, and their notebooks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bedplate.common.versions import parts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bedplate.lock.courses import Course
    from bedplate.lock.model import Framework, Lock

#: Of images that a site builds itself. No registry of the internet can have this name (ADR 32).
REGISTRY: Final = "images.bedplate.internal"
#: Ends the names of frameworks without CUDA: `jax-cpu` is JAX for CPUs.
FOR_CPUS: Final = "-cpu"


@dataclass(frozen=True)
class Own:
    """An image of the site's own, by its name in `bedplate_images`."""

    name: str


def build_of(builds: Iterable[Framework], named: str) -> Framework | None:
    """Return the build of a framework by NAME or NAME-VERSION: the newest of several."""
    found = [
        one
        for one in builds
        if named == one.name or f"{one.name}-{one.version}.".startswith(f"{named}.")
    ]
    return max(found, key=lambda one: (parts(one.version), one.variant), default=None)


def of_course(lock: Lock, course: Course) -> list[Framework | Own]:
    """Return the builds and the own images of a course in its order, each once."""
    found: dict[str, Framework | Own] = {}
    for named in course.frameworks:
        if lock.cluster is not None and named in lock.cluster.images:
            found.setdefault(named, Own(named))
            continue
        build = build_of(lock.pools[course.pool].frameworks, named)
        if build is None:
            raise AssertionError(f"a plan decides the builds of courses, and not {named}")
        found.setdefault(build.identity, build)
    return list(found.values())


def with_gpu(build: Framework, among: Iterable[Framework | Own]) -> Framework | None:
    """Return the build for GPUs of a CPU build's framework: of its version, else the newest."""
    name = build.name.removesuffix(FOR_CPUS)
    its = [one for one in among if not isinstance(one, Own) and one.name == name]
    same = [one for one in its if one.version == build.version]
    return max(same or its, key=lambda one: (parts(one.version), one.variant), default=None)


def notebook_of(framework: str, version: str, variant: str) -> str:
    """Return the name of the image of a build that the site makes itself."""
    return f"{REGISTRY}/notebook-{framework}:{version}-{variant}"


def notebook(build: Framework | None) -> str:
    """Return the name of a build's notebook image; `notebook-base` is that without a framework."""
    return f"notebook-{build.identity if build else 'base'}"
