"""Images of courses' frameworks: those for CPUs, and those that no registry has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bedplate.bill.needs import notebooks_of
from bedplate.lock import builds
from bedplate.resolver.courses import first
from bedplate.resolver.explanations import refused
from bedplate.resolver.wishes import split_named
from bedplate.site.courses import listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bedplate.catalogue import Catalogue
    from bedplate.common.errors import Problem
    from bedplate.lock import Lock
    from bedplate.site import Site


def check(site: Site, catalogue: Catalogue) -> Iterator[Problem]:
    """Yield CPU builds of courses whose notebooks would hold a GPU, or whose runs have no build."""
    builds_ = [fact.value for fact in catalogue.frameworks.values()]
    for_cpus = {one.framework for one in builds_ if one.cuda is None}
    host = first(site)
    for one in listed(courses := host.wishes.bedplate_courses):
        course = one.course
        if not one.writes("frameworks") and courses[one.index].runs_at_once is None:
            continue  # its course is refused by the same words
        names = [split_named(text)[0] for text in course.frameworks]
        for place, name in enumerate(names):
            if name not in for_cpus or name in host.wishes.bedplate_images:
                continue
            path, other = one.at("frameworks", place), name.removesuffix(builds.FOR_CPUS)
            text = course.frameworks[place]
            if course.runs_at_once is None:
                got = f"{text}, in notebooks that each hold a share of a GPU"
                allowed = "builds for CPUs where notebooks hold no GPU"
                fix = f"write {other}"
                if one.size is None:
                    fix += f", or runs_at_once: N with {other} as a further framework"
                elif not one.writes("frameworks"):
                    fix = f"write frameworks in size {course.name} too, without {text}"
                yield refused("course-cpu-build", host, path, got, allowed, fix)
            elif other not in names:
                got = f"{text}, without a build for the runs by %%share"
                allowed = f"{name} together with {other}"
                fix = f"add {other} to frameworks: runs have its image"
                yield refused("course-cpu-build", host, path, got, allowed, fix)


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
            build = builds.build_of(lock.pools[one.course.pool[0]].frameworks, named)
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
