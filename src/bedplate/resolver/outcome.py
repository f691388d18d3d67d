"""What the resolver says with its decision: reasons of versions, and notices."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final

#: Grades of facts that are no proof, with what a plan says of them.
WEAK: Final = {
    "secondary": "relies on indirect sources",
    "unproved": "relies on unchecked information",
    "site": "relies on facts of the site",
}


@dataclass(frozen=True)
class Reason:
    """Why a component has its version: `subject` is a pool's name, or `cluster`."""

    subject: str
    component: str
    decided: str
    because: str


class Kind(StrEnum):
    """What a notice is about: the last two are many, and are counted where space is short."""

    NOTICE = "notice"
    UNTRIED = "untried"
    WEAK = "weak"


class Stops(IntEnum):
    """The command that fails first where what a notice says is not attended to, in their order."""

    SITE_YML = 1
    PULUMI_UP = 2
    NOTHING = 3


@dataclass(frozen=True)
class Notice:
    """Something that a reviewer should know of a plan.

    Attributes:
        text: a clause without full stop.
        subject: a pool's name, `cluster`, or empty where it is about the whole site.
        kind: which notices are counted together.
        items: what is counted: ids of facts, or settings.
        hint: what to do about it.
        source: the address of the fact behind it.
        stops: the command that it can stop, by which notices are ordered.
    """

    text: str
    subject: str = ""
    kind: Kind = Kind.NOTICE
    items: tuple[str, ...] = ()
    hint: str = ""
    source: str = ""
    stops: Stops = Stops.NOTHING

    @property
    def short(self) -> str:
        """Return the text with its items and hint."""
        listed = f": {', '.join(self.items)}" if self.items else ""
        return f"{self.text}{listed}" + (f"; {self.hint}" if self.hint else "")

    def __str__(self) -> str:
        before = f"{self.subject}: " if self.subject else ""
        return f"{before}{self.short}" + (f" ({self.source})" if self.source else "")
