"""What `bedplate plan` prints for the demo site: every decision, and with `--why` its reason.

After a change of words or catalogue, `python -m tests.unit.test_plan_table` writes it again: review
the difference.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from bedplate.lock import content_of, load_lock

DEMO = Path(__file__).parents[2] / "inventories" / "demo"
SHOWN = {
    "": Path(__file__).with_name("demo_plan.txt"),
    "--why": Path(__file__).with_name("demo_plan_why.txt"),
}
LINES, COLUMNS = 42, 110


def shown(folder: Path, *options: str) -> str:
    """Plan a copy of the demo site that has no lock, and return what is printed."""
    shutil.copytree(DEMO, folder / "site", ignore=shutil.ignore_patterns(".bedplate*"))
    plan = [
        sys.executable,
        "-m",
        "bedplate.cli",
        "plan",
        "site",
        "--today",
        "2026-11-21",
        *options,
    ]
    done = subprocess.run(
        plan, cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("option", SHOWN)
def test_the_table_of_the_demo(option: str, tmp_path: Path) -> None:
    text = shown(tmp_path, *filter(None, [option]))
    assert text.splitlines() == SHOWN[option].read_text(encoding="utf-8").splitlines()


def test_what_is_printed_fits_a_screen() -> None:
    lines = SHOWN[""].read_text(encoding="utf-8").splitlines()
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= COLUMNS


def test_every_decision_has_its_row_and_its_reason() -> None:
    """The text was reviewed; this keeps a part of the lock from being forgotten in it."""
    table, _, rest = SHOWN["--why"].read_text(encoding="utf-8").partition("\nWhy:\n")
    rows = {tuple(line.split()[:2]) for line in table.splitlines()}
    why = {tuple(line.split()[:2]) for line in rest.partition("\n\n")[0].splitlines()}
    lock = load_lock(DEMO)
    parts = set(content_of(lock)["cluster"]) - {"not_yet", "addons", "cni", "teams"}
    parts -= {"courses", "hub", "storage"}  # their rows are the pools'
    assert {("cluster", part) for part in parts} <= rows
    assert {(pool, part) for pool in lock.pools for part in ("gpu", "nvidia_driver")} <= rows
    shared = {"kubernetes", "containerd", "cni", "cni_plugins", "nvidia_container_toolkit"}
    assert {("cluster", part) for part in shared} <= why
    assert {(pool, "nvidia_driver") for pool in lock.pools} <= why


if __name__ == "__main__":
    for given, path in SHOWN.items():
        with tempfile.TemporaryDirectory() as made:
            text = shown(Path(made), *filter(None, [given]))
            path.write_text(text, encoding="utf-8")
