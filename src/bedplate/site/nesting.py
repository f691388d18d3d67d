"""Racks, leaf switches and NVLink domains: which lies in which, as far as hosts say. Pure."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: What each host has a value of. The last is the narrowest; the others may lie either way.
LEVELS: Final = ("rack", "leaf", "nvlink_domain")
DOMAIN: Final = "nvlink_domain"
NONE: Final = "none"


@dataclass(frozen=True)
class Overlap:
    """A part of the inner level that lies in several of the outer one, or in one and in none.

    `members` are its hosts.
    """

    inner: str
    value: str
    outer: str
    others: tuple[str, ...]
    members: tuple[str, ...]

    @property
    def got(self) -> str:
        """Return what is wrong, in words."""
        return f"{spelt(self.inner)} {self.value} in {self.outer} {' and '.join(self.others)}"

    @property
    def allowed(self) -> str:
        """Return what would be right."""
        return f"each {spelt(self.inner)} in one {self.outer}"


def spelt(level: str) -> str:
    """Return a level in words."""
    return "NVLink domain" if level == DOMAIN else level


def order(places: Mapping[str, Mapping[str, str]]) -> tuple[str, ...] | Overlap:
    """Return the levels in use by the places of hosts, widest first, or what does not nest.

    Racks may have several leaves, or leaves several racks.
    """
    used = [level for level in LEVELS if any(level in place for place in places.values())]
    wide = [level for level in used if level != DOMAIN]
    if len(wide) == 2 and _overlap(places, wide[1], wide[0]):
        if overlap := _overlap(places, wide[0], wide[1]):
            return _overlap(places, wide[1], wide[0]) or overlap
        wide.reverse()
    found = (*wide, DOMAIN) if DOMAIN in used else tuple(wide)
    for outer, inner in itertools.pairwise(found):
        if overlap := _overlap(places, inner, outer):
            return overlap
    return found


def _overlap(places: Mapping[str, Mapping[str, str]], inner: str, outer: str) -> Overlap | None:
    pairs = ((place[inner], place.get(outer, NONE)) for place in places.values() if inner in place)
    for value, others in grouped(pairs).items():
        if len(others) > 1:
            members = tuple(name for name, place in places.items() if place.get(inner) == value)
            return Overlap(inner, value, outer, tuple(others), members)
    return None


def grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the second values by the first ones, sorted."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for one, other in pairs:
        found[one].add(other)
    return {one: sorted(others) for one, others in sorted(found.items())}
