"""What the nodes of a pool have for courses, and whether students of some have room at once.

Shares of equal size are a host's: any GPU of it gives them. Claims by memory are a GPU's, and a
host has several. What a host has besides its GPUs (places for pods) is counted with them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bedplate.courses import packing
from bedplate.courses.packing import Answer, Kind, Places, Sizes
from bedplate.lock.offers import offered
from bedplate.resolver.course_shares import gpus_of
from bedplate.resolver.node_pods import for_users

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bedplate.catalogue import Catalogue
    from bedplate.courses.sizes import Gpus
    from bedplate.lock import Lock
    from bedplate.lock.courses import Notebook, Share
    from bedplate.site.courses import Course, Listed

#: What hosts have besides GPUs, as `Free` has it: where it is not known, nothing is counted.
OF_HOST = ("pods", "memory", "CPUs", "disk")
LIMITLESS = 2**62
#: The resource of pods without a GPU.
NO_GPU = ""
#: A pod of which no more is known than its place among kubelet's pods.
ONE_POD: Sizes = (1, 0, 0, 0)


@dataclass(frozen=True)
class Class:
    """A course or a size of one, where it is written, and what each student's pod asks for.

    Of one in several pools, `before` are the shares that earlier pools have, and `most` is how many
    this one takes, all that are left where it is the last.
    """

    place: Listed
    course: Course
    share: Share
    notebook: Notebook
    before: int = 0
    most: int | None = None

    @property
    def seats(self) -> int:
        """Return how many shares of the course the pool has at once."""
        left = max(self.course.seats - self.before, 0)
        return left if self.most is None else min(left, self.most)

    @property
    def name(self) -> str:
        """Return the course's name."""
        return self.course.name

    @property
    def order(self) -> tuple[int, int]:
        """Return what sorts courses as they are written."""
        return self.place.index, -1 if self.place.size is None else self.place.size


@dataclass(frozen=True)
class Taken:
    """Pods that are alike: how many, of which resource, its size, and what else each takes."""

    number: int
    resource: str
    size: int
    also: Sizes = ONE_POD


@dataclass(frozen=True)
class Hosts:
    """Hosts that are alike: how many, and what each has besides its GPUs."""

    count: int
    also: Sizes


