"""What changes from one lock to the next, as clauses for a reader: no path, no digest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bedplate.lock.difference import ABSENT, leaves
from bedplate.lock.file import content_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bedplate.lock.model import Lock

#: A value up to this length is shown; what is longer is a digest, a list of packages, a text.
LONGEST = 40
#: So many names are listed; of more the first and the last.
LISTED = 3
#: Parts of a lock that have a clause of their own.
APART = ("format", "catalogue", "site_digest", "hosts", "pools")
#: Fields that no reader of a plan knows by their names.
WORDS = {"not_yet": "the list of what this version cannot install"}


def in_words(old: Lock, new: Lock) -> list[str]:
    """Return what differs, as `gpu17 and gpu18 are new` or `pool_a: nvidia_driver 535 → 580`."""
    before, after = content_of(old), content_of(new)
    found = [*_members(before["hosts"], after["hosts"]), *_members(before["pools"], after["pools"])]
    found += _changed(before["hosts"], after["hosts"])
    found += _changed(before["pools"], after["pools"])
    rest = ({key: one for key, one in lock.items() if key not in APART} for lock in (before, after))
    found += _changed(*rest)
    if old.catalogue != new.catalogue:
        found.append("the catalogue changed, by another version of Bedplate or by SITE/facts")
    if not found and old.site_digest != new.site_digest:
        found.append("settings changed that no version depends on")
    return found


def names(ones: Sequence[str]) -> str:
    """Return names in a sentence: all of a few, of more the first, the last and their number."""
    if len(ones) > LISTED:
        return f"{ones[0]} … {ones[-1]} ({len(ones)})"
    return " and ".join([", ".join(ones[:-1]), ones[-1]] if ones[1:] else ones)


def _members(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    for ones, word in (
        (sorted(new.keys() - old.keys()), "new"),
        (sorted(old.keys() - new.keys()), "gone"),
    ):
        if ones:
            yield f"{names(ones)} {'are' if ones[1:] else 'is'} {word}"


def _changed(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    """Yield what differs in hosts, pools or the rest that both have; equal changes together."""
    alike: dict[str, list[str]] = {}
    for name in sorted({*old, *new}):
        before, after = old.get(name), new.get(name)
        if isinstance(before, dict) and isinstance(after, dict):
            for part in sorted({*before, *after}):
                if text := _part(part, before.get(part, ABSENT), after.get(part, ABSENT)):
                    alike.setdefault(text, []).append(name)
    for text, its in alike.items():
        yield f"{names(its)}: {text}"


def _part(name: str, old: Any, new: Any) -> str | None:
    """Return how one part differs: by its version where that does, by its only value, or so."""
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new) == 1:
        (old,), (new,) = old, new
    name = WORDS.get(name, name)
    found = {path: values for path, *values in leaves(name, old, new)}
    if not found:
        return None
    path = f"{name}.version" if f"{name}.version" in found else next(iter(found))
    before, after = found[path]
    label = name if path == f"{name}.version" else path.replace(".", " ")
    shown = [_shown(value) for value in (before, after)]
    if (len(found) > 1 and path != f"{name}.version") or None in shown:
        return f"{name} {'is new' if old is ABSENT else 'is gone' if new is ABSENT else 'changed'}"
    return f"{label} {shown[0]} → {shown[1]}"


def _shown(value: Any) -> str | None:
    if value is ABSENT or value is None:
        return "none"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    short = isinstance(value, str | int | float) and len(text) <= LONGEST
    return text if short and not text.startswith("sha256:") else None
