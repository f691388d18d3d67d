"""YAML that others may have written: what would take the reader's stack is refused first."""

from __future__ import annotations

import re
from typing import Any, Final

import yaml

#: libyaml's reader goes down with Python, without a word, at some thousands of levels.
DEEPEST: Final = 200
#: What may be nested that deeply: many brackets, or a line that begins far to the right.
_BRACKETS: Final = 2 * DEEPEST
_FAR: Final = re.compile(rf"^[ \-?:]{{{DEEPEST}}}", re.MULTILINE)


def parsed(text: str) -> Any:
    """Return the value of a text of YAML. Raises yaml.YAMLError, also for what is nested deeply."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    if text.count("[") + text.count("{") > _BRACKETS or _FAR.search(text):
        _check(text, loader)
    return yaml.load(text, Loader=loader)  # noqa: S506 - a safe one


def _check(text: str, loader: Any) -> None:
    """Read event by event, which needs no stack."""
    level = 0
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, yaml.CollectionStartEvent):
            level += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            level -= 1
        if level > DEEPEST:
            raise yaml.MarkedYAMLError(problem=f"nested deeper than {DEEPEST} levels")
