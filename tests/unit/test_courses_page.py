"""docs/courses.md shows a course, what the plan prints of it, and a refusal: all are as it says."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bedplate.cli import main as cli
from tests.unit.test_site_broken import CASES, FOLDER, ROOT, broken

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

PAGE = (ROOT / "docs" / "courses.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```\w*\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_example_is_planned_with_the_line_that_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example, line, *_ = BLOCKS
    broken(tmp_path, {"write": {"group_vars/all/teams.yml": example}})
    monkeypatch.chdir(tmp_path)
    assert cli.main(["plan", "site", "--allow-planned"]) == 0
    assert line.split() in [row.split() for row in capsys.readouterr().out.splitlines()]


def test_the_refusal_is_that_of_the_class_of_fifty() -> None:
    *_, refusal = BLOCKS
    told = (FOLDER / "courses_class_of_fifty.txt").read_text(encoding="utf-8").splitlines()[0]
    assert refusal.strip() == told.replace("site/", "").replace("teams.yml", "courses.yml")
    assert "courses_class_of_fifty" in CASES
