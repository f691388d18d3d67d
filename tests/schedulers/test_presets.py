"""What each preset promises about queues, on the real Kueue; Volcano's part is in test_volcano."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.site.presets import load_presets
from tests.schedulers.api import eventually
from tests.schedulers.control_plane import ControlPlane
from tests.schedulers.kubelets import KubeletDouble
from tests.schedulers.kueue import (
    RunningKueue,
    evictions,
    holds,
    next_second,
    reason,
    running,
    said,
    workload_of,
)
from tests.schedulers.locks import lock_of, nodes_of
from tests.schedulers.nodes import add_nodes
from tests.schedulers.workloads import job

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bedplate.lock import Lock
    from bedplate.site.presets import Preset

PRESETS = load_presets()
#: Two teams share a node of eight GPUs, half of them for each.
TEAMS = {name: {"gpus": {"pool_a": (4, None)}} for name in ("one", "two")}
LACKS = "insufficient unused quota"
PRIORITY = "kueue.x-k8s.io/priority-class"


def lock(preset: Preset) -> Lock:
    """Return the lock of two teams, as the plan writes their quotas with a preset."""
    borrow = None if preset.queue.borrowing else 0
    teams = {name: {"gpus": {"pool_a": (4, borrow)}} for name in TEAMS}
    values = preset.model_dump() | {"schedulers": ["kueue"]}
    return lock_of({"pool_a": [{}]}, teams, preset=values)


@pytest.fixture(scope="module")
def started() -> Iterator[RunningKueue]:
    """Start a control plane with one node and Kueue."""
    first = lock(next(iter(PRESETS.values())))
    with (
        tempfile.TemporaryDirectory(prefix="bedplate-presets-") as folder,
        ControlPlane(Path(folder)) as plane,
    ):
        kueue = RunningKueue(plane, first)
        add_nodes(plane.api, nodes_of(first))
        yield kueue


def _params() -> Iterator[Any]:
    """Yield each preset; one whose queue has the values of another is long to repeat."""
    seen = []
    for name, preset in sorted(PRESETS.items()):
        marks = [pytest.mark.prove] if preset.queue in seen else []
        seen.append(preset.queue)
        yield pytest.param(name, marks=marks)


@pytest.fixture(params=_params())
def preset(request: pytest.FixtureRequest) -> Preset:
    """Return each preset."""
    return PRESETS[request.param]


@pytest.fixture
def kueue(started: RunningKueue, preset: Preset) -> Iterator[RunningKueue]:
    """Start Kueue as the preset configures it."""
    started.restart(lock(preset))
    started.configure(lock(preset))
    with KubeletDouble(started.api):
        yield started
        started.clear(*TEAMS)


def test_a_preset_keeps_its_promises(kueue: RunningKueue, preset: Preset) -> None:
    """Order, borrowing, reclaim and priority are those that its values say."""
    queue, classes = preset.queue, sorted(preset.priorities, key=lambda one: preset.priorities[one])
    for promise in (_order, _borrowing_and_reclaim):
        promise(kueue, preset)
        kueue.clear(*TEAMS)
    if len(classes) > 1:
        _priority(kueue, low=classes[0], high=classes[-1], stops=queue.preemption != "Never")
    else:
        assert queue.preemption == "Never"  # nothing that could come before anything


def _order(kueue: RunningKueue, preset: Preset) -> None:
    """A small job that comes after one without room starts first, or waits its turn."""
    _all(kueue, "two", {"two": 4})
    _all(kueue, "one", {"first": 1})
    kueue.api.create(job("large", "one", gpus=4))
    assert reason(kueue, "one", "large", LACKS)
    next_second()
    kueue.api.create(job("small", "one", gpus=1))
    if preset.queue.order == "StrictFIFO":
        # The next to be judged is the large one, again: what comes after it is not even looked at.
        eventually(lambda: workload_of(kueue, "one", "small"))
        kueue.api.create(job("later", "two", gpus=4))
        assert reason(kueue, "two", "later", LACKS)
        assert not said(kueue, "one", "small"), "it is not its turn"
        assert running(kueue.api, "one") == ["first"]
    else:
        eventually(lambda: running(kueue.api, "one") == ["first", "small"])


def _borrowing_and_reclaim(kueue: RunningKueue, preset: Preset) -> None:
    """What the other team leaves idle is used, and given back when it asks."""
    kueue.api.create(job("own", "one", gpus=4))
    eventually(lambda: running(kueue.api, "one") == ["own"])
    kueue.api.create(job("beyond", "one", gpus=4))
    if not preset.queue.borrowing:
        assert reason(kueue, "one", "beyond", LACKS)
        assert running(kueue.api, "one") == ["own"]
        return
    eventually(lambda: running(kueue.api, "one") == ["beyond", "own"])
    kueue.api.create(job("back", "two", gpus=4))
    if preset.queue.reclaim == "Any":
        eventually(lambda: running(kueue.api, "two") == ["back"])
        eventually(lambda: len(running(kueue.api, "one")) == 1)
        eventually(
            lambda: sorted(evictions(one) for one in kueue.workloads("one")),
            until=lambda counts: counts == [0, 1],
        )
    else:
        assert reason(kueue, "two", "back", LACKS)


def _priority(kueue: RunningKueue, *, low: str, high: str, stops: bool) -> None:
    """The highest class stops the lowest of its own team, and never another team's."""
    kueue.api.create(job("two", "two", gpus=4, labels={PRIORITY: low}))
    kueue.api.create(job("low", "one", gpus=4, labels={PRIORITY: low}))
    eventually(lambda: running(kueue.api, "one", "two") == ["low", "two"])
    kueue.api.create(job("high", "one", gpus=4, labels={PRIORITY: high}))
    if stops:
        eventually(lambda: running(kueue.api, "one", "two") == ["high", "two"])
        eventually(lambda: holds(workload_of(kueue, "one", "low"), "Evicted"))
    else:
        assert reason(kueue, "one", "high", LACKS)


