"""Versions as numbers, so that rules in any language compare them the same way."""

from __future__ import annotations

import re
from functools import lru_cache

#: Many more versions than a catalogue has: rules compare each of them thousands of times.
KNOWN = 8192
WIDTH = 3
BASE = 1000
LEADING_DIGITS = re.compile(r"\d+")


@lru_cache(KNOWN)
def parts(version: str) -> tuple[int, ...]:
    """Return the numeric parts of a version; a suffix such as `-rc.1` or `+deb13` is left out."""
    found = []
    for part in version.removeprefix("v").split("."):
        digits = LEADING_DIGITS.match(part)
        if digits is None:
            break
        found.append(int(digits.group()))
        if digits.group() != part:
            break
    return tuple(found)


@lru_cache(KNOWN)
def number(version: str) -> int:
    """Return the version's first three parts as one integer: `535.309.01` is 535309001.

    The first part may go to 2146, the others to 999: what fits the solver's 32-bit numbers.
    """
    return _joined(parts(version), 0)


@lru_cache(KNOWN)
def last(version: str) -> int:
    """Return the number of the last version that begins so: of `1.36`, it is 1036999."""
    return _joined(parts(version), BASE - 1)


def natural(text: str) -> list[str | int]:
    """Return a key that sorts names with versions as people count: `jax-0.9` before `jax-0.10`."""
    return [int(one) if one.isdigit() else one for one in re.split(r"([0-9]+)", text)]


def minor(version: str) -> str:
    """Return the first two parts: `1.36` of `1.36.3`."""
    return ".".join(version.split(".")[:2])


def _joined(given: tuple[int, ...], filler: int) -> int:
    total = 0
    for position in range(WIDTH):
        value = given[position] if position < len(given) else filler
        if position:
            value = min(value, BASE - 1)
        total = total * BASE + value
    return total
