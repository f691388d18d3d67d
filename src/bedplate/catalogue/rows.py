"""The rows of a file of facts: read one by one, and named by their place while they are wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from bedplate.catalogue.facts import Fact, Value

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Who is sure of a site's facts.
OF_SITE = "site"

type KeyPath = tuple[str | int, ...]


@dataclass(frozen=True)
class Kind:
    """A kind of fact: what its values are, and the fields that name one, which make its id."""

    prefix: str
    value: type[Value]
    names: tuple[str, ...]

    def name_of(self, value: Any) -> str:
        """Return what names a value among its kind."""
        return "-".join(str(getattr(value, field)) for field in self.names if getattr(value, field))


@dataclass(frozen=True)
class Row:
    """One fact as a file has it, or what is wrong with it.

    Attributes:
        key: its id, or the number of its entry where it has none.
        path: where its value is in the file; `wrong` begins there or at the entry.
        fact: the fact, None where something is wrong.
        wrong: where below the file's root, and what.
    """

    key: str
    path: KeyPath
    fact: Fact[Any] | None
    wrong: tuple[tuple[KeyPath, KeyPath, str], ...] = ()


def rows_of(kind: Kind, entries: Any, **defaults: Any) -> Iterator[Row]:
    """Yield the rows of a file, with *defaults* for what an entry leaves out beside its value."""
    for number, entry in enumerate(entries or []):
        for path, one in _spread(number, entry):
            key = str(one.get("id") or f"[{number}]")
            try:
                value = kind.value.model_validate(one.get("value"))
            except ValidationError as error:
                yield Row(key, path, None, tuple(_wrong(path, error)))
                continue
            told = {"id": f"{kind.prefix}/{kind.name_of(value)}"} | defaults | one
            try:
                fact: Fact[Any] = Fact.model_validate(told | {"value": value})
            except ValidationError as error:
                yield Row(str(told["id"]), path, None, tuple(_wrong((number,), error)))
            else:
                yield Row(fact.id, path, fact)


def _wrong(path: KeyPath, error: ValidationError) -> Iterator[tuple[KeyPath, KeyPath, str]]:
    for detail in error.errors(include_url=False):
        inner = detail["loc"]
        yield (*path, *inner), inner, detail["msg"]


def _spread(number: int, entry: Any) -> Iterator[tuple[KeyPath, dict[str, Any]]]:
    """Yield the facts of one entry: `values` shares its reason and source among several.

    What all the values of an entry have in common may stand once, under `each`.
    """
    if not isinstance(entry, dict):
        yield (number,), {}
    elif "values" not in entry:
        yield (number, "value"), entry
    else:
        rest = {key: value for key, value in entry.items() if key not in ("each", "values")}
        each, values = entry.get("each", {}), entry["values"]
        if not isinstance(values, list) or not isinstance(each, dict):
            yield (number, "values" if isinstance(each, dict) else "each"), {"value": None}
            return
        for place, value in enumerate(values):
            said = each | value if isinstance(value, dict) else value
            yield (number, "values", place), {"value": said, **rest}
