"""`molecule test` of every scenario as a user types it: in the role's folder, or at the root.

Scenarios that share hosts run one after the other, on one worker (tests/conftest.py).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
SCENARIOS = sorted(ROOT.glob("roles/*/molecule/*/molecule.yml")) + sorted(
    ROOT.glob("extensions/molecule/*/molecule.yml")
)


def test_every_role_has_a_scenario() -> None:
    with_scenario = {
        path.relative_to(ROOT / "roles").parts[0]
        for path in ROOT.glob("roles/*/molecule/*/molecule.yml")
    }
    assert with_scenario == {path.name for path in (ROOT / "roles").iterdir() if path.is_dir()}
    assert (ROOT / "extensions/molecule/default/molecule.yml").is_file()


def _failed_step(output: str) -> str:
    """Return what molecule printed of the step that failed, from its last error on.

    A report may show only the first lines of it. Earlier errors of the step are those that it asked
    for; the steps before went well, and those after it clean up.
    """
    for step in re.split(r"(?=\[\S+ > \S+\] Executing\n)", output):
        if "Executed: Failed" in step:
            return step[max(step.rfind("[ERROR]"), 0) :][:12000]
    return output[-12000:]


def _layer(scenario: Path) -> Any:
    """Leave a scenario to `make prove AREA=roles` whose molecule.yml says so, with its reason."""
    long = "make prove AREA=roles" in scenario.read_text(encoding="utf-8")
    return pytest.param(
        scenario,
        marks=[pytest.mark.prove] if long else [],
        id=str(scenario.parent.relative_to(ROOT)),
    )


@pytest.mark.parametrize("scenario", [_layer(scenario) for scenario in SCENARIOS])
def test_molecule(scenario: Path, figures: dict[str, dict[str, float]]) -> None:
    role = scenario.parents[2]
    started = time.monotonic()
    done = subprocess.run(
        [BIN / "molecule", "test", "--scenario-name", scenario.parent.name],
        cwd=ROOT if role.name == "extensions" else role,
        env=os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}", "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    seconds = figures.setdefault("molecule: seconds by scenario", {})
    seconds[str(scenario.parent.relative_to(ROOT))] = time.monotonic() - started
    assert done.returncode == 0, _failed_step(done.stdout)
