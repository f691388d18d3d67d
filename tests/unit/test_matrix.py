"""The supported matrix in the docs is what the catalogue says."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from bedplate.catalogue import load_catalogue
from bedplate.catalogue.matrix import BEGIN, document, grade, main, readme

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parents[2]
HOW = "run: python -m bedplate.catalogue.matrix"


def test_the_matrix_is_in_step_with_the_catalogue() -> None:
    assert (ROOT / "docs/matrix.md").read_text() == document(load_catalogue()), HOW


def test_the_readme_is_in_step_with_the_catalogue() -> None:
    text = (ROOT / "README.md").read_text()
    assert text == readme(load_catalogue(), text), HOW


def test_writing_puts_a_stale_table_right(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    text = (ROOT / "README.md").read_text()
    (tmp_path / "README.md").write_text(text.replace("| debian-12 |", "| debian-99 |"))
    assert main(tmp_path) == 0
    assert (tmp_path / "README.md").read_text() == text
    assert (tmp_path / "docs/matrix.md").read_text() == (ROOT / "docs/matrix.md").read_text()


def test_a_readme_without_a_place_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(ROOT / "README.md", tmp_path)
    page = tmp_path / "README.md"
    page.write_text(page.read_text().replace(BEGIN, ""))
    before = page.read_text()
    assert main(tmp_path) == 1
    assert page.read_text() == before
    assert "README.md lacks" in capsys.readouterr().err


def test_a_cell_is_as_sure_as_its_weakest_fact() -> None:
    boards = load_catalogue().gpu_models.values()
    by_grade = {fact.sure: fact for fact in boards}
    assert {"vendor", "secondary"} <= set(by_grade)
    assert grade([by_grade["vendor"]]) == "vendor"
    assert grade([by_grade["vendor"], by_grade["secondary"]]) == "unproved"
