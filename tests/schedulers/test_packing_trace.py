"""The public trace: what the policies allocate, simulated, and the extender on the real scheduler.

The folder of the trace is given by BEDPLATE_TRACE. `make prove AREA=schedulers` runs this.
"""

from __future__ import annotations

from statistics import mean
from typing import TYPE_CHECKING

import pytest

from tests.benchmarks.packing import real
from tests.benchmarks.packing.__main__ import simulate
from tests.benchmarks.packing.trace import SEEDS, folder, read

if TYPE_CHECKING:
    from collections.abc import Callable

GOAL = 95.0

pytestmark = pytest.mark.prove


def test_simulated_policies(
    record_property: Callable[[str, object], None], capsys: pytest.CaptureFixture[str]
) -> None:
    means = simulate(SEEDS)
    record_property("told", capsys.readouterr().out)
    assert means["extender"] >= GOAL
    assert means["extender, mix learned"] >= GOAL
    assert max(means, key=means.__getitem__).startswith("extender")


def test_the_real_scheduler_with_the_extender(
    record_property: Callable[[str, object], None],
) -> None:
    trace = read(folder())
    ran = {seed: real.packed(trace, seed) for seed in SEEDS}
    lines = [f"{seed}: {one}" for seed, one in ran.items()]
    record_property("told", "\n".join(lines))
    assert mean(one.at_all for one in ran.values()) >= GOAL, lines


def test_its_pace_against_the_bare_scheduler(
    record_property: Callable[[str, object], None],
) -> None:
    pace = real.pace(read(folder()), SEEDS[0], 3000)
    record_property("told", str(pace))
    assert all(one.a_second > 0 for one in pace.packed)
