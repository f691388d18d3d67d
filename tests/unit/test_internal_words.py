"""No refusal or warning has a word of the program: names of dimensions, or of the lock's lists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bedplate.catalogue import load_catalogue
from bedplate.resolver import installable, locking

HERE = Path(__file__).parent
GOLDENS = sorted([*HERE.glob("broken_sites/*.txt"), *HERE.glob("demo_plan*.txt")])
#: How the catalogue and the lock call what no role installs.
INTERNAL = re.compile(r"\b(\w+-on|below-cri_o|\w+-from|not_yet|site_digest|NoneType)\b|\bpart \w")


def parts() -> list[str]:
    """Return every part that a lock may call not installable."""
    dimensions = {*load_catalogue().installable, *installable.SETTINGS} - {"part", "cpu"}
    named = [f"{one} debian-12" for one in sorted(dimensions)]
    return [*named, *(f"part {one}" for one in sorted({*locking.PARTS, *installable.PARTS}))]


@pytest.mark.parametrize("part", parts())
def test_what_cannot_be_installed_is_named_in_words(part: str) -> None:
    assert not INTERNAL.search(installable.described(part))


def test_plans_and_refusals_of_sites_have_no_internal_word() -> None:
    found = {path.stem: INTERNAL.findall(path.read_text(encoding="utf-8")) for path in GOLDENS}
    assert {name: its for name, its in found.items() if its} == {}


def test_an_internal_word_is_found() -> None:
    assert INTERNAL.search("got mps-on ubuntu-24.04")
    assert INTERNAL.search("Not installable by this version: part secure-boot (pool_a)")
