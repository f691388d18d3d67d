"""Archives that are made to lead out of their folder, or to break what reads them."""

from __future__ import annotations

import hashlib
import io
import lzma
import os
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bedplate.portable import archives, unpack
from bedplate.portable.archives import Archive, ensure
from bedplate.portable.unpack import UnpackError, unpack_deb, unpack_tar

if TYPE_CHECKING:
    from collections.abc import Callable

Link = tuple[str, str]


def tar(path: Path, *members: Link | str | tarfile.TarInfo, form: int = tarfile.PAX_FORMAT) -> Path:
    """A tar of links (name, target), files of one byte (name), and members as they are."""
    with tarfile.open(path, "w:gz", format=form) as out:
        for member in members:
            info = member if isinstance(member, tarfile.TarInfo) else tarfile.TarInfo(member[0])
            if isinstance(member, str):
                info = tarfile.TarInfo(member)
                info.size, info.mode = 1, 0o755
            elif isinstance(member, tuple):
                info.type, info.linkname = tarfile.SYMTYPE, member[1]
            out.addfile(info, io.BytesIO(b"x" * info.size))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "work/new"
    made.mkdir(parents=True)
    return made


def outside(folder: Path) -> list[Path]:
    """Links in a folder that resolve to somewhere else."""
    inside = os.path.realpath(folder)
    return [
        path
        for path in folder.rglob("*")
        if path.is_symlink() and os.path.commonpath([os.path.realpath(path), inside]) != inside
    ]


OUT: dict[str, list[Link | str]] = {
    "down and up": [("deep/x/y", "../.."), ("l", "deep/x/y/.."), "f"],
    "before what it names": [("l", "deep/x/y/.."), ("deep/x/y", "../.."), "f"],
    "chained": [("a/b/up", "../.."), ("c", "a/b/up/../../etc/passwd"), "f"],
    "three steps": [("a/b", ".."), ("a/c", "b/a/b/.."), ("d", "a/c/x"), "f"],
    "out and in again": [("a/b", ".."), ("l", "a/b/../new/f"), "f"],
    "absolute behind a link": [("a/b", "."), ("a/b/c", "/etc"), "f"],
    "a folder that is a link later": [("x/up", ".."), ("l", "x/up/up2/.."), ("up2", "x/up"), "f"],
    "up at the top": [("l", ".."), "f"],
    "up twice by dots": [("a/l", "./../.././x"), "f"],
    "empty parts": [("a/l", "..//../x"), "f"],
}


