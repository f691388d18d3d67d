"""Whether all courses fit, proved before the term; and if not, what binds and what would fit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bedplate.common.errors import Wrong
from bedplate.courses.hours import together
from bedplate.courses.packing import Answer
from bedplate.courses.sizes import FINEST
from bedplate.lock.courses import Notebook
from bedplate.portable.quantities import memory
from bedplate.resolver.course_room import OF_HOST, Class, Room, Taken, rooms
from bedplate.resolver.course_shares import (
    asked_of,
    share_of,
    written,
)
from bedplate.resolver.explanations import refused
from bedplate.resolver.node_pods import kubelet_pods, node_pods, settings_of
from bedplate.site.courses import OfSize, listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bedplate.catalogue import Catalogue
    from bedplate.common.errors import Problem
    from bedplate.lock import Lock
    from bedplate.lock.courses import Share
    from bedplate.lock.model import Kubernetes
    from bedplate.site import Site, SiteHost
    from bedplate.site.courses import Course, Listed

PODS = 0
#: By the key that says how many shares a course holds at once, what they are called.
COUNTED = {"students": "students", "runs_at_once": "runs", "at_once": "shares"}
#: By their places in `OF_HOST`: the setting of a course, the notebook's field, one unit of it.
SETTINGS = {1: ("memory", "memory_mib"), 2: ("cpus", "cpu_milli"), 3: ("disk", "disk_mib")}
TIMES = "\N{MULTIPLICATION SIGN}"
#: Modes that a refusal may name instead: what stacks and roles carry out, weakest words last.
OTHERS = ("mps", "time-slicing", "dra")


def problems(site: Site, lock: Lock, catalogue: Catalogue) -> Iterator[Problem]:
    """Yield each course whose share its pool does not have, and each time at which not all fit."""
    host = next(iter(sorted(site.hosts.items())))[1]
    wished = host.wishes.bedplate_courses
    if not wished or lock.cluster is None:
        return
    known = rooms(lock, catalogue)
    classes: dict[str, list[Class]] = {}
    for place in listed(wished):
        course, decided = place.course, lock.cluster.courses.get(place.course.name)
        notebook = decided.notebook if decided is not None else Notebook()
        pools = decided.pools if decided is not None else dict.fromkeys(course.pool, 0)
        before, last = 0, course.pool[-1]
        for pool, seats in pools.items():
            room = known[pool]
            share = share_of(course, lock.pools[pool], room.gpus, catalogue)
            if isinstance(share, Wrong):
                path, fix = place.at("share"), share.fix
                of = wished[place.index]
                if place.size is not None and pool in of.pool and room.gpus.shares is not None:
                    # Other replicas would change the course's own share, and the size be equal.
                    fix = "write pool: another one for the size, or mode: dra for the pool"
                yield refused("course-share", host, path, share.got, share.allowed, fix)
                break
            others = [one for one in classes.get(pool, ()) if one.place.index == place.index]
            yield from _same(host, place, others, share, pool)
            most = None if pool == last else seats
            one = Class(place, course, share, notebook, before, most)
            classes.setdefault(pool, []).append(one)
            before += seats
        else:
            yield from _shm(host, place, notebook)
    for pool, members in classes.items():
        by_name = {one.name: one for one in members}
        for when, names in together({one.name: one.course.hours for one in members}):
            active = [by_name[name] for name in names]
            found = known[pool].answer(active)
            if found is not Answer.FITS:
                told = _told(known[pool], active, when, found)
                yield _too_much(host, known[pool], active, told, (lock, catalogue))


def _same(
    host: SiteHost, place: Listed, before: Sequence[Class], share: Share, pool: str
) -> Iterator[Problem]:
    """Refuse a size that is the course's own: nobody would wait for it."""
    of_node = {"memory", "cpus", "shm", "disk"}
    if place.size is None or place.own & of_node:
        return
    for one in before:
        if one.course.runs_at_once:
            continue  # Its notebooks hold no GPU; those of a size do.
        if one.share == share:
            got = f"{written(place.course)} of {pool}, which is a share of {one.name}"
            allowed = f"another share than that of {one.name}, or one in another pool"
            fix = "write a larger share, another pool, more memory of the host, or remove the size"
            yield refused("course-share", host, place.at("share"), got, allowed, fix)
            return


