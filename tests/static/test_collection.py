"""Every test that a file defines is really collected: one that is not would pass for ever."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def defined(path: Path) -> set[str]:
    """Name the test functions of a file as pytest prints them, without parameters."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = set()
    for node in tree.body:
        functions = [node] if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else []
        prefix = ""
        if isinstance(node, ast.ClassDef):
            functions = [
                n for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
            ]
            prefix = f"{node.name}::"
        names |= {f"{prefix}{f.name}" for f in functions if f.name.startswith("test")}
    return {f"{path.relative_to(ROOT)}::{name}" for name in names}


def test_every_defined_test_is_collected() -> None:
    wanted = {name for path in (ROOT / "tests").rglob("*.py") for name in defined(path)}
    listing = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n0", "-m", ""],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTEST_ADDOPTS": ""},  # another form of the listing
    )
    collected = {line.split("[")[0] for line in listing.stdout.splitlines() if "::" in line}
    assert wanted, "no test file was found"
    assert wanted - collected == set(), listing.stdout[-2000:]
