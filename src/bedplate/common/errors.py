"""Mistakes of the user, collected, in the one form of `bedplate.portable.message`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bedplate.common.harmless import without_secrets
from bedplate.portable.message import problem

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, and what to do about it.

    Attributes:
        what: a clause without full stop.
        file: where it is, relative to where the user stands when that is possible.
        line: starting at 1, None if the place has no line.
        column: starting at 1.
        key: the wish, with the path inside it (`bedplate_driver.branch`).
        got: what was found.
        allowed: what would be right.
        fix: an imperative sentence.
        rule: the name of the rule that refuses.
        sources: addresses that the rule leans on.
    """

    what: str
    file: str | None = None
    line: int | None = None
    column: int | None = None
    key: str | None = None
    got: str | None = None
    allowed: str | None = None
    fix: str = ""
    rule: str = "site"
    sources: Sequence[str] = field(default=())

    @property
    def place(self) -> str:
        """Return `file:line:column`, as far as it is known."""
        return ":".join(str(x) for x in (self.file, self.line, self.column) if x is not None)

    @property
    def where(self) -> str:
        """Return `file:line:column key`, as far as it is known."""
        return " ".join(x for x in (self.place, self.key) if x)

    def __str__(self) -> str:
        place = self.place if self.line is not None else ""
        where = (self.key or "") if place else self.where
        # A name that is wrong itself is in the place already.
        repeats = f".{self.key}".endswith(f".{self.got}") and self.what.startswith("unknown")
        got = None if self.got is None or repeats else without_secrets(self.got)
        return problem(self.what, where, got, self.allowed, self.fix, place)

    def as_json(self) -> dict[str, Any]:
        """Return the form that `--json` prints."""
        return {
            "rule": self.rule,
            "what": self.what,
            "file": self.file,
            "line": self.line,
            "key": self.key,
            "got": None if self.got is None else without_secrets(self.got),
            "allowed": self.allowed,
            "fix": self.fix,
            "sources": list(self.sources),
        }


def in_order(problems: Sequence[Problem]) -> list[Problem]:
    """Sort by file and line and drop what was found twice."""
    unique = dict.fromkeys(problems)
    return sorted(
        unique,
        key=lambda p: (p.file or "", p.line or 0, p.column or 0, p.key or "", p.what, p.got or ""),
    )


@dataclass(frozen=True)
class Wrong:
    """What does not do: the parts of a message that are not about its place."""

    got: str
    allowed: str
    fix: str


class BedplateError(Exception):
    """Something that the user can put right: all problems at once, sorted by file and line."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = in_order(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class SiteError(BedplateError):
    """A site that cannot be read or is wrong in itself."""


class CatalogueError(BedplateError):
    """Facts that contradict themselves or lack a source."""


class RefusedError(BedplateError):
    """A site that no lock can satisfy."""


class LockError(BedplateError):
    """A lock that is missing, stale or cannot be read."""
