"""The page about sharing says what the catalogue says, in its three words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from bedplate.catalogue import load_catalogue
from bedplate.catalogue.sharing_facts import SharingMode
from bedplate.catalogue.sharing_table import FOR_WHOM, LIFTED, main, table, written

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/sharing.md"
HOW = "run: python -m bedplate.catalogue.matrix"


def test_the_table_is_the_catalogues() -> None:
    """A fact that changes changes the page."""
    text = PAGE.read_text(encoding="utf-8")
    assert text == written(text, load_catalogue()), HOW


def test_every_mode_has_its_row() -> None:
    """Each fact is a row, and each mode is for somebody."""
    rows = table(load_catalogue()).splitlines()[2:]
    facts = load_catalogue().sharing_modes.values()
    assert len(rows) == len(facts)
    assert {fact.value.mode for fact in facts} == set(FOR_WHOM)
    words = set(SharingMode.model_fields["memory"].annotation.__args__)
    assert {word for row in rows for word in re.findall(r"\*\*(\w+)\*\*", row)} == words
    limited = [row for row in rows if "| **limited** |" in row]
    assert all(LIFTED[None] not in row for row in limited), "a limit that nobody gets round"


def test_the_command_writes_the_page(tmp_path: Path) -> None:
    """Into the checkout that it is run in."""
    page = tmp_path / "docs" / "sharing.md"
    page.parent.mkdir()
    page.write_text(
        PAGE.read_text(encoding="utf-8").replace("| mig |", "| gim |"), encoding="utf-8"
    )
    assert main(tmp_path) == 0
    assert page.read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8")


def test_a_page_without_marks_is_not_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its words would stay what they are: a message says why."""
    page = tmp_path / "docs" / "sharing.md"
    page.parent.mkdir()
    page.write_text("# Sharing\n", encoding="utf-8")
    assert main(tmp_path) == 1
    assert "no lines <!-- modes" in capsys.readouterr().err
    assert page.read_text(encoding="utf-8") == "# Sharing\n"
