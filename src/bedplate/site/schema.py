"""The JSON Schema of site files, for editors: run `python -m bedplate.site.schema` to write it."""

from __future__ import annotations

import json
from pathlib import Path

from bedplate.site.model import Wishes

PATH = Path(__file__).with_name("schema.json")


def text() -> str:
    """Return the schema of one variables file: no wish has to be in it, other variables may be."""
    schema = Wishes.model_json_schema(mode="validation")
    schema.pop("required", None)
    schema["additionalProperties"] = True
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    gpu = schema["properties"]["bedplate_gpu"]
    schema["properties"]["bedplate_gpu"] = {"anyOf": [gpu, {"$ref": "#/$defs/Gpu"}]}
    sharing = schema["properties"]["bedplate_sharing"]
    parts = schema["$defs"]["Sharing"]["properties"].pop("parts")
    listed = {"items": parts["items"], "minItems": 1, "type": "array"}
    schema["properties"]["bedplate_sharing"] = {"anyOf": [sharing, listed]}
    return json.dumps(schema, indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
