"""Where in the user's files a wish stands."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

type KeyPath = tuple[str | int, ...]


@dataclass(frozen=True)
class Place:
    """A file with a line and a column, both starting at 1."""

    file: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        return ":".join(str(x) for x in (self.file, self.line, self.column) if x is not None)


@dataclass(frozen=True)
class Places:
    """The places of one host's wishes, by key path; an unknown path has its parent's place.

    `own` are those that it shares with no other host; what a pool lacks is missing at `pool`.
    """

    known: Mapping[KeyPath, Place] = field(default_factory=dict)
    fallback: Place = field(default_factory=lambda: Place(""))
    own: Mapping[KeyPath, Place] = field(default_factory=dict)
    pool: Place | None = None

    def of(self, path: Sequence[str | int]) -> Place:
        """Return the place of the wish, or of the nearest thing around it."""
        wanted = tuple(path)
        while wanted:
            if found := self.own.get(wanted) or self.known.get(wanted):
                return found
            wanted = wanted[:-1]
        return (self.pool if str(path[0]).startswith("bedplate_") else None) or self.fallback


def spelt(path: Sequence[str | int]) -> str:
    """Return `bedplate_gpu[0].model` for a key path."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def key_before(lines: Sequence[str], key: str, line: int) -> tuple[int, int] | None:
    """Find the last `key:` at or above *line*; Ansible knows where a value starts, not its key."""
    pattern = re.compile(rf"(?<![\w.-])['\"]?{re.escape(key)}['\"]?\s*[:=]")
    for number in range(min(line, len(lines)), 0, -1):
        if found := pattern.search(lines[number - 1]):
            return number, found.start() + 1
    return None


def lines_of(file: str) -> list[str]:
    """Return the lines of a text file; none for anything else."""
    try:
        return Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
