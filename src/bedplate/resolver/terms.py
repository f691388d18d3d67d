"""Facts of the logic program as text."""

from __future__ import annotations

from functools import lru_cache


class Name(str):
    """A constant of the logic program, as opposed to a string."""

    __slots__ = ()


type Term = str | int


def name(text: str) -> Name:
    """Return a constant for one of our own words: `time-slicing` is `time_slicing` there."""
    return Name(text.replace("-", "_"))


@lru_cache(maxsize=10_000, typed=True)  # typed: a name equals its text
def spelt(term: Term) -> str:
    """Return a term as the logic program spells it."""
    if isinstance(term, Name):
        return term
    if isinstance(term, int):
        return str(term)
    return '"' + term.replace("\\", "\\\\").replace('"', '\\"') + '"'


def function(symbol: str, argument: str) -> Name:
    """Return a compound constant: `framework("pytorch")`."""
    return Name(f"{symbol}({spelt(argument)})")


class Facts:
    """Facts in the order in which they were given, each once."""

    def __init__(self) -> None:
        self._lines: dict[str, None] = {}

    def add(self, predicate: str, *terms: Term) -> None:
        """Add a fact."""
        self._lines[f"{predicate}({','.join(map(spelt, terms))})."] = None

    def copy(self) -> Facts:
        """Return the same facts, to which others can be added."""
        other = Facts()
        other._lines = dict(self._lines)
        return other

    def text(self) -> str:
        """Return the program."""
        return "\n".join(self._lines)
