"""What a test records for the proof is in pytest's JUnit file, without a warning."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

from tests.prove import told

ROOT = Path(__file__).parents[2]
CASE = "def test_it(record_property):\n    record_property('told', '3 of 4 points swept')\n"


def test_what_a_test_records_is_kept_without_a_warning(tmp_path: Path) -> None:
    (tmp_path / "test_case.py").write_text(CASE)
    results = tmp_path / "results.xml"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "-n0", "-W", "error"),
            *("-p", "no:cacheprovider", f"--rootdir={tmp_path}", f"--junitxml={results}"),
            tmp_path / "test_case.py",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    suites = ElementTree.parse(results).getroot()  # noqa: S314 our own file
    (case,) = suites.findall("testsuite/testcase")
    assert told(case) == "\n\n```text\n3 of 4 points swept\n```\n"
