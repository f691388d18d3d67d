"""The known word that a misspelt one most likely means, and the names that a short one means."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

from bedplate.common.versions import parts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

#: Makers and lines that stand before a model's name on a box and in a quotation.
MAKERS = {"nvidia", "geforce", "tesla"}
#: Words are this much alike to be one misspelt; less alike, they mean something else.
ALIKE = 0.7
#: Two spellings of one name are this much alike; `h100` and `h200` are not.
SAME = 0.9
#: Memory as people write it, where no letter is before the number: `a10g` is a model.
MEMORY = re.compile(r"(?<![a-z0-9])(\d+)[\s_-]*g(?:i?b)?\b")
#: Parts of a name with a number that is not the model's own.
VARIANT = re.compile(r"\d+gb|(?:sxm|hbm|gddr|nvl|pcie)\d*[a-z]?")


def nearest(word: str, known: Iterable[str], *, at_least: float = ALIKE) -> str | None:
    """Return the known word that is most like *word*, None if none is."""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=at_least)
    return found[0] if found else None


def same_digits(word: str, known: Iterable[str]) -> list[str]:
    """Return the known names with the digits of *word*: the others are another product."""
    digits = re.findall(r"\d+", word)
    return [name for name in known if re.findall(r"\d+", name) == digits]


def models_like(
    word: str, models: Iterable[str], products: Mapping[str, str] | None = None
) -> list[str]:
    """Return the models that *word* names: `h100`, `H100 SXM`, `4090`, `a100-80gb`.

    Never other hardware: a model counts only if it has the word's own number.

    Args:
        word: what was written.
        models: the names of all models.
        products: what `nvidia-smi` calls models, by name. A word of one part is a series.
    """
    parts = _parts(word)
    split = {name: name.split("-") for name in models}
    called = [name for name, product in (products or {}).items() if _parts(product) == parts]
    if called and len(parts) > 1:
        return sorted(called)
    if "-".join(parts) in split:
        return sorted(name for name, its in split.items() if its[: len(parts)] == parts)
    while _numbered(parts):
        if whole := _containing(parts, split) or _run_together(parts, split):
            return sorted(whole)
        parts = parts[:-1]
    return []


def meant(word: str, known: Sequence[str]) -> list[str]:
    """Return the known names that a wrong one means: those that it begins, then the nearest.

    Of versions the newest one of its series is nearest, or the newest that is not above it: for
    one that is older than all, the newest of all.
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
        same = [one for one in same if one.count(".") == plain.count(".")] or same
        ordered = sorted(same, key=lambda one: parts(_split(one)[1]))
        below = [one for one in ordered if parts(_split(one)[1]) <= parts(version)]
        return [(below or ordered)[-1]]
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
    close = names
    if names[1:]:
        close = difflib.get_close_matches(word, same_digits(word, names), n=2, cutoff=SAME)
    return f"write {pasted(close[0])}" if len(close) == 1 else "write one of them"


def pasted(name: str) -> str:
    """Return a name as it is pasted into YAML: in quotes if it would be read as a number."""
    return f'"{name}"' if re.fullmatch(r"\d+(\.\d+)?", name) else name


def _parts(word: str) -> list[str]:
    """Split a name as people write it: without its maker, its memory as one part."""
    plain = MEMORY.sub(r"\1gb", word.lower())
    return [part for part in re.split(r"[^a-z0-9]+", plain) if part not in {"", *MAKERS}]


def _containing(parts: Sequence[str], split: dict[str, list[str]]) -> list[str]:
    return [
        name
        for name, its in split.items()
        if all(any(_part(part, one) for one in its) for part in parts)
    ]


def _part(word: str, part: str) -> bool:
    """Whether a word is a part of a name; letters may lack the number that follows them."""
    return word == part or (
        word.isalpha() and part.startswith(word) and part.removeprefix(word).isdigit()
    )


def _run_together(parts: Sequence[str], split: dict[str, list[str]]) -> list[str]:
    """Match `rtx4090` and `h100-sxm`; a number goes on to its end: `t4` is not `t400`."""
    word = "".join(parts)
    found = []
    for name, its in split.items():
        rest = "".join(its).partition(word)
        number_goes_on = word[-1].isdigit() and rest[2][:1].isdigit()
        if rest[0] == "" and rest[1] and not number_goes_on:
            found.append(name)
    return found


def _numbered(parts: Sequence[str]) -> bool:
    """Whether a number of a model is among parts of a name."""
    return any(re.search(r"\d", part) and not VARIANT.fullmatch(part) for part in parts)
