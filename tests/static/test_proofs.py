"""Each page of proof says how old it is, and whether what it proves has changed since."""

from __future__ import annotations

import subprocess
from datetime import date
from typing import TYPE_CHECKING

import pytest

from tests import proofs, prove

if TYPE_CHECKING:
    from pathlib import Path

PAGES = sorted(path.name for path in proofs.PAGES.glob("*.md"))
DAY = date(2026, 11, 28)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_says_when_what_it_proves_has_changed(name: str) -> None:
    proof = proofs.read((proofs.PAGES / name).read_text(encoding="utf-8"))
    assert proof is not None, f"docs/proof/{name} has no line `<!-- proved on …` below its title"
    missing = [path for path in proof.paths if not (proofs.ROOT / path).exists()]
    assert missing == [] or proof.told, missing
    fix = f"docs/proof/{name}: run `python -m tests.proofs`, or prove it again"
    assert proofs.is_outdated(proof) == bool(proof.told), fix


def test_what_an_area_proves_is_there() -> None:
    """What `make prove` writes into the head of a page."""
    assert set(proofs.PROVED) <= set(prove.areas())
    for paths in proofs.PROVED.values():
        assert [path for path in paths if not (proofs.ROOT / path).exists()] == []


def test_a_change_makes_a_page_outdated_until_it_is_proved_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By content alone: neither history nor a file's time counts, nor what Git does not know."""
    monkeypatch.setattr(proofs, "ROOT", tmp_path)
    monkeypatch.setattr(proofs.digest, "__defaults__", (tmp_path,))
    part = tmp_path / "src" / "part.py"
    part.parent.mkdir()
    part.write_text("one\n")
    for command in (["init", "-q"], ["add", "src"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    page = f"# Proof\n\n{proofs.head(('src',), DAY)}\nFigures.\n"

    def told(text: str) -> str:
        proof = proofs.read(text)
        assert proof is not None
        return proofs.written(text, proof, DAY)

    (part.parent / "scratch").write_text("of nobody")
    assert told(page) == page
    part.write_text("two\n")
    outdated = told(page)
    line = "**Outdated since 2026-11-28 or before.** It was proved on 2026-11-28, and "
    assert outdated.splitlines()[4] == f"{line}something has changed since below `src`."
    assert told(outdated) == outdated
    part.write_text("one\n")
    assert told(outdated) == page