def _all(kueue: RunningKueue, team: str, jobs: dict[str, int]) -> None:
    for name, gpus in jobs.items():
        kueue.api.create(job(name, team, gpus=gpus))
    eventually(lambda: running(kueue.api, team) == sorted(jobs))


def test_the_pools_of_a_course_are_filled_in_its_order(started: RunningKueue) -> None:
    """Two places in each of two pools: first those of the pool named first, then the others."""
    quotas = {"pool_b": (2, 0), "pool_a": (2, 0)}
    values = PRESETS["classroom"].model_dump()
    course = lock_of({"pool_a": [{}], "pool_b": [{}]}, {"one": {"gpus": quotas}}, preset=values)
    api = started.api

    def nodes() -> dict[str, str]:
        pods = api.get("pods", "v1", "one")
        made = [one for one in pods if one["status"].get("phase") == "Running"]
        return {
            one["metadata"]["labels"]["batch.kubernetes.io/job-name"]: one["spec"]["nodeName"]
            for one in made
        }

    # That of pool_a is there already.
    (more,) = nodes_of(course)[1:]
    add_nodes(api, [more])
    started.restart(course)
    started.configure(course)
    try:
        with KubeletDouble(api):
            for number in range(4):
                api.create(job(f"s{number}", "one"))
                eventually(lambda number=number: f"s{number}" in nodes())
            first, second = ["pool-b-0"] * 2, ["pool-a-0"] * 2
            assert [nodes()[f"s{number}"] for number in range(4)] == first + second
            api.create(job("late", "one"))
            assert reason(started, "one", "late", LACKS)
            api.delete(api.path("jobs", "batch/v1", "one", "s1"))
            eventually(nodes, until=lambda found: found.get("late") == "pool-b-0")
            started.clear("one")
    finally:
        api.delete(api.path_of(more))
