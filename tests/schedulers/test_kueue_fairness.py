"""Fair shares over many jobs, by the strategy that the component names, on the real Kueue."""

from __future__ import annotations

import os
import random
import time
from typing import TYPE_CHECKING

import pytest

from tests.schedulers.api import eventually
from tests.schedulers.kubelets import KubeletDouble
from tests.schedulers.kueue import RunningKueue, evictions, holds, kueue_of, running
from tests.schedulers.locks import lock_of
from tests.schedulers.workloads import job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.schedulers.kubelets import Span

WEIGHTS = {"one": 1.0, "two": 1.0, "double": 2.0}
GPUS, NODES = 8, 8
WITHIN = 0.05
#: Kueue has no bound. What it stops keeps its place in the queue, by the time of its creation: it
#: is the next of its team to be admitted, where another job has left a GPU, and as the newest the
#: first to be stopped when a team with a smaller share asks for that GPU. A few small jobs go round
#: so (python -m tests.benchmarks.evictions); they have hardly begun each time.
EVICTIONS = 40
#: Of the GPU seconds of all jobs that were done, in runs that were stopped. The model has 0.03.
LOST = 0.05


@pytest.fixture(scope="module")
def kueue() -> Iterator[RunningKueue]:
    """Start a control plane with 64 GPUs that three teams share by their weights."""
    teams = {
        name: {"gpus": {"pool_a": (0, None)}, "weight": weight} for name, weight in WEIGHTS.items()
    }
    preset = {"queue": {"fair_sharing": True, "preemption": "Never"}}
    lock = lock_of({"pool_a": [{}] * NODES}, teams, gpus=GPUS, preset=preset)
    with kueue_of(lock) as started:
        yield started


def held(spans: Sequence[Span], team: str, start: float, end: float) -> float:
    """Return the GPU seconds of a team between two moments."""
    return sum(
        one.devices * max(0.0, min(one.end or end, end) - max(one.start, start))
        for one in spans
        if one.namespace == team
    )


def fairness(kueue: RunningKueue, number: int, seconds: tuple[float, float], seed: int) -> dict:
    """Let `number` jobs run and return each team's share of its ideal while all had work waiting.

    One team comes first and has everything; the others come when it does.
    """
    chance = random.Random(seed)  # noqa: S311
    api = kueue.api
    jobs = {
        team: [
            job(
                f"job-{n}",
                team,
                gpus=chance.choice([1, 2, 4]),
                seconds=round(chance.uniform(*seconds), 2),
            )
            for n in range(int(number * weight / sum(WEIGHTS.values())))
        ]
        for team, weight in WEIGHTS.items()
    }
    with KubeletDouble(api) as kubelets:
        api.create_all(jobs.pop("one"))
        eventually(
            lambda: sum(one.devices for one in kubelets.spans.values() if not one.end) > 40, 300
        )
        came = time.monotonic()
        api.create_all([one for pair in zip(*_even(jobs), strict=True) for one in pair if one])
        settled = time.monotonic()
        waiting: dict[str, int] = {}

        def all_wait() -> bool:
            for team in WEIGHTS:
                found = kueue.workloads(team)
                waiting[team] = sum(not holds(one, "QuotaReserved") for one in found)
            return min(waiting.values()) > 0

        eventually(lambda: not all_wait(), 1500, pause=1)
        end = time.monotonic()
        spans = list(kubelets.spans.values())
        eventually(
            lambda: all(holds(one, "Finished") for one in kueue.workloads(*WEIGHTS)), 1500, pause=2
        )
        ran = list(kubelets.spans.values())
    lost = sum(one.devices * (one.end - one.start) for one in ran if one.stopped and one.end)
    done = sum(one.devices * (one.end - one.start) for one in ran if not one.stopped and one.end)
    told = [evictions(one) for one in kueue.workloads(*WEIGHTS)]
    assert len(told) == sum(map(len, jobs.values())) + int(number / sum(WEIGHTS.values()))
    used = {team: held(spans, team, settled, end) for team in WEIGHTS}
    total, weights = sum(used.values()), sum(WEIGHTS.values())
    kueue.clear(*WEIGHTS)
    return {
        **{
            f"share of {team} by its ideal": used[team] / total * weights / WEIGHTS[team]
            for team in WEIGHTS
        },
        "seconds in which all had work waiting": end - settled,
        "seconds of submitting": settled - came,
        "GPUs in use of 64": total / (end - settled),
        "evictions of one workload, at most": float(max(told)),
        "evictions": float(sum(told)),
        "workloads that were evicted": float(sum(one > 0 for one in told)),
        "workloads that were evicted more than twice": float(sum(one > 2 for one in told)),
        "GPU seconds lost by evictions / of jobs that were done": lost / done,
        "load of the machine": os.getloadavg()[0],
    }


def _even(jobs: dict[str, list]) -> list[list]:
    longest = max(map(len, jobs.values()))
    return [[*one, *[None] * (longest - len(one))] for one in jobs.values()]


def test_three_teams_settle_at_their_weights(
    kueue: RunningKueue, figures: dict[str, dict[str, float | str]]
) -> None:
    """A team that has all 64 GPUs makes room for two others, once, and exactly by the weights."""
    api = kueue.api

    def runs() -> dict[str, int]:
        return {team: 2 * len(running(api, team)) for team in WEIGHTS}

    with KubeletDouble(api):
        api.create_all([job(f"job-{n}", "one", gpus=2) for n in range(32)])
        eventually(lambda: runs()["one"] == 64, pause=0.5)
        late = [job(f"job-{n}", team, gpus=2) for n in range(20) for team in ("two", "double")]
        api.create_all(late)
        eventually(lambda: runs() == {"one": 16, "two": 16, "double": 32}, pause=0.5)
        told = [evictions(one) for one in kueue.workloads("one")]
        assert sorted(told) == [0] * 8 + [1] * 24
        assert not any(evictions(one) for one in kueue.workloads("two", "double"))
        time.sleep(3)  # and so it stays: no two teams stop each other in turns
        assert runs() == {"one": 16, "two": 16, "double": 32}
        assert [evictions(one) for one in kueue.workloads("one")] == told
    figures["fair shares, three teams"] = {
        "evictions of one workload, at most": float(max(told)),
        "workloads that were evicted": float(sum(told)),
    }
    kueue.clear(*WEIGHTS)


@pytest.mark.prove
def test_a_thousand_jobs_share_by_weight(
    kueue: RunningKueue,
    figures: dict[str, dict[str, float | str]],
    record_property: Callable[[str, object], None],
) -> None:
    """Over 1,000 jobs each team's GPU seconds are within 5 % of its ideal."""
    # Long enough that admission, on a busy machine too, keeps the GPUs in use.
    found = fairness(kueue, 1000, (6.0, 18.0), seed=43)
    figures["fair shares, 1,000 jobs"] = found
    record_property("told", "\n".join(f"{key}: {value:.3f}" for key, value in found.items()))
    for team in WEIGHTS:
        assert abs(found[f"share of {team} by its ideal"] - 1) <= WITHIN, found
    assert found["evictions of one workload, at most"] <= EVICTIONS, found
    assert found["GPU seconds lost by evictions / of jobs that were done"] <= LOST, found
