"""The package's schema, made from the typed inputs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bedplate.provider.resource import Resource

JSON_TYPES = {"string", "integer", "boolean", "number"}


def document(version: str, resources: Iterable[type[Resource]]) -> str:
    """Return the schema that `pulumi package get-schema` shows."""
    return json.dumps(
        {
            "name": "bedplate",
            "version": version,
            "description": "Hosts become nodes of a GPU cluster.",
            "resources": {kind.token: _resource(kind) for kind in resources},
        },
        indent=2,
    )


def _resource(kind: type[Resource]) -> dict[str, Any]:
    whole = kind.inputs.model_json_schema(by_alias=True)
    inputs = {name: _property(found) for name, found in whole["properties"].items()}
    computed = {name: {"type": "string", "secret": name in kind.secret} for name in kind.computed}
    return {
        "description": (kind.__doc__ or "").strip(),
        "inputProperties": inputs,
        "requiredInputs": whole.get("required", []),
        "properties": {**inputs, **computed},
    }


def _property(found: dict[str, Any]) -> dict[str, Any]:
    if found.get("type") in JSON_TYPES:
        return {"type": found["type"]}
    if found.get("type") == "array":
        return {"type": "array", "items": {"type": "string"}}
    return {"type": "object", "additionalProperties": {"$ref": "pulumi.json#/Any"}}
