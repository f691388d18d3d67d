"""Courses in several pools: what has to be alike in them, and how many shares each of them has."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bedplate.common.errors import Wrong
from bedplate.common.versions import minor, parts
from bedplate.courses.hours import together
from bedplate.courses.packing import Answer
from bedplate.lock.builds import build_of
from bedplate.lock.courses import InPool
from bedplate.resolver import courses
from bedplate.resolver.candidates import compiled
from bedplate.resolver.course_room import Class, rooms
from bedplate.resolver.course_shares import share_of
from bedplate.resolver.explanations import refused
from bedplate.resolver.wishes import begins, schedulers, split_named
from bedplate.site.courses import listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bedplate.catalogue import Catalogue
    from bedplate.common.errors import Problem
    from bedplate.lock import Lock
    from bedplate.lock.courses import Share
    from bedplate.lock.model import Pool
    from bedplate.resolver.course_room import Room
    from bedplate.site import Site, SiteHost
    from bedplate.site.courses import Course, Listed

RULE = "course-pools"


def decided(site: Site, lock: Lock, catalogue: Catalogue) -> Lock:
    """Return the lock with the shares that each pool has of courses in several.

    A pool has as many as find room there at each of the course's hours, next to the courses that
    are in that pool alone and to those written before; the last has the others.
    """
    cluster = lock.cluster
    if cluster is None or not any(one.then for one in cluster.courses.values()):
        return lock
    known, held = rooms(lock, catalogue), dict[str, list[Class]]()
    several, found = [], {}
    for place in listed(courses.first(site).wishes.bedplate_courses):
        has = cluster.courses[place.course.name]
        if has.then:
            has = has.model_copy(update={"share": _least(place.course, has.share, lock, catalogue)})
        one = Class(place, place.course, has.share, has.notebook)
        if has.then:
            several.append(one)
        else:
            held.setdefault(has.pool, []).append(one)
    for one in several:
        numbers: list[int] = []
        for pool in one.course.pool[:-1]:
            others = held.setdefault(pool, [])
            numbers.append(_most(known[pool], others, replace(one, before=sum(numbers))))
            others.append(replace(one, before=sum(numbers[:-1]), most=numbers[-1]))
        held.setdefault(one.course.pool[-1], []).append(replace(one, before=sum(numbers)))
        numbers.append(one.course.seats - sum(numbers))
        then = [
            InPool(pool=pool, shares=shares)
            for pool, shares in zip(one.course.pool[1:], numbers[1:], strict=True)
        ]
        update = {"then": then, "share": one.share}
        found[one.name] = cluster.courses[one.name].model_copy(update=update)
    update = {"courses": cluster.courses | found, "teams": cluster.teams | courses.teams(found)}
    return lock.model_copy(update={"cluster": cluster.model_copy(update=update)})


def _least(course: Course, share: Share, lock: Lock, catalogue: Catalogue) -> Share:
    """Return the share with the memory that it has in each pool: where it is, the queue decides."""
    its = list(_shares(course, lock, catalogue).values())
    mibs = [one.user_mib for one in its if one.user_mib is not None]
    found = [one.user_part for one in its if one.user_part is not None]
    update = {
        "user_mib": min(mibs) if mibs and len(mibs) == len(its) else None,
        "user_part": min(found) if found and len(found) == len(its) else None,
    }
    return share.model_copy(update=update)


def _most(room: Room, others: Sequence[Class], one: Class) -> int:
    """Return how many shares of a course find room in a pool whenever it takes place."""
    by_name = {other.name: other for other in others}
    hours = {name: other.course.hours for name, other in by_name.items()}
    times = [
        [by_name[name] for name in names if name != one.name]
        for _, names in together(hours | {one.name: one.course.hours})
        if one.name in names
    ]

    def fits(number: int) -> bool:
        here = replace(one, most=number)
        return all(room.answer([*active, here]) is Answer.FITS for active in times)

    low, high = 0, one.seats + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def problems(site: Site, lock: Lock, catalogue: Catalogue) -> Iterator[Problem]:
    """Yield what is not alike in the pools of a course: one notebook has to run in each of them."""
    host = courses.first(site)
    for one in listed(host.wishes.bedplate_courses):
        if not one.course.pool[1:]:
            continue
        alone = f"write pool: {one.course.pool[0]}"
        if "kueue" not in schedulers(host):
            fix = f"add kueue to bedplate_schedulers, or {alone}"
            got = "several pools without kueue"
            yield refused(RULE, host, one.at("pool"), got, "one, or queues of Kueue's", fix)
            continue
        pools = {name: lock.pools[name] for name in one.course.pool}
        modes = {name: pool.sharing.mode for name, pool in pools.items()}
        if "dra" in modes.values():
            allowed = (
                "one pool, or GPUs that a device plugin offers: a claim is of one course's size"
            )
            fix = f"{alone}, or another mode for its pools, or sizes, each with a pool"
            yield refused(RULE, host, one.at("pool"), _told(modes), allowed, fix)
        elif len(set(modes.values())) > 1:
            fix = f"write the same bedplate_sharing for {' and '.join(pools)}, or {alone}"
            yield refused(RULE, host, one.at("pool"), _told(modes), "pools of one mode", fix)
        else:
            shares = _shares(one.course, lock, catalogue)
            asked = {name: f"{one.count} {one.resource}" for name, one in shares.items()}
            if len(set(asked.values())) > 1:
                fix = f"write one bedplate_sharing for {' and '.join(pools)}, or {alone}"
                allowed = "one resource, for which a pod can ask"
                yield refused(RULE, host, one.at("pool"), _told(asked), allowed, fix)
            yield from _frameworks(host, one, pools, catalogue)


def _told(values: Mapping[str, str]) -> str:
    return ", ".join(f"{value} in {pool}" for pool, value in values.items())


def _shares(course: Course, lock: Lock, catalogue: Catalogue) -> dict[str, Share]:
    """Return the share in each pool that has it."""
    known = rooms(lock, catalogue)
    shares = {
        pool: share_of(course, lock.pools[pool], known[pool].gpus, catalogue)
        for pool in course.pool
    }
    return {pool: share for pool, share in shares.items() if not isinstance(share, Wrong)}


def _frameworks(
    host: SiteHost, one: Listed, pools: Mapping[str, Pool], catalogue: Catalogue
) -> Iterator[Problem]:
    """Yield frameworks that have no one build for all pools: a notebook has one image."""
    models = {gpu.model for pool in pools.values() for gpu in pool.gpu}
    gpus = [catalogue.gpu_models[model].value.compute_capability for model in sorted(models)]
    for place, named in enumerate(one.course.frameworks):
        if named in host.wishes.bedplate_images:
            continue
        builds = {name: build_of(pool.frameworks, named) for name, pool in pools.items()}
        got = {name: build.identity for name, build in builds.items() if build is not None}
        if len(set(got.values())) == 1:
            continue
        framework, wanted = split_named(named)
        able = [
            fact.value.version
            for fact in catalogue.frameworks.values()
            if fact.value.framework == framework and all(compiled(fact.value, gpu) for gpu in gpus)
        ]
        fix = f"write pool: {one.course.pool[0]}"
        if any(begins(version, wanted) for version in able):
            fix = f"write the same bedplate_driver for {' and '.join(pools)}, or {fix}"
        elif able:
            fix = f"write {framework}-{minor(max(able, key=parts))}, or {fix}"
        allowed = "one build with code for the GPUs of all its pools"
        yield refused(RULE, host, one.at("frameworks", place), _told(got), allowed, fix)
