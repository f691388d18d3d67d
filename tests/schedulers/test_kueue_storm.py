"""Jobs of two teams while Kueue and the scheduler are killed: none lost, none twice, none over."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.schedulers.api import eventually
from tests.schedulers.kubelets import KubeletDouble
from tests.schedulers.kueue import RunningKueue, evictions, holds, jobs, kueue_of
from tests.schedulers.locks import lock_of
from tests.schedulers.workloads import job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.schedulers.kubelets import Span

#: GPUs of each team, and no more: nothing is borrowed, and nothing needs to be stopped.
QUOTAS = {"one": 12, "two": 24}
GPUS, NODES = 8, 6
LOCK = lock_of(
    {"pool_a": [{}] * NODES},
    {name: {"gpus": {"pool_a": (most, 0)}} for name, most in QUOTAS.items()},
    gpus=GPUS,
    preset={"queue": {"borrowing": False, "preemption": "Never"}},
)
#: Seconds between two deaths, at most.
PAUSE = 4.0


@pytest.fixture(scope="module")
def kueue() -> Iterator[RunningKueue]:
    """Start a control plane with the nodes, Kueue, and the queues of the two teams."""
    with kueue_of(LOCK) as started:
        yield started


def most(spans: Iterable[Span], of: Callable[[Span], str]) -> dict[str, int]:
    """Return the most GPUs that were held at one moment, by what `of` says of a pod."""
    moments: list[tuple[float, int, str]] = []
    for one in spans:
        moments.append((one.start, one.devices, of(one)))
        moments.append((one.end or float("inf"), -one.devices, of(one)))
    held: Counter[str] = Counter()
    found: dict[str, int] = {}
    # At one moment what ends comes first.
    for _, devices, name in sorted(moments):
        held[name] += devices
        found[name] = max(found.get(name, 0), held[name])
    return found


def killed(kueue: RunningKueue) -> None:
    """Kill the scheduler and Kueue, without any chance to tidy up; both start again."""
    kueue.plane.processes["kube-scheduler"].kill()
    assert kueue.process is not None
    kueue.process.kill()
    kueue.plane.start_scheduler()
    kueue.start(LOCK)


@pytest.mark.parametrize(
    ("count", "kills"),
    [
        (60, 2),
        pytest.param(200, 3, marks=pytest.mark.prove),
        pytest.param(2000, 20, marks=pytest.mark.prove),
    ],
)
def test_a_storm_with_kueue_and_the_scheduler_killed_loses_nothing(
    kueue: RunningKueue,
    count: int,
    kills: int,
    record_property: Callable[[str, object], None],
) -> None:
    chance = random.Random(count)  # noqa: S311 - a storm, no secret
    made = [
        job(
            f"storm-{n}",
            chance.choices(list(QUOTAS), list(QUOTAS.values()))[0],
            gpus=chance.choice([1, 2, 4]),
            pods=chance.choice([1, 1, 2]),
            seconds=round(chance.uniform(0.3, 0.9), 2),
        )
        for n in range(count)
    ]
    began = time.monotonic()
    with KubeletDouble(kueue.api) as kubelets:
        kueue.api.create_all(made)
        left = []
        created = time.monotonic() - began
        for number in range(1, kills + 1):
            due, share = time.monotonic() + PAUSE, count * number // (kills + 2)
            # Sooner on a quick machine: the last death is to find some of them left there, too.
            eventually(lambda due=due, share=share: time.monotonic() > due or done(kueue) >= share)
            killed(kueue)
            left.append(sum("completionTime" not in one["status"] for one in _all(kueue)))
        # A look at all of them is work, too: ten times as many are looked at a tenth as often.
        patience, pause = 300 + 2 * count, count / 200
        eventually(
            lambda: all("completionTime" in one["status"] for one in _all(kueue)), patience, pause
        )
        eventually(
            lambda: all(holds(one, "Finished") for one in kueue.workloads(*QUOTAS)), pause=pause
        )
    took = time.monotonic() - began
    spans = list(kubelets.spans.values())
    wanted = {_name(one): _pods(one) for one in made}
    assert {_name(one): _pods(one) for one in _all(kueue)} == wanted, "none is lost"
    assert Counter((one.namespace, one.job) for one in spans) == wanted, "no pod ran twice"
    assert not any(one.stopped for one in spans)
    assert not any(evictions(one) for one in kueue.workloads(*QUOTAS))
    teams = most(spans, lambda one: one.namespace)
    assert all(teams[name] <= quota for name, quota in QUOTAS.items()), teams
    nodes = most(spans, lambda one: one.node)
    assert max(nodes.values()) <= GPUS, nodes
    assert left[-1] > 0, "the storm was over before the last death"
    record_property(
        "told",
        f"{count} jobs, {len(spans)} pods, {took:.0f} s, {created:.0f} of them to create, {kills}"
        f" deaths of both, {left[-1]} jobs left after the last; most GPUs at once: {teams} of"
        f" {QUOTAS}, on a node {max(nodes.values())}; load {os.getloadavg()[0]:.0f}",
    )
    kueue.clear(*QUOTAS)


def done(kueue: RunningKueue) -> int:
    """Return how many jobs are done."""
    return sum("completionTime" in one["status"] for one in _all(kueue))


def _all(kueue: RunningKueue) -> list[dict]:
    return jobs(kueue.api, *QUOTAS)


def _name(one: dict) -> tuple[str, str]:
    return one["metadata"]["namespace"], one["metadata"]["name"]


def _pods(one: dict) -> int:
    return int(one["spec"]["completions"])
