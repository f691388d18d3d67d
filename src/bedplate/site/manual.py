"""What the manual has of a setting, and the models of settings that a path leads through."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel

from bedplate.site.model import Wishes


@cache
def _written(model: str, key: str) -> dict[str, Any]:
    """Return what the manual has of a key of a model of settings; nothing where there is none."""
    schema = json.loads(Path(__file__).with_name("schema.json").read_text(encoding="utf-8"))
    found: dict[str, Any] = schema["$defs"].get(model, schema)["properties"].get(key, {})
    return found


def of_key(path: tuple[str | int, ...]) -> tuple[str, dict[str, Any]]:
    """Return the key that a path ends in, without indexes, and what the manual has of it."""
    key = next((str(part) for part in reversed(path) if not isinstance(part, int)), "")
    return key, _written(models(path[: path.index(key)])[-1].__name__, key)


def fields(path: tuple[str | int, ...]) -> list[str]:
    """Return the keys that are known beside the one at *path*."""
    return list(models(path[:-1])[-1].model_fields)


def models(path: tuple[str | int, ...]) -> list[type[BaseModel]]:
    """Return the models that a path leads through."""
    through: list[type[BaseModel]] = [Wishes]
    for part in path:
        if not isinstance(part, int) and (field := through[-1].model_fields.get(part)):
            through.append(model_in(field.annotation) or through[-1])
    return through


def model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the first model that a type has in it."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((m for arg in get_args(annotation) if (m := model_in(arg))), None)


def flow(value: object) -> str:
    """Return a value as YAML on one line."""
    written = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10**6)
    return written.removesuffix("...\n").strip()
