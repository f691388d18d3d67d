"""What a mirror holds of a site's packages, by the index that the site's key has signed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bedplate.bill.errors import ResolveError
from bedplate.bill.repository import digests, paragraphs
from bedplate.bill.signatures import signed
from bedplate.mirror.download import Part
from bedplate.mirror.packages import deb, place

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bedplate.mirror.packages.place import Place
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
    return {
        address: part
        for system in known.systems
        for address, part in _of_system(known, system, store)
    }


def _of_system(known: Place, system: str, store: Store) -> Iterator[tuple[str, Part]]:
    base = f"{known.address}/{system}"

    def part(name: str, sha256: str, size: int) -> tuple[str, Part]:
        address = f"{base}/{name}"
        return address, Part(f"{system} {name}", "", sha256, size, store.place(address))

    top = store.place(f"{base}/{deb.SIGNED}")
    try:
        content = top.read_bytes()
        release = signed(content, known.key.encode(), known.fingerprint, str(top))
    except (OSError, ResolveError):
        yield part(deb.SIGNED, "", -1)
        return
    yield part(deb.SIGNED, deb.sha256_of(content), len(content))
    for name, (sha256, size) in digests(release.decode("utf-8", "replace")):
        yield part(name, sha256, size)
        yield part(f"{deb.BY_HASH}/{sha256}", sha256, size)
    index = top.parent / deb.INDEXES[0]
    text = index.read_text("utf-8", "replace") if index.is_file() else ""
    for fields in paragraphs(text):
        yield part(fields["Filename"], fields["SHA256"], int(fields["Size"]))