def _shm(host: SiteHost, place: Listed, notebook: Notebook) -> Iterator[Problem]:
    """Refuse a /dev/shm that takes all of a notebook's memory: what is in it counts as memory."""
    memory, shm = notebook.memory_mib, notebook.shm_mib
    if memory is not None and shm is not None and shm >= memory:
        got = f"{shm}Mi for /dev/shm of a notebook with {memory}Mi of memory"
        allowed, fix = "less than its memory, which it is a part of", f"write shm: {memory // 2}Mi"
        yield refused("course-share", host, place.at("shm"), got, allowed, fix)


def _told(room: Room, active: Sequence[Class], when: str, found: Answer) -> str:
    """Return what is asked for at once, and how far it is known not to fit."""
    told = " + ".join(f"{one.name} {_asked(one.course)}{written(one.course)}" for one in active)
    if teams := room.teams.get(_blamed(room, active).share.resource):
        told += f" + teams {teams}"
    told += " at once" + (f", {when}" if when != "always" else "")
    if found is Answer.NOT_PROVED:
        told += ", not proved to fit in the time of the search"
    return told


def _each(shares: int) -> str:
    """Return how many shares a student may have, where it is not one."""
    return f"{shares} {TIMES} " if shares > 1 else ""


def _asked(course: Course) -> str:
    """Return how many shares of what size a course asks for, the size left out."""
    if isinstance(course, OfSize):
        return f"{course.seats} {TIMES} "
    if course.runs_at_once:
        return f"{course.students} notebooks without a GPU and {course.seats} runs {TIMES} "
    return f"{course.students} {TIMES} {_each(course.per_user.shares)}"


def _blamed(room: Room, active: Sequence[Class]) -> Class:
    """Return the course that takes most: of sizes, where all have room without any of them."""
    sizes = [one for one in active if one.place.size is not None]
    courses = [one for one in active if one.place.size is None]
    if sizes and room.answer(courses) is Answer.FITS:
        active = sizes
    return max(active, key=lambda one: (one.seats * room.size(one.share), one.order))


def _too_much(
    host: SiteHost,
    room: Room,
    active: Sequence[Class],
    got: str,
    decided: tuple[Lock, Catalogue],
) -> Problem:
    """Return the refusal of the course that takes most, with what would fit in its place."""
    lock, catalogue = decided
    blamed = _blamed(room, active)
    key = _key(blamed.course)
    others = [one for one in active if one is not blamed]
    most = _largest(room, blamed, others, key)
    if not most and key == "runs_at_once":
        # Not one run fits: the notebooks themselves are too many.
        key = "students"
        most = _largest(room, blamed, others, key)
    path = blamed.place.at(key)
    gpus = f"{room.gpus.count} {room.gpus.model} of {room.pool}"
    gpus += f", {blamed.before} of them in pools before it" * bool(blamed.before)
    ways = [f"write {key}: {most}"] * bool(most)
    ways += _fewer(room, blamed, others)
    # GPUs alone would do: something else of the hosts is what lacks.
    if room.without_limits().answer(active) is Answer.FITS:
        binds, each = _of_hosts(room, active, lock, catalogue), 0
        ways += _more_of_hosts(room, blamed, others, lock, catalogue)
    else:
        binds, each = _binding(room, blamed, catalogue)
        if sum(one.number for one in room.taken(active)) <= room.pods:
            ways += _smaller(room, blamed, others, catalogue)
            ways += _other_mode(room, blamed, others, catalogue)
        if missing := _missing(room, active, blamed.share.resource):
            ways.append(f"add {missing} GPU{'s' * (missing > 1)}")
    allowed = f"{most} {COUNTED[key]} of {blamed.name} on {gpus}"
    allowed += f": {each} a GPU, bound by {binds}" if each else f": bound by {binds}"
    if any(one.course.hours for one in active) and others:
        ways.append("move one to other hours")
    return refused("course-fit", host, path, got, allowed, "; or ".join(ways) or "remove it")


