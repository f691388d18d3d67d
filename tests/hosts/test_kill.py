"""SIGKILL of the play, and of the host, at the tasks of a driver's first installation and of a
change of its branch: the next run converges, and the host is what it is after undisturbed runs.

A round starts from the bare host's disk: the installation is killed, run again and compared, then
the change likewise. What is compared is everything: packages with versions, holds and marks, files
and their contents, units, the loaded module, what nvidia-smi says.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

import pytest

from tests.hosts import state
from tests.hosts.drivers import newest
from tests.hosts.runs import Blow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.hosts.runs import Machine
    from tests.hosts.snapshots import Snapshot

FIRST, SECOND = newest("470"), newest("535")
#: The task that takes long: it is also killed in its middle, seconds after its start.
TRANSACTION = "Install and hold the driver's packages in one transaction"
MIDDLE = (2.0, 5.0, 8.0)
SEED = 535
#: Of the whole sweep.
PARTS = 8


@dataclass(frozen=True)
class Expected:
    """What undisturbed runs need and leave."""

    tasks: dict[str, list[str]]
    states: dict[str, dict[str, list[str]]]

    def blows(self, version: str) -> list[Blow]:
        """Every boundary, and the middle of the transaction; each kills the run, and the host."""
        tasks = self.tasks[version]
        (long,) = (n for n, name in enumerate(tasks, 1) if name.endswith(TRANSACTION))
        moments = [(n, 0.0) for n in range(1, len(tasks) + 1)] + [(long, d) for d in MIDDLE]
        return [Blow(n, power, delay) for power in (False, True) for n, delay in moments]


@pytest.fixture(scope="package")
def expected(machine: Machine, bare: Snapshot) -> Expected:
    """Install and change once, undisturbed."""
    bare.restore()
    tasks, states = {}, {}
    for version in (FIRST, SECOND):
        tasks[version] = machine.converge(version)
        states[version] = machine.state()
        assert not states[version]["audit"]
    return Expected(tasks, states)


def sweep(
    machine: Machine,
    bare: Snapshot,
    expected: Expected,
    rounds: Sequence[tuple[Blow | None, Blow | None]],
) -> None:
    """Kill, run again and compare; None leaves that half of a round undisturbed."""
    points = 0
    for blows in rounds:
        bare.restore()
        for version, blow in zip((FIRST, SECOND), blows, strict=True):
            if blow:
                machine.killed(version, blow)
                points += 1
            elif version == SECOND:
                continue
            machine.converge(version)
            differing = state.difference(expected.states[version], machine.state())
            assert not differing, f"{version}, {blow}:\n" + "\n".join(differing)
            print(f"swept {points}: driver {version}, {blow}", flush=True)


@pytest.mark.prove
def test_seeded_points(
    machine: Machine,
    bare: Snapshot,
    expected: Expected,
    figures: dict[str, dict[str, float]],
) -> None:
    """Four points: two of an installation between tasks, two of a change in the middle of apt."""
    chosen = random.Random(SEED)  # noqa: S311 a choice of tests
    first, second = expected.blows(FIRST), expected.blows(SECOND)
    install = chosen.sample([b for b in first if not b.delay], 2)
    change = [
        chosen.choice([b for b in second if b.delay and not b.power]),
        chosen.choice([b for b in second if b.delay and b.power]),
    ]
    sweep(machine, bare, expected, list(zip(install, change, strict=True)))
    figures["killed driver changes"] = {"points swept": 4, "of": len(first) + len(second)}


@pytest.mark.prove
@pytest.mark.parametrize("part", range(1, PARTS + 1))
def test_all_points(
    machine: Machine, bare: Snapshot, expected: Expected, record_property: object, part: int
) -> None:
    """Every point of both, in parts that can be run alone: the whole takes hours."""
    first, second = expected.blows(FIRST), expected.blows(SECOND)
    rounds = list(zip_longest(first, second))[part - 1 :: PARTS]
    sweep(machine, bare, expected, rounds)
    assert callable(record_property)
    swept = sum(blow is not None for both in rounds for blow in both)
    record_property("told", f"{swept} of {len(first) + len(second)} points swept")
