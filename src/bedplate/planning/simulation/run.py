"""What happens over time: jobs arrive, are taken from their queues, run, and end.

Nothing here is random and nothing is the clock's: the same jobs on the same lock do the same.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from bedplate.planning.simulation.refusals import Why, never, now, pools_for
from bedplate.planning.simulation.rooms import NOTHING, Rooms
from bedplate.planning.simulation.supply import use_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bedplate.planning.simulation.jobs import Request, Row
    from bedplate.planning.simulation.rooms import Place
    from bedplate.planning.simulation.supply import Supply, Team


@dataclass
class Job:
    """One job, from its arrival on; `past` are its runs that were stopped: where, from, to."""

    row: Row
    number: int
    priority: int
    place: Place | None = None
    started: int | None = None
    ended: int | None = None
    why: Why | None = None
    waits: Counter[Why] = field(default_factory=Counter)
    past: list[tuple[Place, int, int]] = field(default_factory=list)

    @property
    def evictions(self) -> int:
        """Return how often it was stopped to make room, and lost what it had done."""
        return len(self.past)

    @property
    def waited(self) -> int:
        """Return the seconds that it waited, as far as the simulation went."""
        return sum(self.waits.values())


@dataclass(frozen=True)
class Moment:
    """The site from a second on, until the next moment.

    `used` is GPUs in use by pool, `free` those that no job has, `lost` those of them that are in
    pieces too small.
    """

    time: int
    running: int
    waiting: int
    used: dict[str, Fraction]
    free: Fraction
    lost: Fraction


@dataclass(frozen=True)
class Outcome:
    """What came of all jobs. `end` is the second after which nothing changes any more."""

    jobs: tuple[Job, ...]
    moments: tuple[Moment, ...]
    end: int


def kinds_of(rows: Sequence[Row]) -> list[tuple[Request, Fraction]]:
    """Return the different requests for GPUs, each with its part of all such jobs."""
    count: Counter[Request] = Counter()
    for row in rows:
        if row.request.on_gpu:
            count[row.request] += row.count
    total = sum(count.values())
    return [(request, Fraction(number, total)) for request, number in sorted(count.items())]


def simulate(supply: Supply, rows: Sequence[Row]) -> Outcome:
    """Run all jobs of the file on the site."""
    return Simulation(supply, rows).outcome()


class Simulation:
    """The state of queues and nodes at one moment."""

    def __init__(self, supply: Supply, rows: Sequence[Row]) -> None:
        self.supply, self.policy = supply, supply.policy
        self.jobs: list[Job] = []
        self.doomed: dict[tuple[str, Request], Why | None] = {}
        self.pools: dict[tuple[str, Request], list[str]] = {}
        fits = []
        for row in rows:
            key = (row.team, row.request)
            if key not in self.doomed:
                self.doomed[key] = never(supply, row.team, row.request)
                self.pools[key] = pools_for(supply, row.team, row.request)
            if self.doomed[key] is None:
                fits.append(row)
            team = supply.teams.get(row.team)
            priority = row.priority if row.priority is not None else team.priority if team else 0
            for _ in range(row.count):
                self.jobs.append(Job(row, len(self.jobs), priority, why=self.doomed[key]))
        self.rooms = Rooms(supply.nodes, kinds_of(fits))
        self.queues: dict[str, dict[tuple[int, Request], deque[Job]]] = defaultdict(dict)
        self.running: dict[int, Job] = {}
        self.units: Counter[tuple[str, str]] = Counter()
        self.used = dict.fromkeys(supply.pools, NOTHING)
        self.ends: list[tuple[int, int, int]] = []
        self.waiting = 0

    def outcome(self) -> Outcome:
        """Go from event to event until nothing changes any more."""
        arrivals = deque(
            sorted(
                (job for job in self.jobs if job.why is None),
                key=lambda job: (job.row.arrival, job.number),
            )
        )
        moments: list[Moment] = []
        time = 0
        while arrivals or self.ends:
            after = min(
                [job.row.arrival for job in list(arrivals)[:1]] + [end[0] for end in self.ends[:1]]
            )
            self._wait(after - time)
            time = after
            while self.ends and self.ends[0][0] == time:
                _, number, started = heapq.heappop(self.ends)
                job = self.running.get(number)
                if job is not None and job.started == started:
                    self._release(job)
                    job.ended = time
            while arrivals and arrivals[0].row.arrival == time:
                self._queue(arrivals.popleft())
            self._schedule(time)
            moments.append(self._moment(time))
        return Outcome(tuple(self.jobs), tuple(moments), time)

    def _moment(self, time: int) -> Moment:
        total = sum(self.supply.total(pool) for pool in self.used)
        free = total - sum(self.used.values(), NOTHING)
        running = len(self.running)
        return Moment(time, running, self.waiting, dict(self.used), free, self.rooms.fragmentation)

    def _wait(self, seconds: int) -> None:
        if seconds:
            for job in self._waiting():
                if job.why is not None:
                    job.waits[job.why] += seconds

    def _waiting(self) -> Iterator[Job]:
        for classes in self.queues.values():
            for jobs in classes.values():
                yield from jobs

    def _queue(self, job: Job, *, first: bool = False) -> None:
        classes = self.queues[job.row.team]
        same = classes.setdefault((job.priority, job.row.request), deque())
        if first:
            at = sum(_age(other) < _age(job) for other in same)
            same.insert(at, job)
        else:
            same.append(job)
        self.waiting += 1

    def _schedule(self, time: int) -> None:
        """Start all that can start now; of every other job, note why it waits."""
        tried: dict[tuple[str, int, Request], Why] = {}
        blocked: dict[str, Job] = {}
        while (job := self._next(tried, blocked)) is not None:
            team, request = job.row.team, job.row.request
            place, why = self._place(job)
            if place is None and (victims := self._victims(job)):
                for victim in victims:
                    self._release(victim)
                    if victim.place is not None and victim.started is not None:
                        victim.past.append((victim.place, victim.started, time))
                    victim.place = victim.started = None
                    self._queue(victim, first=True)
                place, why = self._place(job)
                tried.clear()
                blocked.clear()
            if place is not None:
                self._start(job, place, time)
            elif why is not None:
                tried[team, job.priority, request] = why
                job.why = why
                if self.policy.strict:
                    blocked[team] = job
        self._explain(tried, blocked)

    def _next(
        self, tried: dict[tuple[str, int, Request], Why], blocked: dict[str, Job]
    ) -> Job | None:
        """Return the job that is first in line: of each team's queue the head, then by rank."""
        heads = []
        for team, classes in self.queues.items():
            if team in blocked:
                continue
            of_team = [
                jobs[0]
                for (priority, request), jobs in classes.items()
                if jobs and (team, priority, request) not in tried
            ]
            if of_team:
                heads.append(min(of_team, key=lambda job: (-job.priority, *_age(job))))
        return min(heads, key=self._rank) if heads else None

    def _rank(self, job: Job) -> tuple[float, int, int, int]:
        """Rank who borrows (in fair sharing, who borrows more) behind who does not."""
        team = self.supply.teams.get(job.row.team)
        borrowed = 0.0
        if team is not None:
            over = [
                (self.units[team.name, pool] + 1 - quota.guaranteed)
                / (self.supply.units(pool) or 1)
                for pool, quota in sorted(team.quotas.items())
            ]
            borrowed = max(0.0, *over) / team.weight if over else 0.0
        first = borrowed if self.policy.fair else float(borrowed > 0)
        return (first, -job.priority, *_age(job))

    def _place(self, job: Job) -> tuple[Place | None, Why | None]:
        """Return where a job goes, or why nowhere."""
        request, team = job.row.request, job.row.team
        reasons = []
        for pool in self.pools[team, request]:
            why = now(self.supply, self.rooms, self.units, team, request, pool)
            if why is None:
                place = self.rooms.best(request, pool or None, self.policy.place)
                if place is not None:
                    return place, None
            else:
                reasons.append(why)
        return None, reasons[0]

    def _start(self, job: Job, place: Place, time: int) -> None:
        self.queues[job.row.team][job.priority, job.row.request].popleft()
        self.waiting -= 1
        job.place, job.started, job.why = place, time, None
        self._count(job, 1)
        self.running[job.number] = job
        if job.row.duration is not None:
            heapq.heappush(self.ends, (time + job.row.duration, job.number, time))

    def _release(self, job: Job) -> None:
        self._count(job, -1)
        del self.running[job.number]

    def _count(self, job: Job, sign: int) -> None:
        place = job.place
        if place is None:
            raise AssertionError("a job that runs has a place")
        room = self.rooms.of[place.node]
        before = sum((room.free(index) for index in place.gpus), NOTHING)
        self.rooms.take(place, job.row.request, sign)
        if place.gpus:
            after = sum((room.free(index) for index in place.gpus), NOTHING)
            self.used[place.pool] += before - after
            self.units[job.row.team, place.pool] += sign * place.use.units

    def _victims(self, job: Job) -> list[Job]:
        """Return the jobs that a preset has leave for this one, none if that would not help."""
        team = self.supply.teams.get(job.row.team)
        if team is None or (self.policy.reclaim == "Never" and self.policy.preemption == "Never"):
            return []
        for pool in self.pools[job.row.team, job.row.request]:
            taken: list[Job] = []
            for victim in sorted(self.running.values(), key=_last_to_come):
                if not self._yields(victim, job, team, pool):
                    continue
                self._count(victim, -1)
                taken.append(victim)
                if (
                    now(self.supply, self.rooms, self.units, team.name, job.row.request, pool)
                    is None
                ):
                    break
            else:
                for victim in reversed(taken):
                    self._count(victim, 1)
                continue
            needed = self._needed(taken, job, pool)
            for victim in needed:
                self._count(victim, 1)  # they are released for good by the caller
            return needed
        return []

    def _needed(self, taken: Sequence[Job], job: Job, pool: str) -> list[Job]:
        """Let those stay without whose place the job has room as well; the others are out."""
        needed = list(taken)
        for victim in taken:
            self._count(victim, 1)
            why = now(self.supply, self.rooms, self.units, job.row.team, job.row.request, pool)
            if why is None:
                needed.remove(victim)
            else:
                self._count(victim, -1)
        return needed

    def _yields(self, victim: Job, job: Job, team: Team, pool: str) -> bool:
        if victim.place is None or victim.place.pool != pool:
            return False
        lower = victim.priority < job.priority
        if victim.row.team == job.row.team:
            how = self.policy.preemption
            newer = victim.priority == job.priority and _age(victim) > _age(job)
            return (how != "Never" and lower) or (how == "LowerOrNewerEqualPriority" and newer)
        if self.policy.reclaim == "Never" or victim.row.team not in self.supply.teams:
            return False
        mine, its = (self.supply.quota(name, pool) for name in (team.name, victim.row.team))
        gpu = next(gpu for gpu in self.supply.kinds(pool) if use_of(gpu, job.row.request))
        use = use_of(gpu, job.row.request)
        if mine is None or its is None or use is None:
            return False
        within = self.units[team.name, pool] + use.units <= mine.guaranteed
        borrows = self.units[victim.row.team, pool] > its.guaranteed
        return within and borrows and (self.policy.reclaim == "Any" or lower)

    def _explain(self, tried: dict[tuple[str, int, Request], Why], blocked: dict[str, Job]) -> None:
        for team, classes in self.queues.items():
            head = blocked.get(team)
            for (priority, request), jobs in classes.items():
                why = tried.get((team, priority, request))
                for job in jobs:
                    if head is not None and job.row is head.row:
                        job.why = head.why
                    elif head is not None:
                        text = f"behind {head.row.name} in the queue, which is strict"
                        job.why = Why("behind", text)
                    elif why is not None:
                        job.why = why


def _age(job: Job) -> tuple[int, int]:
    return job.row.arrival, job.number


def _last_to_come(job: Job) -> tuple[int, int, int]:
    return job.priority, -(job.started or 0), -job.number
