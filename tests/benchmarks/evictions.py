"""How often fair sharing stops one job: a model of Kueue's rules, for many runs in a second.

Three teams with the weights 1, 1 and 2 share 64 GPUs; one comes first. As Kueue 0.19.2 does: each
team's oldest job is tried, that of the smallest share first; what does not fit makes room by a
strategy, of the largest share first, and there the newest job; else it is set apart until something
changes. A stopped job keeps the place of its creation (`creation`), or goes to the end of its queue
(`eviction`), which Kueue has no setting for. Nodes are left out, and so are an API's delays.
`python -m tests.benchmarks.evictions [JOBS]`; the real one is tests/schedulers/test_kueue_fairness.
"""

from __future__ import annotations

import itertools
import random
import sys
from dataclasses import dataclass, field
from statistics import mean
from typing import Literal, NamedTuple

Strategy = Literal["LessThanOrEqualToFinalShare", "LessThanInitialShare"]
Order = Literal["creation", "eviction"]
STRATEGIES: tuple[Strategy, ...] = ("LessThanOrEqualToFinalShare", "LessThanInitialShare")
ORDERS: tuple[Order, ...] = ("creation", "eviction")
WEIGHTS = {"one": 1.0, "two": 1.0, "double": 2.0}
GPUS = 64
FIRST = 10.0
"""Seconds after which the other teams come."""
CYCLE = 0.05
ENDING = (0.3, 1.0)
"""Seconds in which the pods of a stopped job end."""
SEEDS = range(43, 49)


@dataclass
class Job:
    """A job of one pod; times are seconds, `place` is its order in the team's queue."""

    number: int
    team: str
    gpus: int
    seconds: float
    place: float
    admitted: float = 0.0
    ends: float | None = None
    evictions: int = 0
    lost: float = 0.0


class Found(NamedTuple):
    """Evictions of a job at most and of all, jobs with any, and GPU seconds lost of all done."""

    most: int
    evictions: int
    jobs: int
    lost: float


@dataclass
class Cluster:
    """The queues and what runs. A job in `ending` was stopped, and holds its GPUs until then."""

    strategy: Strategy
    order: Order
    chance: random.Random
    waiting: list[Job]
    running: list[Job] = field(default_factory=list)
    ending: dict[int, float] = field(default_factory=dict)
    apart: set[int] = field(default_factory=set)

    def used(self, team: str) -> int:
        """Return the GPUs of a team."""
        return sum(job.gpus for job in self.running if job.team == team)

    def advance(self, now: float) -> None:
        """End what is done, and put back what was stopped."""
        before = len(self.running)
        for job in list(self.running):
            if job.number in self.ending:
                if self.ending[job.number] > now:
                    continue
                del self.ending[job.number]
                if self.order == "eviction":
                    job.place = 1e9 + now
                self.waiting.append(job)
            elif job.ends is None or job.ends > now:
                continue
            self.running.remove(job)
        if len(self.running) < before:
            self.apart.clear()

    def cycle(self, now: float) -> None:
        """Try the head of each team's queue."""
        present = [job for job in self.waiting if job.team == "one" or now >= FIRST]
        queues = itertools.groupby(
            sorted(present, key=lambda job: (job.team, job.place)), key=lambda job: job.team
        )
        heads = [
            next((job for job in jobs if job.number not in self.apart), None) for _, jobs in queues
        ]
        kept = 0
        for job in sorted(
            filter(None, heads),
            key=lambda job: ((self.used(job.team) + job.gpus) / WEIGHTS[job.team], job.place),
        ):
            free = GPUS - sum(one.gpus for one in self.running) - kept
            if job.gpus <= free:
                self.waiting.remove(job)
                self.running.append(job)
                job.admitted, job.ends = now, now + job.seconds
            elif victims := self.victims(job, free):
                kept += job.gpus
                for one in victims:
                    self.stop(one, now)
            else:
                self.apart.add(job.number)

    def victims(self, job: Job, free: int) -> list[Job]:
        """Return whom a job may stop to fit, none where that is not enough."""
        used = {team: self.used(team) for team in WEIGHTS}
        used[job.team] += job.gpus
        new = used[job.team] / WEIGHTS[job.team]
        found: list[Job] = []
        left = {
            team: sorted(
                (one for one in self.running if one.team == team),
                key=lambda one: (one.number not in self.ending, -one.admitted),
            )
            for team in WEIGHTS
            if team != job.team
        }
        while free < job.gpus and any(left.values()):
            team = max(
                (team for team in left if left[team]), key=lambda team: used[team] / WEIGHTS[team]
            )
            one = left[team].pop(0)
            final = (used[team] - one.gpus) / WEIGHTS[team]
            old = used[team] / WEIGHTS[team]
            if new <= final if self.strategy == STRATEGIES[0] else new < old:
                used[team] -= one.gpus
                free += one.gpus
                found.append(one)
        if free < job.gpus:
            return []
        for one in list(found):
            if free - one.gpus >= job.gpus:
                found.remove(one)
                free -= one.gpus
        return found

    def stop(self, job: Job, now: float) -> None:
        """Stop a job that isn't stopped yet."""
        if job.number not in self.ending:
            self.ending[job.number] = now + self.chance.uniform(*ENDING)
            job.evictions += 1
            job.lost += job.gpus * (now - job.admitted)


def run(jobs: int, strategy: Strategy, order: Order, seed: int) -> Found:
    """Let all jobs run to their end."""
    chance = random.Random(seed)  # noqa: S311
    numbers = itertools.count()
    all_jobs = [
        Job(number, team, chance.choice([1, 2, 4]), chance.uniform(6, 18), number)
        for team, weight in WEIGHTS.items()
        for _ in range(int(jobs * weight / sum(WEIGHTS.values())))
        for number in [next(numbers)]
    ]
    cluster = Cluster(strategy, order, chance, list(all_jobs))
    now = 0.0
    while cluster.waiting or cluster.running:
        cluster.advance(now)
        cluster.cycle(now)
        now += CYCLE
    counts = [job.evictions for job in all_jobs]
    done = sum(job.gpus * job.seconds for job in all_jobs)
    lost = sum(job.lost for job in all_jobs) / done
    return Found(max(counts), sum(counts), sum(count > 0 for count in counts), lost)


def main() -> int:
    """Print a line for each strategy and order: the largest of all seeds, and means."""
    jobs = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    print(f"{jobs} jobs, seeds {SEEDS[0]} to {SEEDS[-1]}")
    for strategy, order in itertools.product(STRATEGIES, ORDERS):
        found = [run(jobs, strategy, order, seed) for seed in SEEDS]
        print(
            f"{strategy}, by {order}: of one job at most {max(one.most for one in found)}; "
            f"evictions {mean(one.evictions for one in found):.0f} of "
            f"{mean(one.jobs for one in found):.0f} jobs; "
            f"GPU seconds lost {100 * mean(one.lost for one in found):.1f} %"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
