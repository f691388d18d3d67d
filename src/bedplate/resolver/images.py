"""Own images: what keeps one from running in its pool or course, by what it says of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bedplate.bill.image_needs import PLATFORM, REQUIRE, Asks, machines, mismatches
from bedplate.lock import model as locked
from bedplate.resolver.courses import first
from bedplate.resolver.explanations import refused, unknown
from bedplate.resolver.wishes import split_named
from bedplate.site.courses import listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bedplate.catalogue import Catalogue
    from bedplate.common.errors import Problem
    from bedplate.lock import Lock
    from bedplate.site import Site
    from bedplate.site.sources import TeamImage

KEY = "bedplate_images"


def check(site: Site, catalogue: Catalogue) -> Iterator[Problem]:
    """Yield images of pools that are not there, and those that a course cannot have."""
    host = first(site)
    nodes = {node.pool for node in site.nodes if node.pool is not None}
    for name, image in sorted(host.wishes.bedplate_images.items()):
        if image.pool not in nodes:
            yield unknown("image-pool", host, (KEY, name, "pool"), image.pool, nodes)
    known = {fact.value.framework for fact in catalogue.frameworks.values()}
    own = host.wishes.bedplate_images
    for one in listed(host.wishes.bedplate_courses):
        course = one.course
        for place, name in enumerate(course.frameworks):
            path = one.at("frameworks", place)
            if name in own and split_named(name)[0] in known and one.writes("frameworks"):
                got = f"{name}, which is a framework and one of {KEY}"
                fix = f"give the image another name in {KEY}"
                yield refused("course-own-image", host, path, got, "one of both", fix)
            elif name in own and own[name].pool in nodes and course.pool != [own[name].pool]:
                pools = " and ".join(course.pool)
                got, allowed = f"{name}, an image for {own[name].pool}", f"images for {pools}"
                fix = f"add the image to {KEY} once more, by another name, with pool: {pools}"
                fix += f", and name it in frameworks of {course.name}" * (one.size is not None)
                if course.pool[1:]:
                    fix = f"write pool: {own[name].pool}: an own image is for one pool"
                yield refused("course-own-image", host, path, got, allowed, fix)


def decided(site: Site) -> dict[str, locked.TeamImage]:
    """Return the lock's images by name."""
    return {
        name: locked.TeamImage(image=image.image, pool=image.pool)
        for name, image in sorted(first(site).wishes.bedplate_images.items())
    }


def problems(site: Site, lock: Lock, catalogue: Catalogue) -> Iterator[Problem]:
    """Yield what of an image does not go with the driver or a GPU of its pool."""
    host = first(site)
    for name, image in sorted(host.wishes.bedplate_images.items()):
        for machine in machines(lock.pools[image.pool], catalogue):
            for one in mismatches(asks_of(image), machine):
                fix = (
                    f"take an image for {machine.gpu} and driver {machine.driver}, or another pool"
                )
                got = f"{one.what}: {one.got}"
                yield refused("image-runs", host, (KEY, name), got, one.allowed, fix)


def asks_of(image: TeamImage) -> Asks:
    """Return what an image asks for by its settings."""
    return Asks(
        platform=PLATFORM,
        cuda=image.cuda,
        built_for=tuple(image.built_for),
        ptx=image.ptx,
        constraints=((f"{REQUIRE}CUDA", image.requires),) if image.requires else (),
    )
