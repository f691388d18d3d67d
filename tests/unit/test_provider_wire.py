"""Values between the wire and Python."""

from __future__ import annotations

from google.protobuf import struct_pb2
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pulumi.runtime import rpc

from bedplate.provider import wire

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(min_size=1), inner),
    max_leaves=20,
)


# No time limits: a busy machine is no reason to fail.
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.text(min_size=1), VALUES))
def test_what_is_written_is_read(values: dict[str, object]) -> None:
    assert wire.read(wire.write(values)) == values


def test_secrets_have_the_engines_form_and_are_opened_again() -> None:
    struct = wire.write({"a": wire.Secret("x"), "b": {"c": wire.Secret([1])}, "d": 1})
    assert struct["a"][rpc._special_sig_key] == rpc._special_secret_sig
    assert wire.secret_keys(struct) == {"a", "b"}
    assert wire.read(struct) == {"a": "x", "b": {"c": [1]}, "d": 1}


def test_a_named_secret_is_closed_once() -> None:
    struct = wire.write({"a": wire.Secret("x")}, frozenset({"a"}))
    assert struct["a"]["value"] == "x"


def test_unknown_values_keep_their_place() -> None:
    struct = wire.write({"a": [wire.UNKNOWN, 2]})
    assert struct["a"][0] == rpc.UNKNOWN
    assert wire.read(struct) == {"a": [wire.UNKNOWN, 2]}


def test_an_output_value_without_content_is_unknown() -> None:
    struct = struct_pb2.Struct()
    struct.update({"a": {wire.SIGNATURE: wire.OUTPUT, "secret": True}})
    assert wire.read(struct) == {"a": wire.UNKNOWN}
    assert wire.secret_keys(struct) == {"a"}
