"""What a mirror holds of a site's packages, by the index that the site's key has signed."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from bedplate.bill import place
from bedplate.bill.errors import ResolveError
from bedplate.bill.repository import digests, paragraphs, parts_of_index, primary, primary_of
from bedplate.bill.signatures import signed
from bedplate.mirror.download import Part
from bedplate.mirror.packages import deb, rpm
from bedplate.mirror.packages.pool import read, sha256_of
from bedplate.mirror.packages.wanted import format_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bedplate.bill.place import Place
    from bedplate.mirror.store import Store


def parts(site: Path, store: Store) -> dict[str, Part]:
    """Return every file of a site's repositories by its address in the mirror.

    An index that is missing or not signed by the site's key has no size that a file could have.

    Raises:
        LockError: the site's file of its packages can't be used.
    """
    known = place.load(site)
    if known is None:
        return {}
    found = {}
    for system in known.systems:
        base = f"{known.address}/{system}"
        read_as = _of_rpm if format_of(system) == "rpm" else _of_deb
        for name, sha256, size in read_as(known, store.place(base)):
            address = f"{base}/{name}"
            found[address] = Part(f"{system} {name}", "", sha256, size, store.place(address))
    return found


def _of_deb(known: Place, folder: Path) -> Iterator[tuple[str, str, int]]:
    """Yield the files of an apt repository, each with its SHA-256 and size."""
    top = folder / deb.SIGNED
    try:
        content = top.read_bytes()
        release = signed(content, known.key.encode(), known.fingerprint, str(top))
    except (OSError, ResolveError):
        yield deb.SIGNED, "", -1
        return
    yield deb.SIGNED, sha256_of(content), len(content)
    for name, (sha256, size) in digests(release.decode("utf-8", "replace")):
        yield name, sha256, size
        yield f"{deb.BY_HASH}/{sha256}", sha256, size
    text = read(folder / deb.INDEXES[0]).decode("utf-8", "replace")
    for fields in paragraphs(text):
        yield fields["Filename"], fields["SHA256"], int(fields["Size"])


def _of_rpm(known: Place, folder: Path) -> Iterator[tuple[str, str, int]]:
    """Yield the files of a repository for dnf, each with its SHA-256 and size."""
    top, signature = read(folder / rpm.TOP), read(folder / rpm.SIGNATURE)
    where = str(folder / rpm.TOP)
    try:
        signed(top, known.key.encode(), known.fingerprint, where, detached=signature)
        name, _ = primary_of(top, where)
    except ResolveError:
        yield rpm.TOP, "", -1
        return
    for file, content in ((rpm.TOP, top), (rpm.SIGNATURE, signature)):
        yield file, sha256_of(content), len(content)
    for file, part in parts_of_index(top).items():
        yield file, part.sha256, part.size
    with suppress(ResolveError):  # its size or digest is named as wrong
        for offer in primary(read(folder / name), "", name):
            yield offer.url, offer.sha256, offer.size
