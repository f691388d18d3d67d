"""What is on disk against a site's bill: every file, manifest and blob, by size and digest."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bedplate.bill.places import split
from bedplate.mirror import wanted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bedplate.bill import Bill, Image, Places
    from bedplate.mirror.download import Part
    from bedplate.mirror.store import Store

JOBS = 4


@dataclass(frozen=True)
class Damage:
    """One thing that is not as the bill has it: its name, where it lies, and what is wrong."""

    name: str
    place: str
    wrong: str

    def __str__(self) -> str:
        return f"{self.name}: {self.wrong} ({self.place})"


def check(bill: Bill, store: Store, places: Places, *, sizes_only: bool = False) -> list[Damage]:
    """Return what is missing, truncated or changed, in the bill's order.

    With *sizes_only* contents of files and blobs are not read: a changed byte stays unseen.

    Raises:
        MirrorError: the bill names what no mirror can hold.
    """
    found: list[Damage] = []
    parts = list(wanted.files(bill, store).values())
    for name, entry in sorted(bill.images.items()):
        named = list(_manifests(name, entry, store))
        found += named
        if not named:
            manifest = store.images.manifest(entry.manifest) or {}
            parts += wanted.image(name, entry, manifest, store, places).blobs
    return found + damaged(parts, sizes_only=sizes_only)


def damaged(parts: Iterable[Part], *, sizes_only: bool = False) -> list[Damage]:
    """Return which parts are missing, truncated or changed; each place is looked at once."""
    unique = list({part.target: part for part in parts}.values())

    def look(part: Part) -> str:
        return part.wrong_size() if sizes_only else part.damage()

    with ThreadPoolExecutor(JOBS) as pool:
        return [
            Damage(part.name, str(part.target), wrong)
            for part, wrong in zip(unique, pool.map(look, unique), strict=True)
            if wrong
        ]


def _manifests(name: str, entry: Image, store: Store) -> Iterator[Damage]:
    for digest in wanted.manifests(name, entry):
        if store.images.manifest(digest) is None:
            place = store.images.blob(digest)
            yield Damage(name, str(place), "manifest is changed" if place.exists() else "missing")
    tagged = store.images.tagged(*split(name))
    if tagged != entry.digest:
        yield Damage(name, str(store.images.folder), f"its tag names {tagged or 'nothing'}")
