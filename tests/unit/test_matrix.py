"""The supported matrix in the docs is what the catalogue says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bedplate.catalogue import load_catalogue
from bedplate.catalogue.facts import grade
from bedplate.catalogue.matrix import document, main

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parents[2]
HOW = "run: python -m bedplate.catalogue.matrix"


def test_the_matrix_is_the_catalogues() -> None:
    assert (ROOT / "docs/matrix.md").read_text() == document(load_catalogue()), HOW


def test_writing_puts_a_stale_page_right(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    assert main(tmp_path) == 0
    assert (tmp_path / "docs/matrix.md").read_text() == (ROOT / "docs/matrix.md").read_text()


def test_elsewhere_than_in_a_checkout_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(tmp_path) == 1
    assert "run it in a checkout" in capsys.readouterr().err


def test_a_cell_is_as_sure_as_its_weakest_fact() -> None:
    boards = load_catalogue().gpu_models.values()
    by_grade = {fact.sure: fact for fact in boards}
    assert {"vendor", "secondary"} <= set(by_grade)
    assert grade([by_grade["vendor"]]) == "vendor"
    assert grade([by_grade["vendor"], by_grade["secondary"]]) == "unproved"
