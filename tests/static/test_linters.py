"""The linters, strict, over the whole tree: each is one test, so that a failure names the tool.

A committed lock is stale as soon as a fact or a rule changes: `bedplate plan` tells it here, in a
second, before what depends on it fails elsewhere. Then run it without `--check`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent

LINTERS = {
    "ruff": ["ruff", "check", "."],
    "format": ["ruff", "format", "--check", "."],
    "mypy": ["mypy"],
    "yamllint": ["yamllint", "--strict", "."],
    "ansible-lint": ["ansible-lint", "-c", ".config/ansible-lint.yml", "--nocolor"],
    "lock of the demo": ["bedplate", "plan", "--check", "inventories/demo"],
}


@pytest.mark.parametrize("name", LINTERS)
def test_linter(name: str) -> None:
    program, *arguments = LINTERS[name]
    done = subprocess.run(
        [BIN / program, *arguments],
        cwd=ROOT,
        env=os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
