"""Whose a file is: one table, and every module that asks does as it says."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from bedplate.portable import owned, removal
from bedplate.portable.files import File, Owner, ensure_files, owner
from bedplate.portable.host import Host, Result
from bedplate.portable.runtime import containerd

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PATH = "/etc/containerd/config.toml"
PATTERN = "/etc/containerd/conf.d/*.toml"
CONTENT = f'# Managed by Bedplate (role container_runtime).\nversion = 3\nimports = ["{PATTERN}"]\n'
MARKED = CONTENT.replace("version = 3", "version = 2")
PLAIN = 'version = 3\nroot = "/data"\n'
PACKAGED = "version = 3\n"
IMPORTED = {"import": PATTERN}


class Row(NamedTuple):
    """What the record says that was written (None: no record), what lies there, and whose it is."""

    recorded: str | None
    text: str | None
    owner: Owner
    added: dict[str, Any] | None = None


TABLE = {
    "nothing": Row(None, None, Owner.ABSENT),
    "gone": Row(MARKED, None, Owner.ABSENT),
    "as written": Row(MARKED, MARKED, Owner.OURS),
    # As a file whose form has no comments.
    "as written, without a mark": Row(PLAIN, PLAIN, Owner.OURS),
    "edited": Row(CONTENT, MARKED, Owner.EDITED),
    "edited, and the mark went": Row(CONTENT, PLAIN, Owner.EDITED),
    "emptied": Row(CONTENT, "", Owner.EDITED),
    "as a package has it, after ours": Row(CONTENT, PACKAGED, Owner.EDITED),
    "of a lost record": Row(None, MARKED, Owner.OURS),
    "a package's": Row(None, PACKAGED, Owner.PACKAGE),
    "the user's": Row(None, PLAIN, Owner.USER),
    "the user's, with our import": Row(PLAIN, PLAIN, Owner.USER, IMPORTED),
    "the user's, edited since": Row(PACKAGED + "#\n", PLAIN, Owner.USER, IMPORTED),
    "ours again, in place of the user's": Row(PLAIN, MARKED, Owner.OURS, IMPORTED),
}
ROWS = pytest.mark.parametrize("row", TABLE.values(), ids=TABLE)


def _answer(argv: Sequence[str], *_: object) -> Result:
    """A package manager that knows the file, with the text of PACKAGED."""
    if "--search" in argv:
        return Result(0, f"containerd: {PATH}\n", "")
    digest = hashlib.md5(PACKAGED.encode(), usedforsecurity=False).hexdigest()
    return Result(0, f" {PATH} {digest}\n", "")


def machine(root: Path, row: Row) -> Host:
    """Return a host as the row says."""
    host = Host(str(root), _answer)
    if row.recorded is not None:
        writing = owned.Writing(PATH, row.recorded, 0o644, None, row.added is None)
        owned.keep(host, [writing._replace(added=row.added)])
    if row.text is not None:
        host.write(PATH, row.text)
    return host


@ROWS
def test_whose_a_file_is(row: Row, tmp_path: Path) -> None:
    host = machine(tmp_path, row)
    assert owner(host, PATH, owned.load(host)) is row.owner


@ROWS
def test_a_module_that_writes_whole_files_refuses_the_users_alone(row: Row, tmp_path: Path) -> None:
    host = machine(tmp_path, row)
    outcome = ensure_files(host, [File(PATH, CONTENT, refuse_foreign=True)])
    assert bool(outcome.problems) == (row.owner is Owner.USER)
    assert host.read(PATH) == (row.text if row.owner is Owner.USER else CONTENT)


@ROWS
def test_a_module_that_adds_to_files_does_so_to_the_users_alone(row: Row, tmp_path: Path) -> None:
    host = machine(tmp_path, row)
    outcome = containerd.ensure(host, PATH, CONTENT, PATTERN)
    assert outcome.adopted == (row.owner is Owner.USER)
    if row.owner is Owner.USER:
        assert host.read(PATH + containerd.KEPT) == row.text
        assert set((row.text or "").splitlines()) <= set((host.read(PATH) or "").splitlines())
    else:
        assert host.read(PATH) == CONTENT
        assert not host.exists(PATH + containerd.KEPT)


@pytest.mark.parametrize("emptied", [False, True])
def test_what_took_the_place_of_our_file_comes_back_with_a_reset(
    tmp_path: Path, emptied: bool
) -> None:
    """It is replaced, as all that somebody makes of our files, and nothing in it is lost."""
    host = machine(tmp_path, Row(CONTENT, "" if emptied else PLAIN, Owner.EDITED))
    for _ in range(2):
        assert containerd.ensure(host, PATH, CONTENT, PATTERN).problems == []
    assert host.read(PATH) == CONTENT
    removal.files(host, [], check=False)
    assert host.read(PATH) == (None if emptied else PLAIN)


@pytest.mark.parametrize("text", [MARKED, PLAIN])
def test_an_edit_of_our_file_goes_with_a_reset(tmp_path: Path, text: str) -> None:
    """Without its mark too: nobody else puts such a file there."""
    host = machine(tmp_path, Row(CONTENT, text, Owner.EDITED))
    ensure_files(host, [File(PATH, CONTENT)])
    removal.files(host, [], check=False)
    assert not host.exists(PATH)


def test_a_record_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    """It did not say what was added to a user's file: such files were not in it."""
    host = machine(tmp_path, Row(CONTENT, PLAIN, Owner.EDITED))
    entry = {key: value for key, value in owned.load(host)[PATH].items() if key != "added"}
    assert owner(host, PATH, {PATH: entry}) is Owner.EDITED
