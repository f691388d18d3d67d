"""Images of courses' frameworks that no registry has: the site has to build them first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bedplate.bill.needs import notebooks_of
from bedplate.lock import builds
from bedplate.resolver.courses import first
from bedplate.resolver.explanations import refused
from bedplate.site.courses import listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bedplate.catalogue import Catalogue
    from bedplate.errors import Problem
    from bedplate.lock import Lock
    from bedplate.site import Site


def problems(site: Site, lock: Lock, catalogue: Catalogue) -> Iterator[Problem]:
    """Yield a problem for each build of a course without an image, where nothing mirrors one.

    A mirror can have what the site builds itself: that is for the bill to find out.
    """
    if lock.sources.mode == "mirror" or lock.cluster is None:
        return
    lacking = {one.needed_by for _, one in notebooks_of(lock, catalogue) if one.built}
    host = first(site)
    for one in listed(host.wishes.bedplate_courses):
        for place, named in enumerate(one.course.frameworks):
            build = builds.build_of(lock.pools[one.course.pool[0]], named)
            if build is None or (name := builds.notebook(build)) not in lacking:
                continue
            lacking.remove(name)
            yield refused(
                "course-image",
                host,
                one.at("frameworks", place),
                build.identity,
                "a build with an image",
                "build it from the files of `bedplate frameworks SITE --output FOLDER`, push it to "
                "a registry of yours and name it in SITE/facts/images.yml with notebook: "
                f"{build.identity}; or set bedplate_sources.mode to mirror",
            )
