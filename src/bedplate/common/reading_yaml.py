"""YAML that others may have written: what would take the reader's stack is refused first."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import yaml
from pydantic import BaseModel, ValidationError

from bedplate.common import reading

if TYPE_CHECKING:
    from pathlib import Path

#: libyaml's reader goes down with Python, without a word, at some thousands of levels.
DEEPEST: Final = 200
#: What Git leaves at the beginning of lines.
MARKERS: Final = ("<<<<<<< ", "=======", ">>>>>>> ")
#: What may be nested that deeply: many brackets, or a line that begins far to the right.
_BRACKETS: Final = 2 * DEEPEST
_FAR: Final = re.compile(rf"^[ \-?:]{{{DEEPEST}}}", re.MULTILINE)


def parsed(text: str) -> Any:
    """Return the value of a text of YAML. Raises yaml.YAMLError, also for what is nested deeply."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    if text.count("[") + text.count("{") > _BRACKETS or _FAR.search(text):
        _check(text, loader)
    return yaml.load(text, Loader=loader)  # noqa: S506 - a safe one


class UnusableError(Exception):
    """A file that is there and cannot be used; `line` counts from 1, None where none is known."""

    def __init__(self, got: str, line: int | None = None) -> None:
        super().__init__(got)
        self.line = line


class ConflictError(UnusableError):
    """A file that Git could not merge."""


def value_at(path: Path) -> Any:
    """Return the value of a file of YAML. Raises FileNotFoundError, and UnusableError else."""
    try:
        text = reading.content(path).decode()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UnusableError(reading.why(error)) from error
    except UnicodeDecodeError as error:
        raise UnusableError("bytes that are not UTF-8") from error
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(MARKERS):
            raise ConflictError(line[:20], number)
    try:
        return parsed(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        got = getattr(error, "problem", None) or "no YAML"
        raise UnusableError(got, mark.line + 1 if mark else None) from error


def typed[Model: BaseModel](model: type[Model], value: Any) -> Model:
    """Return a value as a model. Raises UnusableError with the first thing that is wrong."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise UnusableError(first_of(error)) from error


def first_of(error: ValidationError) -> str:
    """Return the first thing that a model found wrong, without the value."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where}: {first['msg']}" if where else str(first["msg"])


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
