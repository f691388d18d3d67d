"""Messages that the API server writes: expressions of CEL, in the form of `portable.message`."""

from __future__ import annotations

import re

from bedplate.portable.message import problem

_EXPRESSION = re.compile(r"\{([^{}]*)\}")


def message(what: str, where: str, got: str | None, allowed: str, fix: str) -> str:
    """Return the expression whose value is a message; what stands in braces is CEL.

    >>> message("pod {object.metadata.name} is alone", "spec", None, "two of them", "add one")
    "'pod ' + object.metadata.name + ' is alone — spec — allowed two of them — add one'"
    """
    parts = _EXPRESSION.split(problem(what, where, got, allowed, fix))
    terms = (part if number % 2 else _quoted(part) for number, part in enumerate(parts))
    return " + ".join(filter(None, terms))


def _quoted(text: str) -> str:
    """Return a text as CEL writes it, and nothing for no text."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'" if text else ""