def _pods(room: Room, lock: Lock, catalogue: Catalogue) -> str:
    """Return in words how many pods the nodes of a pool take."""
    most = node_pods(_settings(room, lock)[0], catalogue)
    own = most * sum(one.count for one in room.hosts) - room.pods
    return f"pods: a node takes {most}, and {own} of them are the cluster's own"


def _settings(room: Room, lock: Lock) -> tuple[Kubernetes, str]:
    """Return the settings of a pool's first node, and where its number of pods is set."""
    if lock.cluster is None:
        raise AssertionError("courses are a cluster's")
    host = next(one for _, one in sorted(lock.hosts.items()) if one.pool == room.pool)
    where = (
        "kubernetes_node_kubelet" if "maxPods" in host.kubelet else "bedplate_kubernetes.kubelet"
    )
    return settings_of(lock.cluster, host), where


def _lacking(room: Room, active: Sequence[Class]) -> list[int]:
    """Return what of the hosts alone is too little: with more of it all would have room."""
    indexes = range(len(OF_HOST))
    return [one for one in indexes if room.with_more(one).answer(active) is Answer.FITS]


def _of_hosts(room: Room, active: Sequence[Class], lock: Lock, catalogue: Catalogue) -> str:
    """Return in words what of the hosts limits the students."""
    lacking = _lacking(room, active)
    if not lacking or lacking[0] == PODS:
        pods = _pods(room, lock, catalogue)
        return pods if lacking else f"{pods}; memory, CPUs or disk of the hosts"
    least = _amount(lacking[0], min(one.also[lacking[0]] for one in room.hosts))
    return f"{OF_HOST[lacking[0]]} of the hosts: {least} of one are for notebooks"


def _amount(index: int, number: int) -> str:
    """Return so much of what hosts have, as a setting has it."""
    return f"{number / 1000:g}" if SETTINGS[index][0] == "cpus" else f"{number}Mi"


def _more_of_hosts(
    room: Room, blamed: Class, others: Sequence[Class], lock: Lock, catalogue: Catalogue
) -> Iterator[str]:
    """Yield what of the hosts or of the notebooks could be changed so that all have room."""
    for index in _lacking(room, [*others, blamed]):
        if index == PODS:
            yield from _more_pods(room, [*others, blamed], lock, catalogue)
            continue
        key, field = SETTINGS[index]
        low, high = 0, getattr(blamed.notebook, field) or 0
        while high - low > 1:
            middle = (low + high) // 2
            notebook = blamed.notebook.model_copy(update={field: middle})
            fits = room.answer([*others, replace(blamed, notebook=notebook)]) is Answer.FITS
            low, high = (middle, high) if fits else (low, middle)
        if low:
            yield f"write {key}: {_amount(index, low)}"


def _more_pods(
    room: Room, active: Sequence[Class], lock: Lock, catalogue: Catalogue
) -> Iterator[str]:
    """Yield the number of pods of a node at which all have room, as far as it has addresses."""
    kubernetes, where = _settings(room, lock)
    now = node_pods(kubernetes, catalogue)
    if kubelet_pods(kubernetes.kubelet, catalogue) > now:
        return  # Addresses are what lacks.

    def fits(most: int) -> bool:
        return room.with_more(PODS, most - now).answer(active) is Answer.FITS

    # As many as there are addresses for, if a node were asked for more than any has.
    wide = kubernetes.model_copy(update={"kubelet": {"maxPods": 2**20}})
    low, high = now, node_pods(wide, catalogue)
    if not fits(high):
        return
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    yield f"write {where}.maxPods: {high}"


def _largest(room: Room, blamed: Class, others: Sequence[Class], key: str) -> int:
    """Return the most students or runs, as *key* says, that are proved to fit with the others."""

    def fits(number: int) -> bool:
        course = blamed.course.model_copy(update={key: number})
        one = replace(blamed, course=course)
        return room.answer([*others, one]) is Answer.FITS

    low, high = 0, blamed.course.students if key == "students" else blamed.course.seats
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _key(course: Course) -> str:
    """Return the key that says how many shares a course holds at once."""
    if isinstance(course, OfSize):
        return "at_once"
    return "runs_at_once" if course.runs_at_once else "students"