@pytest.mark.parametrize("members", OUT.values(), ids=OUT)
def test_a_link_that_leads_out_is_refused(
    members: list[Link | str], folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(UnpackError) as caught:
        unpack_tar(str(tar(tmp_path / "a.tgz", *members)), str(folder))
    assert str(caught.value).startswith("the archive cannot be unpacked safely — a.tgz: ")
    assert " — got a link to " in str(caught.value)


INSIDE: dict[str, list[Link | str]] = {
    "beside": ["bin/a", ("bin/b", "a")],
    "up and down": ["bin/a", ("lib/b", "../bin/a")],
    "through another": ["lib64/a", ("lib", "lib64"), ("bin/b", "../lib/a")],
    "before the file": [("b", "a"), "a"],
    "to nothing": [("b", "no"), "a"],
    "dots in a name": [("b", "..a"), "..a"],
    "a loop": [("b", "c"), ("c", "b"), "a"],
    "to the folder": [("x/self", ".."), "a"],
}


@pytest.mark.parametrize("members", INSIDE.values(), ids=INSIDE)
def test_links_that_stay_are_taken(members: list[Link | str], folder: Path, tmp_path: Path) -> None:
    unpack_tar(str(tar(tmp_path / "a.tgz", *members)), str(folder))
    assert outside(folder) == []
    assert {p.name for p in folder.rglob("*") if p.is_symlink()} == {
        Path(member[0]).name for member in members if isinstance(member, tuple)
    }


def pax(name: str, **headers: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.pax_headers = 1, headers
    return info


def chained(count: int) -> bytes:
    """Headers that each say something of the next, and no file."""
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 0
    return info.tobuf(tarfile.USTAR_FORMAT) * count


#: What a reader of tar may meet, by what it was seen to raise.
BROKEN: dict[str, Callable[[Path], object]] = {
    "LZMAError": lambda p: p.write_bytes(lzma.compress(os.urandom(5000))[:-900] + b"\0" * 900),
    "ValueError": lambda p: tar(p, pax("f", path="a\0b")),
    "OSError": lambda p: tar(p, "f" * 300),
    "a path of 5000": lambda p: tar(p, "/".join(["d" * 99] * 50)),
    "a file as a folder": lambda p: tar(p, "a", "a/b"),
    "a folder as a file": lambda p: tar(p, "a/b", "a"),
    "a link to nothing": lambda p: tar(p, ("a", "")),
    "a link with a NUL": lambda p: tar(p, pax("f"), _link("l", linkpath="a\0b")),
    "a loop as a folder": lambda p: tar(p, ("b", "c"), ("c", "b"), "b/x"),
    "sparse of letters": lambda p: tar(p, pax("f", **{"GNU.sparse.map": "a,b"})),
    "sparse 1.0": lambda p: tar(p, pax("f", **{"GNU.sparse.major": "1", "GNU.sparse.minor": "0"})),
    "sparse without numbers": lambda p: tar(p, pax("f", **{"GNU.sparse.size": "x"})),
    "headers on headers": lambda p: p.write_bytes(chained(5000)),
    "a cut gzip": lambda p: p.write_bytes(tar(p, *"abcdefgh").read_bytes()[:-40]),
    "nothing": lambda p: p.write_bytes(b""),
    "a text": lambda p: p.write_bytes(b"<html>"),
}


def _link(name: str, **headers: str) -> tarfile.TarInfo:
    info = pax(name, **headers)
    info.size, info.type = 0, tarfile.SYMTYPE
    return info


@pytest.mark.parametrize("make", BROKEN.values(), ids=BROKEN)
def test_an_archive_that_cannot_be_read_is_an_error_of_unpacking(
    make: Callable[[Path], object], folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "a.tgz"
    make(path)
    with pytest.raises(UnpackError) as caught:
        unpack_tar(str(path), str(folder))
    assert "a.tgz" in str(caught.value)
    assert "Free some space" not in str(caught.value)


@pytest.mark.parametrize(
    "name", [archives.MARKER, "./" + archives.MARKER, f"x/../{archives.MARKER}"]
)
@pytest.mark.parametrize("link", [False, True])
def test_an_archive_cannot_bring_our_own_mark(name: str, link: bool, tmp_path: Path) -> None:
    path = tar(tmp_path / "a.tgz", "tool", (name, "tool") if link else name)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    wish = Archive("t", "1", path.as_uri(), digest, str(tmp_path / "store/t/1"))
    (problem,) = ensure([wish]).problems
    assert problem.startswith("t 1: the archive cannot be unpacked safely — a.tgz: ")
    assert not (tmp_path / "store/t/1").exists()


@pytest.mark.parametrize(
    "content",
    [
        b"!<arch>\n" + b"debian-binary   " + b"0" * 32 + b"99999999999999999999"[:10] + b"`\n",
        b"!<arch>\n" + b"debian-binary".ljust(48) + "٣".encode().ljust(10) + b"`\n",
        b"!<arch>\n" + b"debian-binary".ljust(48) + b"-4".ljust(10) + b"`\n" + b"x" * 40,
    ],
)
def test_a_package_with_an_odd_size_is_an_error_of_unpacking(
    content: bytes, folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "a.deb"
    path.write_bytes(content)
    with pytest.raises(UnpackError):
        unpack_deb(str(path), str(folder))


def test_a_full_disk_is_no_error_of_the_archive(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(unpack.shutil, "copyfileobj", full)
    with pytest.raises(OSError, match="No space left"):
        unpack_tar(str(tar(tmp_path / "a.tgz", "a")), str(folder))
