"""A flat apt repository below the mirror's files: packages, their index, and its signature."""

from __future__ import annotations

import lzma
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from bedplate.common import writing
from bedplate.mirror.packages import running
from bedplate.mirror.packages.apt_root import ARCHITECTURE
from bedplate.mirror.packages.pool import INDEXING, POOL, bring, drop_others, read, sha256_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bedplate.mirror.packages.keys import SigningKey
    from bedplate.mirror.packages.pool import Package

ORIGIN = "bedplate-mirror"
#: Where an index is found by its digest: a host that has read the old one still gets it.
BY_HASH = "by-hash/SHA256"
INDEXES = ("Packages", "Packages.xz")
#: The file that names all others by digest, and is written last.
SIGNED = "InRelease"
EPOCH = re.compile(r"_[0-9]+%3a")


def file_name(deb: Package) -> str:
    """Return a package's name in the pool: without the epoch, as archives have it."""
    return EPOCH.sub("_", deb.name)


def publish(folder: Path, archives: Path, debs: Iterable[Package], key: SigningKey) -> bool:
    """Have a repository hold just these packages, and return whether anything changed.

    What hosts read changes with one file, the signed one. Packages that are no longer listed go
    after it; the index before stays, for hosts that are reading it.

    Args:
        folder: the repository.
        archives: where the packages lie.
        debs: the packages, each as its archive's index has it.
        key: signs the index.

    Raises:
        MirrorError: apt-ftparchive is missing or fails.
    """
    chosen = {file_name(deb): archives / deb.name for deb in debs}
    bring(chosen, folder / POOL)
    index = _index(folder / POOL, chosen)
    packed = lzma.compress(index, preset=6)
    unchanged = read(folder / INDEXES[0]) == index and _signed_by(folder, key)
    if not unchanged:
        _write_index(folder, dict(zip(INDEXES, (index, packed), strict=True)), key)
    gone = drop_others(chosen, folder / POOL)
    return not unchanged or bool(gone)


def _write_index(folder: Path, contents: Mapping[str, bytes], key: SigningKey) -> None:
    before = {path.name for path in (folder / BY_HASH).glob("*")}
    current = {sha256_of(read(folder / name)) for name in INDEXES}
    for content in contents.values():
        writing.replace(folder / BY_HASH / sha256_of(content), content)
    release = _release(contents)
    for name, content in contents.items():
        writing.replace(folder / name, content)
    writing.replace(folder / SIGNED, key.clearsigned(release))
    listed = {sha256_of(content) for content in contents.values()}
    for name in before - listed - current:
        (folder / BY_HASH / name).unlink()


def _index(pool: Path, chosen: Mapping[str, Path]) -> bytes:
    """Return the index of the chosen packages alone: others of the pool go only afterwards."""
    with tempfile.TemporaryDirectory(dir=pool.parent, prefix=INDEXING) as name:
        work = Path(name)
        (work / POOL).mkdir()
        for one in chosen:
            (work / POOL / one).symlink_to(pool.resolve() / one)
        return _ftparchive(work, "packages", POOL)


def _release(contents: Mapping[str, bytes]) -> bytes:
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        for file, content in contents.items():
            (work / file).write_bytes(content)
        fields = {
            "Origin": ORIGIN,
            "Label": ORIGIN,
            "Architectures": ARCHITECTURE,
            "Acquire-By-Hash": "yes",
        }
        options = [
            part
            for field, value in fields.items()
            for part in ("-o", f"APT::FTPArchive::Release::{field}={value}")
        ]
        # One digest of each, the one by which the index lies here: apt asks for its strongest.
        others = ("MD5", "SHA1", "SHA512")
        options += [part for one in others for part in ("-o", f"APT::FTPArchive::{one}=false")]
        return _ftparchive(work, *options, "release", ".")


def _ftparchive(work: Path, *words: str) -> bytes:
    missing = "apt's own program for archives", "run 'apt-get install apt-utils'"
    return running.index(["apt-ftparchive", "-q", *words], missing, work)


def _signed_by(folder: Path, key: SigningKey) -> bool:
    """Say whether there is a signed index of the packages that are listed, by this key."""
    text = read(folder / SIGNED)
    listed = sha256_of(read(folder / INDEXES[0])).encode()
    return listed in text and key.has_signed(text)