def _fewer(room: Room, blamed: Class, others: Sequence[Class]) -> Iterator[str]:
    """Yield how many shares a student may have at most, where that is fewer than asked for."""
    limits = blamed.course.per_user
    if _key(blamed.course) != "students":
        return
    for shares in range(limits.shares - 1, 0, -1):
        less = limits.model_copy(update={"shares": shares})
        course = blamed.course.model_copy(update={"per_user": less})
        if room.answer([*others, replace(blamed, course=course)]) is Answer.FITS:
            yield f"write per_user: {{shares: {shares}}}"
            return


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
        need = sum(one.seats for one in [blamed, *others])
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
        one = replace(blamed, share=share)
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
    need = sum(one.seats for one in [blamed, *others]) + sum(room.teams.values())
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
    room, gpus = room.without_limits(), room.gpus
    taken = [one for one in room.taken(active) if one.resource == resource]
    if gpus.mode == "mig":
        return 0
    if gpus.shares:
        total = sum(one.number * one.size for one in taken)
        return -(-total // gpus.shares) - gpus.count
    low, high = 0, sum(one.number for one in taken)
    while high - low > 1:
        middle = (low + high) // 2
        fits = room.proved(taken, middle) is Answer.FITS
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
        share = course.share
        size = f"{share.count} GPU{'s' * (share.count > 1)}"
        size = size if share.user_mib is None else f"{share.user_mib}Mi"
        if course.notebook.memory_mib:
            size += f" and {memory(course.notebook.memory_mib)} of the host"
        if course.notebook.disk_mib:
            size += f" and {memory(course.notebook.disk_mib)} of disk"
        when = course.hours[0] if course.hours else "always"
        if others := course.hours[1:]:
            when += f" and {len(others)} more"
        more = sum(_least_left(known[pool], lock, name) for pool in course.pools)
        text = f"{name}: {course.students} {TIMES} {_each(course.per_user.shares)}{size}, {when}"
        if course.at_once:
            text = f"{name}: {course.seats} {TIMES} {size} for who needs more, {when}"
        if course.runs_at_once:
            runs = f"{course.seats} {TIMES} {size} at a time, {when}"
            text = f"{name}: {course.students} students, runs queue for {runs}"
        if course.then:
            text += f", {', then '.join(f'{n} in {pool}' for pool, n in course.pools.items())}"
        found.append((course.pool, f"{text}; {f'{more} left' if more else 'full'}"))
    return found


def _least_left(room: Room, lock: Lock, name: str) -> int:
    """Return how many more of a course a pool has room for, whenever the course takes place."""
    same = {other: one.hours for other, one in lock.courses.items() if room.pool in one.pools}
    left = (_left(room, lock, names, name) for _, names in together(same) if name in names)
    return min(left, default=0)


def _left(room: Room, lock: Lock, names: Sequence[str], name: str) -> int:
    """Return how many students more a course has room for while these take place, or runs."""
    courses = lock.courses

    def of(course: str, number: int) -> Taken:
        return room.of_course(number, courses[course].share, courses[course].notebook)

    taken = [*(of(one, courses[one].pools[room.pool]) for one in names), *room.of_teams()]
    taken += [
        room.of_notebooks(courses[one].students, courses[one].notebook)
        for one in names
        if courses[one].runs_at_once and courses[one].pool == room.pool
    ]
    counted = courses[name].runs_at_once or courses[name].at_once
    each = 1 if counted else courses[name].per_user.shares
    share = courses[name].share
    place, size = room.places(share.resource), room.size(share)
    low, high = 0, place.count * (place.has[0] // size) + 1 if size else 1
    while high - low > 1:
        middle = (low + high) // 2
        fits = room.proved([*taken, of(name, each * middle)]) is Answer.FITS
        low, high = (middle, high) if fits else (low, middle)
    return low
