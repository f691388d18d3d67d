"""Each setting says in the model what it is, its unit, default and an example; so does the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pydantic import create_model

from bedplate.site import schema, settings_page
from bedplate.site.courses import IDLE
from bedplate.site.model import Wishes
from bedplate.site.patterns import MEMORY, Wish

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA = schema.schema()
MODELS = {"Wishes": SCHEMA, **SCHEMA["$defs"]}
SETTINGS = [(name, key) for name, model in MODELS.items() for key in model["properties"]]
CLASSES = {one.__name__: one for one in schema._below(Wish)}


def forms(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what a value may be, and those in it."""
    yield node
    for key in ("anyOf", "oneOf"):
        for one in node.get(key, ()):
            yield from forms(one)


def measured(node: dict[str, Any]) -> bool:
    """Tell whether a value is a number, a size or a time."""
    found = list(forms(node))
    numbers = any(one.get("type") in {"integer", "number"} for one in found)
    return numbers or any(one.get("pattern") in {MEMORY, IDLE} for one in found)


def test_the_page_is_the_models() -> None:
    """Write it again with: python -m bedplate.site.schema"""
    assert settings_page.PAGE.read_text(encoding="utf-8") == settings_page.text(SCHEMA)
    assert len(SETTINGS) > 200


@pytest.mark.parametrize(("model", "key"), SETTINGS, ids=[".".join(one) for one in SETTINGS])
def test_every_setting_is_described(model: str, key: str) -> None:
    node = MODELS[model]["properties"][key]
    assert node["description"]
    assert not measured(node) or node.get("x-unit")
    required = key in MODELS[model].get("required", ()) or key == "bedplate_host"
    assert required or node["default"] is not None or node.get("x-default")
    # The model takes the example: one class of that setting alone.
    field = CLASSES[model].model_fields[key]
    alone = create_model("Alone", __base__=Wish, **{key: (field.annotation, field)})
    alone(**{key: node["examples"][0]})


@pytest.mark.parametrize("written", ["", "No example.", "Example: `1`", "No stop Example: `1`"])
def test_a_setting_without_its_description_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match=r"^Course\.students: write what it is below it"):
        schema.told("Course.students", written)


def test_what_stands_below_a_setting_is_read() -> None:
    assert schema.texts(CLASSES["Topology"])["rack"].startswith("The rack. ")
    assert Wishes.model_fields["bedplate_host"].description is None
