"""The known word that a misspelt one most likely means."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def nearest(word: str, known: Iterable[str], *, at_least: float = 0.5) -> str | None:
    """Return the known word that is most like *word*, None if none is."""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=at_least)
    return found[0] if found else None
