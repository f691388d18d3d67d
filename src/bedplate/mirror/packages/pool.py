"""Package files of one system: those that a package manager fetched, and those of a repository."""

from __future__ import annotations

import hashlib
import os
import shutil
from typing import TYPE_CHECKING, NamedTuple

from bedplate.common import writing
from bedplate.mirror.download import Part

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

#: The folder of the package files in a repository.
POOL = "pool"
#: How the names of folders begin in which an index is made.
INDEXING = ".index-"


class Package(NamedTuple):
    """A package file by its name; SHA-256 and size in bytes are those of the archive's index."""

    name: str
    sha256: str
    size: int


def sha256_of(content: bytes) -> str:
    """Return the SHA-256 of bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def read(path: Path) -> bytes:
    """Return a file's content, or nothing where there is none."""
    return path.read_bytes() if path.is_file() else b""


def lacking(folder: Path, packages: Iterable[Package]) -> list[Part]:
    """Return what is not there, or is not as its index says: of the latter the file goes."""
    there = [Part(one.name, "", one.sha256, one.size, folder / one.name) for one in packages]
    wrong = [part for part in there if part.damage()]
    for part in wrong:
        part.target.unlink(missing_ok=True)
    return wrong


def keep_only(folder: Path, packages: Iterable[Package], end: str) -> None:
    """Remove package files that no one needs any more."""
    names = {package.name for package in packages}
    for path in folder.glob(f"*{end}"):
        if path.name not in names:
            path.unlink()


def clean(folder: Path) -> None:
    """Remove what a run that was killed has left in a repository."""
    for path in folder.glob(f"{INDEXING}*"):
        shutil.rmtree(path, ignore_errors=True)
    for path in folder.rglob(f"{writing.UNFINISHED}*"):
        path.unlink(missing_ok=True)


def bring(chosen: Mapping[str, Path], pool: Path) -> None:
    """Have a repository's folder hold files under these names, besides what it has."""
    pool.mkdir(parents=True, exist_ok=True)
    for name, path in chosen.items():
        if not _same(path, pool / name):
            _link(path, pool / name)


def drop_others(chosen: Mapping[str, Path], pool: Path) -> Sequence[Path]:
    """Remove what the repository's folder has besides, and return it."""
    gone = [path for path in pool.iterdir() if path.name not in chosen]
    for path in gone:
        path.unlink()
    return gone


def _same(source: Path, target: Path) -> bool:
    if not target.is_file() or target.stat().st_size != source.stat().st_size:
        return False
    if source.samefile(target):
        return True
    with source.open("rb") as one, target.open("rb") as other:
        digests = [hashlib.file_digest(file, "sha256").digest() for file in (one, other)]
    return digests[0] == digests[1]


def _link(source: Path, target: Path) -> None:
    """Have a file in two places, without its bytes twice where both are of one file system."""
    fresh = target.with_name(f"{writing.UNFINISHED}{target.name}")
    fresh.unlink(missing_ok=True)
    try:
        os.link(source, fresh)
    except OSError:
        shutil.copy2(source, fresh)  # with its time: createrepo_c puts that into the index
    fresh.chmod(0o644)
    fresh.replace(target)
