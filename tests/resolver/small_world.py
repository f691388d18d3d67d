"""A small catalogue for the tests of the rules: every kind of fact, few of each.

It is a folder of facts as the real one is, so that a fact of the real catalogue can change without
a rule's test changing with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, cast

from bedplate.catalogue.load import Catalogue, read_catalogue
from tests.properties.plain import Facts, facts_in

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

WORLD = Path(__file__).with_name("world")


@dataclass(frozen=True)
class _File:
    path: Path

    def read_bytes(self) -> bytes:
        """Return the file; a kind that the small world does not have is empty."""
        return self.path.read_bytes() if self.path.exists() else b"[]\n"


class _Folder:
    def __truediv__(self, name: str) -> _File:
        return _File(WORLD / name)


@cache
def world() -> Catalogue:
    """Return the small catalogue, read and checked as the real one is."""
    return read_catalogue(cast("Traversable", _Folder()))


@cache
def plain_world() -> Facts:
    """Return it as the checker reads it."""
    return facts_in(WORLD)
