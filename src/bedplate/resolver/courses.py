"""Courses, the hub and data: what is wrong with them, and what the lock has of them."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zoneinfo import available_timezones

from bedplate.common.errors import Wrong
from bedplate.common.nearest import nearest, same_digits
from bedplate.lock import courses as locked
from bedplate.lock.model import Quota, Team
from bedplate.lock.offers import offers
from bedplate.portable.quantities import mebibytes
from bedplate.resolver.course_shares import gpus_of, share_of
from bedplate.resolver.explanations import refused, unknown
from bedplate.site.courses import OfSize, listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bedplate.catalogue import Catalogue
    from bedplate.common.errors import Problem
    from bedplate.lock.model import Pool
    from bedplate.site import Site, SiteHost
    from bedplate.site.courses import Course
    from bedplate.site.places import KeyPath

KEY = "bedplate_courses"
#: Characters of a namespace's name.
LONGEST = 63
SECONDS = {"s": 1, "m": 60, "h": 3600}


def of(site: Site) -> list[Course]:
    """Return the courses of a site and their sizes, as any one host says them."""
    return [one.course for one in listed(first(site).wishes.bedplate_courses)]


def first(site: Site) -> SiteHost:
    """Return the host at whose places problems of the whole site are reported."""
    return next(iter(sorted(site.hosts.items())))[1]


def check(site: Site) -> Iterator[Problem]:
    """Yield what is wrong with courses before anything is decided."""
    host = first(site)
    yield from _timezone(host)
    nodes = {node.pool for node in site.nodes if node.pool is not None}
    for one in listed(host.wishes.bedplate_courses):
        pools = one.course.pool if one.writes("pool") else []
        for name in sorted(set(pools) - nodes):
            yield unknown("course-pool", host, one.at("pool"), name, nodes)
        if len(set(pools)) < len(pools):
            got, fix = ", ".join(pools), "name each pool once"
            yield refused("course-pool", host, one.at("pool"), got, "different pools", fix)
        if len(one.course.name) > LONGEST:
            got, allowed = one.course.name, f"up to {LONGEST} characters, its course's name in them"
            yield refused("team-namespace", host, one.at("name"), got, allowed, "shorten it")
        if one.size is None:
            yield from _data(site, (KEY, one.index), one.course)
            yield from _registry(host, (KEY, one.index, "registry"), one.course)


def _timezone(host: SiteHost) -> Iterator[Problem]:
    """Refuse a name that no time zone has: no lesson would ever begin.

    The names are those of this machine's zoneinfo, or of the package tzdata where it has none.
    """
    hub = host.wishes.bedplate_hub
    known = available_timezones()
    if hub is None or hub.timezone in known:
        return
    place = f"/{hub.timezone}".lower()
    named = sorted(one for one in known if one.lower().endswith(place))
    # `UTC+2` is not UTC.
    alike = nearest(hub.timezone, same_digits(hub.timezone, known), at_least=0.7)
    close = named[0] if named else alike
    fix = f"write {close}" if close else "write one that timedatectl list-timezones lists"
    path, allowed = ("bedplate_hub", "timezone"), "a name of the IANA database, as Europe/Paris"
    yield refused("timezone-known", host, path, hub.timezone, allowed, fix)


def _data(site: Site, path: KeyPath, course: Course) -> Iterator[Problem]:
    host = first(site)
    storage = host.wishes.bedplate_storage
    known = set(storage.datasets) if storage else set()
    for place, name in enumerate(course.datasets):
        if name not in known:
            yield unknown("course-data", host, (*path, "datasets", place), name, known)
    if course.storage is not None and (storage is None or storage.homes is None):
        got, allowed = "homes, and no place for them", "homes with bedplate_storage.homes"
        fix = "write bedplate_storage: {homes: {path: /srv/homes}}, or remove it"
        yield refused("course-data", host, (*path, "storage"), got, allowed, fix)
    elif course.storage is not None and storage is not None and storage.homes is not None:
        pools = sorted({*course.pool, *(pool for size in course.sizes for pool in size.pool or ())})
        homes, its = storage.homes, [one for one in site.nodes if one.pool in pools]
        if homes.path is not None and not homes.shared and len(its) > 1:
            got = f"homes in {homes.path} of each of {len(its)} hosts of {' and '.join(pools)}"
            allowed = "a pool of one host, or files that all its hosts see"
            fix = "write shared: true where all hosts mount that path, or nfs: {server, path}"
            yield refused("course-data", host, (*path, "storage"), got, allowed, fix)


def _registry(host: SiteHost, path: KeyPath, course: Course) -> Iterator[Problem]:
    """Refuse a registry that would have no certificate: who pushes sends a token of the hub."""
    hub = host.wishes.bedplate_hub
    if course.registry is not None and (hub is None or hub.certificate is None):
        got, allowed = "a registry, and a hub without a certificate", "a registry with https"
        fix = "write bedplate_hub.certificate, or remove registry"
        yield refused("course-registry", host, path, got, allowed, fix)


def decided(
    site: Site, pools: Mapping[str, Pool], catalogue: Catalogue
) -> dict[str, locked.Course]:
    """Return the lock's courses by name.

    A course whose share its pool does not have is refused later: it has one of what there is.
    """
    return {
        course.name: _course(course, pools[first], len(site.pools[first]), catalogue)
        for course in of(site)
        for first in course.pool[:1]
    }


def _course(course: Course, pool: Pool, hosts: int, catalogue: Catalogue) -> locked.Course:
    share = share_of(course, pool, gpus_of(pool, hosts, catalogue), catalogue)
    if isinstance(share, Wrong):
        share = locked.Share(resource=next(iter(offers(pool)), ""), count=1)
    return locked.Course(
        students=course.students,
        share=share,
        pool=course.pool[0],
        then=[locked.InPool(pool=pool, shares=0) for pool in course.pool[1:]],
        frameworks=course.frameworks,
        hours=course.hours,
        per_user=locked.PerUser(
            shares=course.per_user.shares,
            time_s=seconds(course.per_user.time),
            hours=course.per_user.hours,
        ),
        runs_at_once=course.runs_at_once,
        of=course.of if isinstance(course, OfSize) else None,
        at_once=course.at_once if isinstance(course, OfSize) else None,
        idle_timeout_s=seconds(course.idle_timeout) or 0,
        storage_mib=mebibytes(course.storage) if course.storage else None,
        teachers=course.teachers,
        members=course.members,
        datasets=course.datasets,
        material=course.material,
        registry_mib=mebibytes(course.registry.size) if course.registry else None,
    )


def seconds(text: str | None) -> int | None:
    """Return the seconds of a time as settings write it: `90s`, `30m`, `8h`."""
    return int(text[:-1]) * SECONDS[text[-1]] if text else None


def teams(courses: Mapping[str, locked.Course]) -> dict[str, Team]:
    """Return the team of each course: its quota is the whole class, and it borrows nothing.

    Only teachers may do in its namespace what members of teams may: who may open a shell in any pod
    there would read the home of every student. Students come by the hub.
    What a course claims by memory is no quota of whole GPUs: the queue counts its claims.
    """
    return {
        name: Team(
            namespaces=[name],
            members=list(course.teachers),
            gpus={
                pool: {course.share.resource: Quota(guaranteed=seats * _count(course), borrow=0)}
                for pool, seats in course.pools.items()
            },
        )
        for name, course in sorted(courses.items())
    }


def _count(course: locked.Course) -> int:
    return 0 if course.share.memory_mib is not None else course.share.count


def hub(site: Site) -> locked.Hub | None:
    """Return how users sign in: natively where there are courses and nothing is said."""
    wished = first(site).wishes.bedplate_hub
    if wished is None:
        return locked.Hub(sign_in="native") if of(site) else None
    return locked.Hub.model_validate(wished.model_dump())


def storage(site: Site) -> locked.Storage | None:
    """Return where homes and datasets lie."""
    wished = first(site).wishes.bedplate_storage
    return locked.Storage.model_validate(wished.model_dump()) if wished is not None else None
