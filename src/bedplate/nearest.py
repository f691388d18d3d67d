"""The known word that a misspelt one most likely means, and the names that a short one means."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: Makers and lines that stand before a model's name on a box and in a quotation.
MAKERS = {"nvidia", "geforce", "tesla"}
#: Two spellings of one name are this much alike; `h100` and `h200` are not.
SAME = 0.9


def nearest(word: str, known: Iterable[str], *, at_least: float = 0.5) -> str | None:
    """Return the known word that is most like *word*, None if none is."""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=at_least)
    return found[0] if found else None


def same_digits(word: str, known: Iterable[str]) -> list[str]:
    """Return the known names with the digits of *word*: the others are another product."""
    digits = re.findall(r"\d+", word)
    return [name for name in known if re.findall(r"\d+", name) == digits]


def models_like(word: str, models: Iterable[str]) -> list[str]:
    """Return the models that *word* names or begins: `h100`, `H100 SXM`, `4090`, `a100-80gb`.

    Never other hardware: a model counts only if it has the word's own number.
    """
    parts = [part for part in re.split(r"[^a-z0-9]+", word.lower()) if part not in {"", *MAKERS}]
    split = {name: name.split("-") for name in models}
    whole = _beginning(parts, split) or _containing(parts, split) or _run_together(parts, split)
    while not whole and len(parts) > 1:
        parts = parts[:-1]
        whole = _beginning(parts, split)
    return sorted(whole)


def write_one(word: str, names: Sequence[str]) -> str:
    """Return what to write instead of *word*: the one name that it means, or one of several."""
    close = names[0] if len(names) == 1 else nearest(word, names, at_least=SAME)
    return f"write {close}" if close else "write one of them"


def _beginning(parts: Sequence[str], split: dict[str, list[str]]) -> list[str]:
    if not _numbered(parts):
        return []
    return [name for name, its in split.items() if its[: len(parts)] == list(parts)]


def _containing(parts: Sequence[str], split: dict[str, list[str]]) -> list[str]:
    if not _numbered(parts):
        return []
    return [name for name, its in split.items() if set(parts) <= set(its)]


def _run_together(parts: Sequence[str], split: dict[str, list[str]]) -> list[str]:
    """Match `rtx4090` and `h100-sxm`; a number goes on to its end: `t4` is not `t400`."""
    word = "".join(parts)
    if not _numbered(parts):
        return []
    found = []
    for name, its in split.items():
        rest = "".join(its).partition(word)
        number_goes_on = word[-1].isdigit() and rest[2][:1].isdigit()
        if rest[0] == "" and rest[1] and not number_goes_on:
            found.append(name)
    return found


def _numbered(parts: Sequence[str]) -> bool:
    return any(sign.isdigit() for part in parts for sign in part)
