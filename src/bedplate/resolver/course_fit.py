"""Whether all courses fit, proved before the term; and if not, what binds and what would fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bedplate.courses import packing
from bedplate.courses.hours import together
from bedplate.courses.packing import Answer, Kind, Places
from bedplate.courses.sizes import FINEST
from bedplate.errors import Wrong
from bedplate.lock.offers import offered
from bedplate.resolver.course_shares import (
    asked_of,
    gpus_of,
    share_of,
    written,
)
from bedplate.resolver.explanations import refused

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bedplate.catalogue import Catalogue
    from bedplate.courses.sizes import Gpus
    from bedplate.errors import Problem
    from bedplate.lock import Lock
    from bedplate.lock.courses import Share
    from bedplate.site import Site, SiteHost
    from bedplate.site.courses import Course

KEY = "bedplate_courses"
TIMES = "\N{MULTIPLICATION SIGN}"
#: Modes that a refusal may name instead: what stacks and roles carry out, weakest words last.
OTHERS = ("mps", "time-slicing", "dra")


@dataclass(frozen=True)
class Class:
    """A course with its place in the list, and what each student's pod asks for."""

    index: int
    course: Course
    share: Share

    @property
    def name(self) -> str:
        """Return the course's name."""
        return self.course.name


@dataclass(frozen=True)
class Room:
    """What courses of a pool can have: its places, and how many GPUs or shares are a team's."""

    pool: str
    gpus: Gpus
    capacity: Mapping[str, int]
    teams: Mapping[str, int]

    def places(self, resource: str) -> Places:
        """Return where shares of a resource are: GPUs by memory, hosts, or all that there is."""
        if self.gpus.mode == "dra":
            # A team's GPUs are whole ones.
            return Places(self.gpus.count - self.teams.get(resource, 0), (self.gpus.memory or 0,))
        total = self.capacity.get(resource, 0)
        if self.gpus.mode == "none" and total:
            return Places(total // self.gpus.per_host, (self.gpus.per_host,))
        return Places(total, (1,))

    def kinds(self, classes: Sequence[Class], resource: str) -> list[Kind]:
        """Return the shares of some courses, and those that teams are guaranteed."""
        numbers: dict[int, int] = {}
        if self.gpus.mode != "dra" and (own := self.teams.get(resource, 0)):
            numbers[1] = own
        for one in classes:
            if one.share.resource == resource:
                size = self.size(one.share)
                numbers[size] = numbers.get(size, 0) + one.course.students
        return [Kind(number, (size,)) for size, number in sorted(numbers.items())]

    def size(self, share: Share) -> int:
        """Return what a student takes of a place."""
        if self.gpus.mode == "dra":
            return share.memory_mib or (self.gpus.memory or 0) * share.count
        return share.count

    def answer(self, classes: Sequence[Class]) -> Answer:
        """Tell whether all students of some courses have room at once."""
        worst = Answer.FITS
        for resource in {one.share.resource for one in classes}:
            found = self.proved(self.kinds(classes, resource), resource)
            if found is not Answer.FITS:
                worst = found if worst is not Answer.TOO_MUCH else worst
        return worst

    def proved(self, kinds: Sequence[Kind], resource: str, more: int = 0) -> Answer:
        """Tell whether shares have room, in *more* places than there are."""
        place = self.places(resource)
        place = Places(place.count + more, place.has)
        if place.has == (1,) and all(kind.takes == (1,) for kind in kinds):
            total = sum(kind.number for kind in kinds)
            return Answer.FITS if total <= place.count else Answer.TOO_MUCH
        if self.gpus.mode not in {"dra", "none"}:
            # Instances of a host are counted: nothing else is known of where they are.
            total = sum(kind.number * kind.takes[0] for kind in kinds)
            return Answer.FITS if total <= place.count else Answer.TOO_MUCH
        return packing.answer([place], kinds)


def rooms(lock: Lock, catalogue: Catalogue) -> dict[str, Room]:
    """Return what each pool of nodes has for courses; quotas of teams are not theirs."""
    cluster = lock.cluster
    found = {}
    for name, pool in lock.pools.items():
        if cluster is None or pool.expects is None or pool.expects.by == "slurm":
            continue
        hosts = sum(host.pool == name for host in lock.hosts.values())
        teams: dict[str, int] = {}
        for team, one in cluster.teams.items():
            for resource, quota in one.gpus.get(name, {}).items():
                if team not in cluster.courses:
                    teams[resource] = teams.get(resource, 0) + quota.guaranteed
        gpus = gpus_of(pool, hosts, catalogue)
        found[name] = Room(name, gpus, offered(lock, name), teams)
    return found


def problems(site: Site, lock: Lock, catalogue: Catalogue) -> Iterator[Problem]:
    """Yield each course whose share its pool does not have, and each time at which not all fit."""
    host = next(iter(sorted(site.hosts.items())))[1]
    wished = host.wishes.bedplate_courses
    if not wished or lock.cluster is None:
        return
    known = rooms(lock, catalogue)
    classes: dict[str, list[Class]] = {}
    for index, course in enumerate(wished):
        room = known[course.pool]
        share = share_of(course, lock.pools[course.pool], room.gpus, catalogue)
        if isinstance(share, Wrong):
            path = (KEY, index, "share")
            yield refused("course-share", host, path, share.got, share.allowed, share.fix)
        else:
            classes.setdefault(course.pool, []).append(Class(index, course, share))
    for pool, members in classes.items():
        by_name = {one.name: one for one in members}
        for when, names in together({one.name: one.course.hours for one in members}):
            active = [by_name[name] for name in names]
            found = known[pool].answer(active)
            if found is not Answer.FITS:
                yield _too_much(host, known[pool], active, when, found, catalogue)


def _too_much(
    host: SiteHost,
    room: Room,
    active: Sequence[Class],
    when: str,
    found: Answer,
    catalogue: Catalogue,
) -> Problem:
    """Return the refusal of the course that takes most, with what would fit in its place."""
    blamed = max(active, key=lambda one: (one.course.students * room.size(one.share), one.index))
    path = (KEY, blamed.index, "students")
    told = " + ".join(
        f"{one.name} {one.course.students} {TIMES} {written(one.course)}" for one in active
    )
    if teams := room.teams.get(blamed.share.resource):
        told += f" + teams {teams}"
    got = f"{told} at once" + (f", {when}" if when != "always" else "")
    others = [one for one in active if one is not blamed]
    most = _largest(room, blamed, others)
    gpus = f"{room.gpus.count} {room.gpus.model} of {room.pool}"
    binds, each = _binding(room, blamed, catalogue)
    allowed = f"{most} students of {blamed.name} on {gpus}"
    allowed += f": {each} a GPU, bound by {binds}" if each else f": bound by {binds}"
    if found is Answer.NOT_PROVED:
        got += ", not proved to fit in the time of the search"
    ways = []
    if most:
        ways.append(f"write students: {most}")
    ways += _smaller(room, blamed, others, catalogue)
    ways += _other_mode(room, blamed, others, catalogue)
    if missing := _missing(room, active, blamed.share.resource):
        ways.append(f"add {missing} GPU{'s' * (missing > 1)}")
    if any(one.course.hours for one in active) and others:
        ways.append("move one to other hours")
    return refused("course-fit", host, path, got, allowed, "; or ".join(ways) or "remove it")


def _largest(room: Room, blamed: Class, others: Sequence[Class]) -> int:
    """Return the largest class of the blamed course that is proved to fit with the others."""

    def fits(students: int) -> bool:
        course = blamed.course.model_copy(update={"students": students})
        one = Class(blamed.index, course, blamed.share)
        return room.answer([*others, one]) is Answer.FITS

    low, high = 0, blamed.course.students
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _binding(room: Room, blamed: Class, catalogue: Catalogue) -> tuple[str, int]:
    """Return what limits the shares of a GPU, and how many there are; 0 for whole GPUs."""
    gpus, asked = room.gpus, asked_of(blamed.course, room.gpus, catalogue)
    if gpus.mode == "mig":
        return f"instances of the pool, {room.capacity.get(blamed.share.resource, 0)} in all", 0
    if gpus.mode == "dra" and blamed.share.memory_mib:
        return "memory", (gpus.memory or 0) // blamed.share.memory_mib
    if gpus.shares is None:
        return "GPUs of the pool", 0
    limits = asked.limits(gpus, gpus.mode)
    if gpus.shares < min(limits.values(), default=gpus.shares + 1):
        return "the pool's replicas", gpus.shares
    binds = min(limits, key=lambda name: (limits[name], name))
    # Clients are named first where they bind as soon as another limit.
    binds = "clients" if limits.get("clients") == gpus.shares else binds
    return {"clients": "clients of MPS"}.get(binds, binds), gpus.shares


def _smaller(
    room: Room, blamed: Class, others: Sequence[Class], catalogue: Catalogue
) -> Iterator[str]:
    """Yield the largest share at which the whole class fits."""
    gpus, asked = room.gpus, asked_of(blamed.course, room.gpus, catalogue)
    if gpus.shares is not None:
        need = sum(one.course.students for one in [blamed, *others])
        need += sum(room.teams.values())
        each = -(-need // gpus.count)
        size = asked.of_size(each, gpus)
        if gpus.mode == "mps" and each > gpus.clients:
            return
        # With several courses all of them have to live with shares of that size.
        for one in others:
            other = asked_of(one.course, gpus, catalogue)
            if other.most(gpus, gpus.mode) < each:
                return
        if size is None:
            return
        if asked.most(gpus, gpus.mode) >= each:
            yield f"write replicas: {each} for the pool"
        else:
            yield f"write share: {size} with replicas: {each} for the pool"
    elif gpus.mode == "dra" and blamed.share.memory_mib and gpus.memory:
        yield from _smaller_claim(room, blamed, others, catalogue)


def _smaller_claim(
    room: Room, blamed: Class, others: Sequence[Class], catalogue: Catalogue
) -> Iterator[str]:
    """Yield the largest claim at which the whole class fits, by bisection."""
    asked, memory = asked_of(blamed.course, room.gpus, catalogue), room.gpus.memory or 0

    def fits(claim: int) -> bool:
        share = blamed.share.model_copy(update={"memory_mib": claim})
        one = Class(blamed.index, blamed.course, share)
        return room.answer([*others, one]) is Answer.FITS

    def claim_of(step: int) -> int:
        return step * memory // FINEST if asked.part is not None else step + asked.reserve

    low = 0
    high = int(asked.part * FINEST) if asked.part is not None else (asked.memory or 0)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(claim_of(middle)) else (low, middle)
    if low and claim_of(low) > asked.reserve:
        size = f"{low / FINEST:g}" if asked.part is not None else f"{{memory: {low}Mi}}"
        yield f"write share: {size}"


def _other_mode(
    room: Room, blamed: Class, others: Sequence[Class], catalogue: Catalogue
) -> Iterator[str]:
    """Yield the modes in which these GPUs have room for all, as they are asked for."""
    gpus = room.gpus
    if gpus.shares is None:
        return
    need = sum(one.course.students for one in [blamed, *others]) + sum(room.teams.values())
    asks = [asked_of(one.course, gpus, catalogue) for one in [blamed, *others]]
    each = -(-need // gpus.count)
    would = [
        mode
        for mode in OTHERS
        if mode != gpus.mode and all(asked.most(gpus, mode) >= each for asked in asks)
    ]
    if would:
        told = " or ".join(f"mode: {mode}" for mode in would)
        yield f"write {told} for the pool ({each} shares of a GPU)"


def _missing(room: Room, active: Sequence[Class], resource: str) -> int:
    """Return how many GPUs more would do, as the pool is; whole hosts where GPUs are whole."""
    kinds = room.kinds(active, resource)
    place, gpus = room.places(resource), room.gpus
    if gpus.mode == "mig":
        return 0
    if place.has == (1,):
        total = sum(kind.number * kind.takes[0] for kind in kinds)
        return -(-total // (gpus.shares or 1)) - gpus.count
    most = sum(kind.number for kind in kinds)
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        fits = room.proved(kinds, resource, middle) is Answer.FITS
        low, high = (low, middle) if fits else (middle, high)
    return high * (gpus.per_host if gpus.mode == "none" else 1)


def lines(lock: Lock, catalogue: Catalogue) -> list[tuple[str, str]]:
    """Return `(pool, text)` for each course: students, shares, when, and how many more fit.

    A share is shown by the memory that a student's program has in it.
    """
    cluster = lock.cluster
    if cluster is None or not cluster.courses:
        return []
    known = rooms(lock, catalogue)
    found = []
    for name, course in cluster.courses.items():
        room, share = known[course.pool], course.share
        same = {
            other: one.hours for other, one in cluster.courses.items() if one.pool == course.pool
        }
        size = f"{share.count} GPU{'s' * (share.count > 1)}"
        size = size if share.user_mib is None else f"{share.user_mib}Mi"
        when = course.hours[0] if course.hours else "always"
        if others := course.hours[1:]:
            when += f" and {len(others)} more"
        left = [_left(room, lock, names, name) for _, names in together(same) if name in names]
        more = min(left, default=0)
        text = f"{name}: {course.students} {TIMES} {size}, {when}"
        found.append((course.pool, f"{text}; {f'{more} left' if more else 'full'}"))
    return found


def _left(room: Room, lock: Lock, names: Sequence[str], name: str) -> int:
    """Return how many students more a course has room for while these take place."""
    courses = lock.cluster.courses if lock.cluster else {}
    resource, size = courses[name].share.resource, room.size(courses[name].share)
    taken: dict[int, int] = {}
    if room.gpus.mode != "dra" and (own := room.teams.get(resource, 0)):
        taken[1] = own
    for other in names:
        if courses[other].share.resource == resource:
            its = room.size(courses[other].share)
            taken[its] = taken.get(its, 0) + courses[other].students

    def fits(more: int) -> bool:
        with_more = taken | {size: taken.get(size, 0) + more}
        kinds = [Kind(number, (its,)) for its, number in sorted(with_more.items())]
        return room.proved(kinds, resource) is Answer.FITS

    place = room.places(resource)
    low, high = 0, place.count * (place.has[0] // size) + 1 if size else 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
