"""PyTorch's builds in the catalogue have code for what its own matrix of that release says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from bedplate.catalogue import load_catalogue
from bedplate.common.versions import minor

MATRIX = yaml.safe_load((Path(__file__).parent / "data" / "pytorch-matrix.yml").read_text())
BUILDS: dict[tuple[str, str], Any] = {
    (minor(fact.value.version), fact.value.variant): fact.value
    for fact in load_catalogue().frameworks.values()
    if fact.value.framework == "pytorch"
}
COMPARED = [(release, build) for release in MATRIX for build in MATRIX[release]["builds"]]


@pytest.mark.parametrize(("release", "build"), COMPARED)
def test_a_build_has_code_for_what_its_release_says(release: str, build: str) -> None:
    said = MATRIX[release]["builds"][build]
    fact = BUILDS[release, build]
    assert fact.compute_capabilities == said.rstrip("+").split()
    assert fact.ptx == said.endswith("+")


def test_no_build_of_these_releases_is_left_out() -> None:
    assert {key for key in BUILDS if key[0] in MATRIX} == set(COMPARED)
