"""What was meant by a name that is no setting: the setting, its place elsewhere, or its absence.

`sought.yml` has the words. A name that it does not know gets a suggestion only where it is spelt
like a setting, and the list of all settings otherwise.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from bedplate.common.nearest import SAME, nearest
from bedplate.site.model import KEYS, PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


@cache
def _table() -> Mapping[str, Any]:
    found: dict[str, Any] = yaml.safe_load(
        Path(__file__).with_name("sought.yml").read_text(encoding="utf-8")
    )
    return found


@cache
def _elsewhere() -> Mapping[str, Mapping[str, str]]:
    return {word: entry for entry in _table()["elsewhere"] for word in entry["words"]}


def elsewhere(name: str) -> tuple[str, str | None, str] | None:
    """Return what is absent about a name, or where it is, and the fix; None if it is not known."""
    entry = _elsewhere().get(name.lower().replace("-", "_"))
    if entry is None:
        return None
    if "absent" not in entry:
        return "", entry["where"], entry["fix"]
    said = "; ".join(entry[key] for key in ("absent", "where") if key in entry)
    return f": {said}", None, entry["fix"]


def setting(
    name: str, fields: Callable[[tuple[str | int, ...]], Sequence[str]]
) -> tuple[str, str | None, str]:
    """Return what is said of an unknown setting: what is absent, what is allowed, and the fix.

    `fields` are the keys that are known next to the one at a path.
    """
    own = name.removeprefix(PREFIX).lower().replace("-", "_")
    bare = {one.removeprefix(PREFIX): one for one in KEYS}
    if known := elsewhere(own):
        return known
    # The prefix that all have in common makes no two settings alike.
    if close := nearest(own, bare):
        return "", bare[close], f"write {bare[close]}"
    if whole := nearest(name.replace("-", "_"), KEYS, at_least=SAME):
        return "", whole, f"write {whole}"
    words = own.split("_")
    for length in range(len(words) - 1, 0, -1):
        around, rest = bare.get("_".join(words[:length])), "_".join(words[length:])
        if around and rest in fields((around, rest)):
            return "", around, f"write {around}: {{{rest}: …}}"
    for length in range(len(words) - 1, 0, -1):
        for start in range(len(words) - length + 1):
            if known := elsewhere("_".join(words[start : start + length])):
                return known
    about = ", ".join(f"{key} ({text})" for key, text in _table()["settings"].items())
    return "", about, "write one of these, or remove it"
