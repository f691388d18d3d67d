"""The known word that a misspelt one most likely means, and the names that a short one means."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

from bedplate.versions import parts

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


def meant(word: str, known: Sequence[str]) -> list[str]:
    """Return the known names that a wrong one means: those that it begins, then the nearest.

    Of versions the newest one of its series is nearest, or the newest that is not above it.
    """
    plain = re.sub(r"[^a-z0-9.]+", "-", word.lower()).strip("-.")
    if plain in known:
        return [plain]
    if begun := [name for name in known if name.startswith((f"{plain}.", f"{plain}-"))]:
        return [max(begun, key=parts)] if _version(plain) else begun
    if around := [name for name in known if plain.startswith(f"{name}.")]:
        return around
    name, version = _split(plain)
    same = [one for one in known if _split(one)[0] == name and _split(one)[1]]
    if version and same:
        ordered = sorted(same, key=lambda one: parts(_split(one)[1]))
        below = [one for one in ordered if parts(_split(one)[1]) <= parts(version)]
        return [below[-1] if below else ordered[0]]
    close = nearest(word, known)
    return [close] if close else []


def _split(text: str) -> tuple[str, str]:
    """Return a name and the version after it; either may be empty."""
    found = re.fullmatch(r"(?P<name>.*?)-?(?P<version>\d+(\.\d+)*)?", text)
    return (found["name"], found["version"] or "") if found else (text, "")


def _version(text: str) -> bool:
    return re.fullmatch(r"\d+(\.\d+)*", text) is not None


def write_one(word: str, names: Sequence[str]) -> str:
    """Return what to write instead of *word*: the one name that it means, or one of several."""
    close = difflib.get_close_matches(word, names, n=2, cutoff=SAME) if names[1:] else names
    return f"write {close[0]}" if len(close) == 1 else "write one of them"


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
