"""Amounts of memory read alike: in settings, jobs' files, shares, options and what an API says."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from bedplate.planning.simulation.jobs import mib
from bedplate.pods.hub.shares import ShareError, wanted
from bedplate.portable import quantities
from bedplate.site.patterns import Memory

SITE: TypeAdapter[str] = TypeAdapter(Memory)
MEBIBYTES = {"8Gi": 8192, "1Ti": 2**20, "2G": 1908, "1500Mi": 1500, "1.5Gi": 1536, "1Ki": 1}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1k", 1000),
        ("500", 500),
        ("2Ki", 2048),
        ("0.5", Fraction(1, 2)),
        ("100m", Fraction(1, 10)),
        ("1e3", 1000),
        ("1E", 10**18),
        ("1Ei", 2**60),
        ("-2", -2),
        (".5Gi", 2**29),
        (16106127360, 15 * 2**30),
    ],
)
def test_a_quantity_is_kubernetes_number(text: str | int, number: Fraction) -> None:
    assert Fraction(quantities.parse(text)) == number


@pytest.mark.parametrize("text", ["many", "", "8GB", "8 Gi", "1e3Mi", "Gi", "1_000", "9" * 41])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        quantities.parse(text)


@pytest.mark.parametrize(("text", "asked"), MEBIBYTES.items())
def test_memory_is_the_same_everywhere(text: str, asked: int) -> None:
    assert quantities.mebibytes(text) == asked
    assert mib(text) == asked
    assert wanted(text).memory_mib == asked
    assert quantities.mebibytes(SITE.validate_python(text)) == asked


@pytest.mark.parametrize("text", ["0Gi", "8GB", "8", "-1Gi", "Gi"])
def test_what_is_no_memory_is_refused_everywhere(text: str) -> None:
    assert mib(text) is None
    with pytest.raises(ValidationError):
        SITE.validate_python(text)
    if text != "8":  # of a share it is eight GPUs
        with pytest.raises(ShareError):
            wanted(text)


@given(st.integers(1, 2**40))
def test_memory_that_is_written_is_read(amount: int) -> None:
    assert quantities.mebibytes(quantities.memory(amount)) == amount
