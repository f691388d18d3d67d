"""The JSON Schema of site files, and the page of all settings: `python -m bedplate.site.schema`.

What a setting is stands below it in the model, as a string: sentences, then, where they apply,
`Unit: …`, `Left out: …` and always an `Example: …` in YAML. Python keeps no such string, so that
commands which do not write these two files never read it.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from bedplate.site.model import Wishes
from bedplate.site.patterns import Wish

if TYPE_CHECKING:
    from collections.abc import Iterator

PATH = Path(__file__).with_name("schema.json")
FORM = re.compile(
    r"(?P<description>.+?\.)(?: Unit: (?P<unit>.+?)\.)?(?: Left out: (?P<default>.+?)\.)?"
    r" Example: `(?P<example>[^`]+)`"
)


def schema() -> dict[str, Any]:
    """Return the schema of one variables file: no wish has to be in it, other variables may be.

    Raises:
        ValueError: a setting has no description, or one of another form.
    """
    found = Wishes.model_json_schema(mode="validation")
    found.pop("required", None)
    found["additionalProperties"] = True
    found["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    parts = found["$defs"]["Sharing"]["properties"].pop("parts")
    listed = {"items": parts["items"], "minItems": 1, "type": "array"}
    for key, other in (("gpu", {"$ref": "#/$defs/Gpu"}), ("sharing", listed)):
        one = found["properties"][f"bedplate_{key}"]
        default = one.pop("default")
        found["properties"][f"bedplate_{key}"] = {"anyOf": [one, other], "default": default}
    models = {one.__name__: one for one in _below(Wish)}
    for name, model in (("Wishes", found), *found["$defs"].items()):
        written = texts(models[name])
        for key, value in model["properties"].items():
            value |= told(f"{name}.{key}", written.get(key, ""))
    return found


def text() -> str:
    """Return the schema as its file has it."""
    return json.dumps(schema(), indent=2, sort_keys=True) + "\n"


def texts(model: type[Wish]) -> dict[str, str]:
    """Return what stands below the settings of a model and of those that it extends."""
    (written,) = ast.parse(inspect.getsource(model)).body
    lines = written.body if isinstance(written, ast.ClassDef) else []
    above = [texts(base) for base in model.__bases__ if issubclass(base, Wish)]
    inherited = {name: text for found in above for name, text in found.items()}
    return inherited | {
        line.target.id: " ".join(str(below.value.value).split())
        for line, below in pairwise(lines)
        if isinstance(line, ast.AnnAssign)
        and isinstance(line.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
    }


def told(name: str, written: str) -> dict[str, Any]:
    """Return what a schema says of a setting: keys that editors show, and `x-` for the page.

    Raises:
        ValueError: the setting has no description, or one of another form.
    """
    form = FORM.fullmatch(written)
    if form is None:
        raise ValueError(f"{name}: write what it is below it, in the form of bedplate.site.schema")
    found: dict[str, Any] = {"description": form["description"]}
    found["examples"] = [yaml.safe_load(form["example"])]
    return found | {f"x-{key}": form[key] for key in ("unit", "default") if form[key]}


def _below(model: type[Wish]) -> Iterator[type[Wish]]:
    for one in model.__subclasses__():
        yield one
        yield from _below(one)


if __name__ == "__main__":
    from bedplate.site import settings_page

    PATH.write_text(text(), encoding="utf-8")
    settings_page.PAGE.write_text(settings_page.text(schema()), encoding="utf-8")
