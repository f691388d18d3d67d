"""The engine's property values: from the wire to Python and back.

A value that is not known yet (during a preview) and a secret have agreed forms on the wire; the
signatures are the Pulumi SDK's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from google.protobuf import json_format, struct_pb2
from pulumi.runtime import rpc

SIGNATURE: Final[str] = rpc._special_sig_key
SECRET: Final[str] = rpc._special_secret_sig
OUTPUT: Final[str] = rpc._special_output_value_sig


class Unknown:
    """The type of a value that only the deployment itself will bring forth."""

    def __repr__(self) -> str:
        return "(not known yet)"


UNKNOWN: Final = Unknown()


@dataclass(frozen=True)
class Secret:
    """A value that must be encrypted in state and hidden in every output."""

    value: Any


def read(struct: struct_pb2.Struct) -> dict[str, Any]:
    """Return the plain values of a property map; secrets are opened, unknowns are `UNKNOWN`."""
    return {key: _opened(value) for key, value in json_format.MessageToDict(struct).items()}


def secret_keys(struct: struct_pb2.Struct) -> frozenset[str]:
    """Return the top-level keys whose value is, or contains, a secret."""
    return frozenset(
        key for key, value in json_format.MessageToDict(struct).items() if _hides(value)
    )


def write(values: dict[str, Any], secrets: frozenset[str] = frozenset()) -> struct_pb2.Struct:
    """Return the property map for plain values, `Secret`s and `UNKNOWN`s.

    Top-level keys named in `secrets` are marked secret too: what came in as one goes out as one.
    """
    plain = {}
    for key, value in values.items():
        hidden = Secret(value) if key in secrets and not isinstance(value, Secret) else value
        plain[key] = _closed(hidden)
    struct = struct_pb2.Struct()
    struct.update(plain)
    return struct


def _opened(value: Any) -> Any:
    if value == rpc.UNKNOWN:
        return UNKNOWN
    if isinstance(value, dict):
        if value.get(SIGNATURE) in {SECRET, OUTPUT}:
            return _opened(value["value"]) if "value" in value else UNKNOWN
        return {key: _opened(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_opened(inner) for inner in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)  # the wire has only one kind of number
    return value


def _hides(value: Any) -> bool:
    if isinstance(value, dict):
        if value.get(SIGNATURE) == SECRET or (
            value.get(SIGNATURE) == OUTPUT and value.get("secret")
        ):
            return True
        return any(_hides(inner) for inner in value.values())
    return isinstance(value, list) and any(_hides(inner) for inner in value)


def _closed(value: Any) -> Any:
    if value is UNKNOWN:
        return rpc.UNKNOWN
    if isinstance(value, Secret):
        return {SIGNATURE: SECRET, "value": _closed(value.value)}
    if isinstance(value, dict):
        return {key: _closed(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_closed(inner) for inner in value]
    return value
