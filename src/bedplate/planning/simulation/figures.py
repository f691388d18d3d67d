"""The figures of a simulation: what table, JSON and page show of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from bedplate.planning.simulation.run import kinds_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from fractions import Fraction

    from bedplate.planning.simulation.fit import Fit
    from bedplate.planning.simulation.jobs import Row
    from bedplate.planning.simulation.modes import Way
    from bedplate.planning.simulation.run import Moment, Outcome
    from bedplate.planning.simulation.supply import Supply

FORMULA = (
    "sum over the kinds of jobs: the kind's part of all GPU jobs x the free GPUs that it cannot "
    "use (pieces smaller than it asks for, and whole GPUs on nodes with fewer than it needs)"
)


@dataclass(frozen=True)
class PoolFigures:
    """How much of a pool is in use, in GPUs: on average over time, and at most."""

    name: str
    gpus: int
    gives: str
    mean: float
    most: float


@dataclass(frozen=True)
class RowFigures:
    """What became of the jobs of one row. Times are seconds; `why` is what held them longest."""

    row: Row
    started: int
    pools: tuple[str, ...]
    waited: int
    mean_wait: float
    longest_wait: int
    evictions: int
    why: str

    @property
    def waiting(self) -> int:
        """Return how many did not start."""
        return self.row.count - self.started


@dataclass(frozen=True)
class Fragmentation:
    """GPUs that are free in pieces too small: on average, and at most, and of how many free."""

    mean: float
    mean_free: float
    most: float
    most_free: float
    most_at: int


@dataclass(frozen=True)
class Report:
    """A whole simulation."""

    site: str
    file: str
    supply: Supply
    rows: tuple[Row, ...]
    outcome: Outcome
    fit: Fit
    ways: tuple[Way, ...]

    @property
    def jobs(self) -> int:
        """Return how many jobs there are."""
        return len(self.outcome.jobs)

    @property
    def never(self) -> int:
        """Return how many jobs did not start."""
        return sum(job.started is None for job in self.outcome.jobs)

    @cached_property
    def most_running(self) -> Moment | None:
        """Return the first moment at which most jobs run."""
        return max(self.outcome.moments, key=lambda one: (one.running, -one.time), default=None)

    @cached_property
    def pools(self) -> list[PoolFigures]:
        """Return the use of each pool."""
        found = []
        for pool in self.supply.pools:
            kinds = self.supply.kinds(pool)
            gives = " or ".join(f"{one.gives} of {one.model} ({one.mode})" for one in kinds)
            mean = self._mean(lambda one, pool=pool: one.used[pool])  # type: ignore[misc]
            most = max((one.used[pool] for one in self.outcome.moments), default=0)
            found.append(PoolFigures(pool, self.supply.total(pool), gives, mean, float(most)))
        return found

    @cached_property
    def fragmentation(self) -> Fragmentation:
        """Return how many free GPUs are in pieces too small."""
        moments = self.outcome.moments
        if not moments:
            return Fragmentation(0, 0, 0, 0, 0)
        worst = max(moments, key=lambda one: (one.lost, -one.time))
        return Fragmentation(
            self._mean(lambda one: one.lost),
            self._mean(lambda one: one.free),
            float(worst.lost),
            float(worst.free),
            worst.time,
        )

    @cached_property
    def kinds(self) -> list[tuple[str, float]]:
        """Return the kinds of GPU jobs with their part of all of them."""
        return [(str(request), float(part)) for request, part in kinds_of(self.rows)]

    @cached_property
    def by_row(self) -> list[RowFigures]:
        """Return what became of each row's jobs."""
        of_row: dict[int, list[Any]] = {}
        for job in self.outcome.jobs:
            of_row.setdefault(job.row.line, []).append(job)
        found = []
        for row in self.rows:
            jobs = of_row[row.line]
            held: Counter[str] = Counter()
            for job in jobs:
                held.update({why.text: seconds for why, seconds in job.waits.items()})
                if job.why is not None:
                    held[job.why.text] += self.outcome.end + 1  # it is what still holds the job
            waited = [job.waited for job in jobs]
            found.append(
                RowFigures(
                    row,
                    sum(job.started is not None for job in jobs),
                    tuple(sorted({job.place.pool for job in jobs if job.place and job.place.pool})),
                    sum(
                        one > 0 or job.started is None
                        for one, job in zip(waited, jobs, strict=True)
                    ),
                    sum(waited) / len(waited),
                    max(waited),
                    sum(job.evictions for job in jobs),
                    min(held, key=lambda text: (-held[text], text), default=""),
                )
            )
        return found

    def _mean(self, of: Callable[[Moment], Fraction]) -> float:
        """Return the mean over time; of a single moment, its value."""
        moments = self.outcome.moments
        if not moments:
            return 0.0
        length = self.outcome.end - moments[0].time
        if not length:
            return float(of(moments[-1]))
        spans = pairwise(moments)
        return float(sum(of(one) * (after.time - one.time) for one, after in spans) / length)


