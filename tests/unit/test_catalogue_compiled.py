"""The catalogue kept beside Python's compiled code: equal, never stale, never in the way."""

from __future__ import annotations

import os
import pickle
import shutil
import sys
from typing import TYPE_CHECKING

import pytest

from bedplate.catalogue import read_catalogue
from bedplate.catalogue.compiled import HERE, kept
from bedplate.common.errors import CatalogueError

if TYPE_CHECKING:
    from pathlib import Path

    from bedplate.catalogue import Catalogue


class Read:
    """Reads a folder of facts, and counts how often it was asked to."""

    def __init__(self, folder: Path) -> None:
        self.facts, self.place, self.times = folder / "facts", folder / "compiled" / "kept", 0
        shutil.copytree(HERE / "facts", self.facts)

    def __call__(self) -> Catalogue:
        return kept(self.facts, self._read, self.place)

    def _read(self) -> Catalogue:
        self.times += 1
        return read_catalogue(self.facts)

    def edit(self, file: str, old: str, new: str) -> None:
        path = self.facts / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    return Read(tmp_path)


def test_what_was_kept_equals_what_was_read(read: Read) -> None:
    first, second = read(), read()
    assert read.times == 1
    assert second == first
    assert second is not first
    assert sum(map(len, second.tables().values())) > 1000
    assert [path.name for path in read.place.parent.iterdir()] == [read.place.name]


def test_a_changed_fact_is_read(read: Read) -> None:
    before = read()
    read.edit("gpu-models.yml", "compute_capability:", "compute_capability: ")
    after = read()
    assert read.times == 2
    assert after.digest != before.digest
    assert read() == after
    assert read.times == 2


def test_a_fact_that_became_wrong_is_refused(read: Read) -> None:
    read()
    read.edit("gpu-models.yml", "architecture:", "archetecture:")
    for _ in range(2):
        with pytest.raises(CatalogueError, match="archetecture"):
            read()


def test_other_code_counts(read: Read, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A rule that was made stricter is asked, though no fact has changed."""
    read()
    stricter = tmp_path / "check.py"
    stricter.write_text("# stricter\n")
    monkeypatch.setattr("bedplate.catalogue.compiled._code", lambda: (stricter,))
    read()
    assert read.times == 2


@pytest.mark.parametrize("damage", ["cut", "empty", "of another library"])
def test_a_damaged_file_is_made_again(read: Read, damage: str) -> None:
    good = read()
    content = read.place.read_bytes()
    other = content[:32] + pickle.dumps(good).replace(b"facts", b"fakts")
    read.place.write_bytes({"cut": content[:-10], "empty": b""}.get(damage, other))
    assert read() == good
    assert read.times == 2
    assert read() == good
    assert read.times == 2


class Harm:
    """Leaves a file where it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return type(self.mark).touch, (self.mark,)


@pytest.mark.parametrize(("owner", "mode"), [(12345, 0o644), (None, 0o664), (None, 0o646)])
def test_what_others_could_have_written_is_not_executed(
    read: Read, tmp_path: Path, owner: int | None, mode: int
) -> None:
    """The digest is no secret: whoever may read the facts can make it."""
    good = read()
    content = read.place.read_bytes()[:32] + pickle.dumps(Harm(tmp_path / "executed"))
    read.place.write_bytes(content)
    read.place.chmod(mode)
    if owner is not None:
        os.chown(read.place, owner, -1)
    assert read() == good
    assert not (tmp_path / "executed").exists()
    assert read() == good
    assert read.times == 2


def test_a_pipe_in_its_place_is_not_waited_for(read: Read) -> None:
    read.place.parent.mkdir()
    os.mkfifo(read.place)
    assert read() == read()
    assert read.times == 1, "it was not replaced"


def test_where_nothing_can_be_written_facts_are_read_each_time(read: Read) -> None:
    read.place.parent.write_text("a file in the folder's place")
    assert read() == read()
    assert read.times == 2


def test_python_told_to_write_no_bytecode_writes_nothing(
    read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    read()
    assert not read.place.parent.exists()
