"""A lock that cannot be used says what is wrong and what to run."""

from __future__ import annotations

import re
import shutil
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bedplate.bill import load_bill, place
from bedplate.common.errors import LockError
from bedplate.common.lock_place import BILL, PACKAGES
from bedplate.lock import digest, load_lock, render, write_lock

if TYPE_CHECKING:
    from collections.abc import Callable

DEMO = Path(__file__).parents[2] / "inventories" / "demo"
TEXT = (DEMO / ".bedplate.lock.yml").read_bytes()
WHOLE = "allowed what `bedplate plan` writes — "


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A directory with the demo's lock."""
    shutil.copy(DEMO / ".bedplate.lock.yml", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            TEXT.replace(b"hosts:\n", b"<<<<<<< HEAD\nhosts:\n=======\n>>>>>>> other\n", 1),
            "{path}:{marker}: lock has conflict markers — got <<<<<<< HEAD / "
            + WHOLE
            + "merge the settings, then run: bedplate plan {site}",
        ),
        (
            TEXT.replace(b"format: 2", b"format: 1"),
            (
                "lock is of another format — {path} format — got 1 / allowed 2 — format 1 is of a "
                "Bedplate older than this {version}; run: bedplate plan {site}"
            ),
        ),
        (
            TEXT.replace(b"format: 2", b"format: 3"),
            (
                "lock is of another format — {path} format — got 3 / allowed 2 — format 3 is of a "
                "Bedplate newer than this {version}: use that one, or run: bedplate plan {site}"
            ),
        ),
        (
            b"{}",
            (
                "lock is of another format — {path} format — got None / allowed 2 — run: bedplate "
                "plan {site}"
            ),
        ),
        (
            b"[1, 2",
            "{path}:2: lock cannot be read — got did not find expected ',' or ']' / "
            + WHOLE
            + "run: bedplate plan {site}",
        ),
        (
            b"\x00\x01",
            "lock cannot be read — {path} — got no YAML / " + WHOLE + "run: bedplate plan {site}",
        ),
        (
            b"- a\n",
            "{path}:1: lock cannot be read — got no mapping / "
            + WHOLE
            + "run: bedplate plan {site}",
        ),
        (
            b"",
            "{path}:1: lock cannot be read — got no mapping / "
            + WHOLE
            + "run: bedplate plan {site}",
        ),
        (
            b"format: 2\nsite: \xff\n",
            "lock cannot be read — {path} — got bytes that are not UTF-8 / "
            + WHOLE
            + "run: bedplate plan {site}",
        ),
        (
            TEXT.replace(b"count: 8", b"count: many", 1),
            "lock cannot be read — {path} — got pools.pool_train.gpu.0.count: Input should be a "
            "valid integer, unable to parse string as an integer / "
            + WHOLE
            + "run: bedplate plan {site}",
        ),
        (
            TEXT + b"colour: blue\n",
            "lock cannot be read — {path} — got colour: Extra inputs are not permitted / "
            + WHOLE
            + "run: bedplate plan {site}",
        ),
    ],
    ids=[
        "conflict",
        "older",
        "newer",
        "no-format",
        "no-yaml",
        "control",
        "list",
        "empty",
        "no-utf8",
        "wrong-type",
        "unknown-key",
    ],
)
def test_unusable_lock(content: bytes, message: str, site: Path) -> None:
    path = site / ".bedplate.lock.yml"
    assert content != TEXT
    path.write_bytes(content)
    marker, this = content.split(b"<<<<<<<")[0].count(b"\n") + 1, version("bedplate")
    with pytest.raises(LockError) as caught:
        load_lock(site)
    assert str(caught.value) == message.format(path=path, site=site, marker=marker, version=this)


def test_no_lock(tmp_path: Path) -> None:
    for read in (load_lock, digest):
        with pytest.raises(LockError) as caught:
            read(tmp_path)
        assert str(caught.value) == (
            f"site has no lock — {tmp_path}/.bedplate.lock.yml — got no file / {WHOLE}"
            f"run: bedplate plan {tmp_path}"
        )


def test_what_is_read_is_written_byte_for_byte(site: Path) -> None:
    lock = load_lock(site)
    assert render(lock).encode() == TEXT
    assert write_lock(site, lock) is False
    (site / ".bedplate.lock.yml").unlink()
    assert write_lock(site, lock) is True
    assert (site / ".bedplate.lock.yml").read_bytes() == TEXT
    assert [path.name for path in site.iterdir()] == [".bedplate.lock.yml"]


@pytest.mark.parametrize("load", [load_bill, place.load])
@pytest.mark.parametrize(
    ("text", "got"),
    [
        ("format: 1\n<<<<<<< HEAD\n", "<<<<<<< HEAD"),
        ("a: " + "[" * 500 + "]" * 500, "nested deeper than 200 levels"),
        ("key: [\n", "did not find expected node content"),
    ],
)
def test_what_lies_beside_the_lock_is_read_in_the_same_way(
    load: Callable[[Path], object], text: str, got: str, tmp_path: Path
) -> None:
    for name in (BILL, PACKAGES):
        (tmp_path / name).write_text(text)
    with pytest.raises(LockError, match=re.escape(got)):
        load(tmp_path)