@dataclass(frozen=True)
class Room:
    """What courses of a pool can have: its GPUs and hosts, and how much of it is a team's."""

    pool: str
    gpus: Gpus
    capacity: Mapping[str, int]
    teams: Mapping[str, int]
    hosts: tuple[Hosts, ...]

    @property
    def pods(self) -> int:
        """Return how many pods of users all hosts take."""
        return sum(one.count * one.also[0] for one in self.hosts)

    def places(self, resource: str) -> Places:
        """Return where shares of a resource are, whatever else hosts have: GPUs, or hosts."""
        if self.gpus.mode == "dra":
            # A team's GPUs are whole ones.
            return Places(self.gpus.count - self.teams.get(resource, 0), (self.gpus.memory or 0,))
        count = self.gpus.count // (self.gpus.per_host or 1)
        return Places(count, (self.capacity.get(resource, 0) // count if count else 0,))

    def size(self, share: Share) -> int:
        """Return what a student takes of a place."""
        if self.gpus.mode == "dra":
            return share.memory_mib or (self.gpus.memory or 0) * share.count
        return share.count

    def taken(self, classes: Iterable[Class]) -> list[Taken]:
        """Return the pods of some courses, and those that teams are guaranteed."""
        classes = list(classes)
        found = [self.of_course(one.seats, one.share, one.notebook) for one in classes]
        found += [
            self.of_notebooks(one.course.students, one.notebook)
            for one in classes
            if one.course.runs_at_once and one.course.pool[0] == self.pool
        ]
        return [*found, *self.of_teams()]

    def of_course(self, number: int, share: Share, notebook: Notebook) -> Taken:
        """Return so many pods of a course: a share on request has what a notebook has."""
        return Taken(number, share.resource, self.size(share), _also(notebook))

    def of_notebooks(self, number: int, notebook: Notebook) -> Taken:
        """Return so many notebooks without a GPU."""
        return Taken(number, NO_GPU, 0, _also(notebook))

    def of_teams(self) -> list[Taken]:
        """Return a pod for each unit that teams are guaranteed; whole GPUs have places apart."""
        return [
            Taken(number, resource, 0 if self.gpus.mode == "dra" else 1)
            for resource, number in sorted(self.teams.items())
            if number
        ]

    def answer(self, classes: Sequence[Class]) -> Answer:
        """Tell whether all students of some courses have room at once."""
        return self.proved(self.taken(classes))

    def proved(self, taken: Sequence[Taken], more: int = 0) -> Answer:
        """Tell whether pods have room, with *more* hosts, or GPUs of mode dra, than there are."""
        taken = [one for one in taken if one.number]
        binding = self._binding(taken)
        if not binding:
            return self._by_resource(taken, more)
        hosts = [
            replace(one, also=tuple(one.also[index] for index in binding)) for one in self.hosts
        ]
        pods = [replace(one, also=tuple(one.also[index] for index in binding)) for one in taken]
        if self.gpus.mode == "dra":
            return self._on_gpus(pods, hosts, more)
        resources = sorted(self.capacity)
        each = tuple(self.places(resource).has[0] for resource in resources)
        if hosts and more:
            hosts = [*hosts, Hosts(more, max(one.also for one in hosts))]
        places = [Places(one.count, (*each, *one.also)) for one in hosts]
        return packing.answer(places, _kinds(pods, resources))

    def without_limits(self) -> Room:
        """Return the same GPUs on hosts of which nothing else is counted."""
        return replace(self, hosts=())

    def with_more(self, index: int, more: int = LIMITLESS) -> Room:
        """Return the room with more of one of what hosts have besides GPUs."""
        hosts = [
            Hosts(one.count, (*one.also[:index], one.also[index] + more, *one.also[index + 1 :]))
            for one in self.hosts
        ]
        return replace(self, hosts=tuple(hosts))

    def _binding(self, taken: Sequence[Taken]) -> list[int]:
        """Return what hosts have besides GPUs that could be full before their GPUs are."""
        found = []
        for index in range(len(ONE_POD)):
            least = min((one.also[index] for one in self.hosts), default=None)
            if least is None or sum(one.number * one.also[index] for one in taken) <= least:
                continue
            apart = sum(one.number * one.also[index] for one in taken if not one.size)
            of_host: dict[str, int] = {}
            for one in taken:
                if one.size:
                    fits = -(-self.places(one.resource).has[0] // one.size) * one.also[index]
                    fits *= self.gpus.per_host if self.gpus.mode == "dra" else 1
                    of_host[one.resource] = max(of_host.get(one.resource, 0), fits)
            if sum(of_host.values()) + apart > least:
                found.append(index)
        return found

    def _by_resource(self, taken: Sequence[Taken], more: int) -> Answer:
        """Tell whether pods have room where only GPUs are counted."""
        worst = Answer.FITS
        for resource in sorted({one.resource for one in taken} - {NO_GPU}):
            place = self.places(resource)
            sizes: Counter[int] = Counter()
            for one in taken:
                if one.resource == resource and one.size:
                    sizes[one.size] += one.number
            kinds = [Kind(number, (size,)) for size, number in sorted(sizes.items())]
            found = packing.answer([Places(place.count + more, place.has)], kinds)
            if found is not Answer.FITS:
                worst = found if worst is not Answer.TOO_MUCH else worst
        return worst

    def _on_gpus(self, taken: Sequence[Taken], hosts: Sequence[Hosts], more: int) -> Answer:
        """Tell whether claims have room on GPUs whose hosts could be full before them.

        It is proved by a packing of the GPUs that can be dealt to the hosts, or in which each GPU
        has its part of the host; refuted by a packing that GPUs or hosts alone have no room for.
        """
        if (found := self._by_resource(taken, more)) is not Answer.FITS:
            return found
        for index in range(len(taken[0].also)):
            has = sum(one.count * one.also[index] for one in hosts)
            if sum(one.number * one.also[index] for one in taken) > has:
                return Answer.TOO_MUCH
        # Pods of teams have GPUs of their own, and are on any host.
        own = [one.also for one in taken if not one.size and one.resource != NO_GPU
               for _ in range(one.number)]  # fmt: skip
        apart = [(one.also, one.number) for one in taken if one.resource == NO_GPU]
        place = self.places(taken[0].resource)
        kinds = _kinds([one for one in taken if one.size], [taken[0].resource])
        bare = [Kind(kind.number, kind.takes[:1]) for kind in kinds]
        for contents in packing.filled([place], bare):
            loads = [*own]
            for content in contents:
                each = zip(*(kind.takes[1:] for kind in kinds), strict=True)
                held = tuple(
                    sum(many * take for many, take in zip(content, of, strict=True)) for of in each
                )
                loads.append(held)
            if _dealt(loads, apart, hosts, self.gpus.per_host):
                return Answer.FITS
        parts = [
            Places(one.count * self.gpus.per_host,
                   (*place.has, *(part // self.gpus.per_host for part in one.also)))
            for one in hosts
        ]  # fmt: skip
        alone = not (own or apart or more)
        found = Answer.NOT_PROVED if not alone else packing.answer(parts, kinds)
        return Answer.FITS if found is Answer.FITS else Answer.NOT_PROVED


def _also(notebook: Notebook) -> Sizes:
    return 1, notebook.memory_mib or 0, notebook.cpu_milli or 0, notebook.disk_mib or 0


def _kinds(taken: Sequence[Taken], resources: Sequence[str]) -> list[Kind]:
    """Return pods as shares of hosts: their resource, and what else they take."""
    numbers: Counter[Sizes] = Counter()
    for one in taken:
        own = tuple(one.size if resource == one.resource else 0 for resource in resources)
        numbers[(*own, *one.also)] += one.number
    return [Kind(number, takes) for takes, number in sorted(numbers.items())]


def _dealt(
    loads: Sequence[Sizes], apart: Sequence[tuple[Sizes, int]], hosts: Sequence[Hosts], slots: int
) -> bool:
    """Tell whether GPUs with such contents can be dealt to hosts, the fullest first.

    Args:
        loads: of each GPU, what its pods take besides.
        apart: pods that have what is left, the largest first: what one takes, and how many.
        hosts: what is dealt to.
        slots: the GPUs of each host.
    """
    left = [[*one.also] for one in hosts for _ in range(one.count)]
    free = [slots] * len(left)
    for load in sorted(loads, reverse=True):
        able = [
            index
            for index, has in enumerate(left)
            if free[index] and all(h >= need for h, need in zip(has, load, strict=True))
        ]
        if not able:
            return False
        best = max(able, key=lambda index: (left[index], -index))
        free[best] -= 1
        left[best] = [h - need for h, need in zip(left[best], load, strict=True)]
    for load, number in sorted(apart, reverse=True):
        wanted = number
        for has in left:
            fit = min([wanted, *(h // need for h, need in zip(has, load, strict=True) if need)])
            has[:] = [h - fit * need for h, need in zip(has, load, strict=True)]
            wanted -= fit
        if wanted:
            return False
    return True


def rooms(lock: Lock, catalogue: Catalogue) -> dict[str, Room]:
    """Return what each pool of nodes has for courses; quotas of teams are not theirs."""
    cluster = lock.cluster
    if cluster is None:
        return {}
    free, hosts = for_users(lock, catalogue), Counter[tuple[str, Sizes]]()
    for name, host in lock.hosts.items():
        has = tuple(LIMITLESS if one is None else one for one in free[name])
        hosts[host.pool or "", has] += 1
    found = {}
    for name, pool in lock.pools.items():
        if pool.expects is None or pool.expects.by == "slurm":
            continue
        found_hosts = sorted((has, count) for (of, has), count in hosts.items() if of == name)
        its = tuple(Hosts(count, has) for has, count in found_hosts)
        teams: dict[str, int] = {}
        for team, one in cluster.teams.items():
            for resource, quota in one.gpus.get(name, {}).items():
                if team not in cluster.courses:
                    teams[resource] = teams.get(resource, 0) + quota.guaranteed
        gpus = gpus_of(pool, sum(one.count for one in its), catalogue)
        found[name] = Room(name, gpus, offered(lock, name), teams, its)
    return found