def content(report: Report) -> dict[str, Any]:
    """Return the object that `--format json` prints; GPUs are numbers, times seconds."""
    most = report.most_running
    lost = report.fragmentation
    return {
        "ok": report.never == 0,
        "site": report.site,
        "jobs": report.jobs,
        "at_once": {
            "at_least": report.fit.least,
            "at_most": report.fit.most,
            "proved": report.fit.proved,
            "impossible": report.fit.impossible,
        },
        "over_time": {
            "most_running": most.running if most else 0,
            "at": most.time if most else 0,
            "started": report.jobs - report.never,
            "never_started": report.never,
            "end": report.outcome.end,
        },
        "rows": [_row(one) for one in report.by_row],
        "pools": [
            {
                "pool": one.name,
                "gpus": one.gpus,
                "gives": one.gives,
                "used_mean": _round(one.mean),
                "used_most": _round(one.most),
            }
            for one in report.pools
        ],
        "fragmentation": {
            "formula": FORMULA,
            "kinds": [{"asks": text, "part": _round(part)} for text, part in report.kinds],
            "mean_gpus": _round(lost.mean),
            "mean_free_gpus": _round(lost.mean_free),
            "most_gpus": _round(lost.most),
            "most_free_gpus": _round(lost.most_free),
            "most_at": lost.most_at,
        },
        "other_modes": [_way(one) for one in report.ways],
        "moments": [
            {
                "time": one.time,
                "running": one.running,
                "waiting": one.waiting,
                "used_gpus": {pool: _round(float(used)) for pool, used in one.used.items()},
                "free_gpus": _round(float(one.free)),
                "fragmented_gpus": _round(float(one.lost)),
            }
            for one in report.outcome.moments
        ],
        "policy": {
            "preset": report.supply.policy.named or None,
            "strict_fifo": report.supply.policy.strict,
            "fair_sharing": report.supply.policy.fair,
            "reclaim": report.supply.policy.reclaim,
            "preemption": report.supply.policy.preemption,
            "placement": report.supply.policy.place,
        },
        "notes": list(report.supply.notes),
    }


def _row(one: RowFigures) -> dict[str, Any]:
    return {
        "name": one.row.name,
        "line": one.row.line,
        "team": one.row.team or None,
        "asks": str(one.row.request),
        "jobs": one.row.count,
        "started": one.started,
        "pools": list(one.pools),
        "waited": one.waited,
        "mean_wait": _round(one.mean_wait),
        "longest_wait": one.longest_wait,
        "evictions": one.evictions,
        "why": one.why or None,
    }


def _way(one: Way) -> dict[str, Any]:
    fit = one.fit
    return {
        "pool": one.pool,
        "mode": one.mode,
        "setting": one.setting,
        "at_least": fit.least if fit else None,
        "at_most": fit.most if fit else None,
        "impossible": fit.impossible if fit else None,
        "memory": one.memory or None,
        "remark": one.remark or None,
    }


def _round(number: float) -> float:
    return round(number, 3)
