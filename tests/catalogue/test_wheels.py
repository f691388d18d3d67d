"""The frameworks' CUDA, cuDNN, NCCL and Python in the catalogue are those of their own wheels."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from bedplate.catalogue.load import load_catalogue
from bedplate.common.versions import minor
from tests.catalogue.wheels import Needs, committed, distribution_of, fetch, wanted

if TYPE_CHECKING:
    from bedplate.catalogue.published_facts import FrameworkBuild

#: Field of a build, and the requirement that says the same.
PINS = {
    "cuda": r"cuda-toolkit|nvidia-cuda-runtime(-cu\d+)?",
    "cudnn": r"nvidia-cudnn(-cu\d+)?",
    "nccl": r"nvidia-nccl(-cu\d+)?",
}
#: Wheels that are compared: builds of an index of their own have none among them.
DISTRIBUTIONS = ("jax-cuda12-plugin", "jax-cuda13-plugin", "tensorflow", "torch")
FOR_CPUS = ("jaxlib", "paddlepaddle", "tensorflow-cpu")
REFRESH = "python -m tests.catalogue.refresh_wheels"


def differences(build: FrameworkBuild, needs: Needs) -> list[str]:
    """Return what a build and its wheel say differently."""
    if build.cuda is None:  # installed without an extra
        needs = replace(needs, requires=[one for one in needs.requires if "extra" not in one])
    said = {field: needs.least(pattern) for field, pattern in PINS.items()}
    if said["cuda"] is not None:
        said["cuda"] = minor(said["cuda"])
    said["python_from"] = needs.requires_python.removeprefix(">=").removesuffix(".0") or None
    return [
        f"{needs.name} {field}: catalogue {getattr(build, field)}, wheel {value}"
        for field, value in said.items()
        if getattr(build, field) != value
    ]


def test_pins_are_those_of_the_wheels(figures: dict[str, dict[str, float]]) -> None:
    wheels = committed()
    compared, wrong = dict.fromkeys((*DISTRIBUTIONS, *FOR_CPUS), 0), []
    elsewhere: dict[str, list[str]] = defaultdict(list)
    for fact in load_catalogue().frameworks.values():
        build = fact.value
        distribution = distribution_of(build)
        if distribution is None:
            elsewhere[f"{build.framework} {build.variant}"].append(build.version)
            continue
        needs = wheels.pop(f"{distribution} {build.version}", None)
        if needs is None:
            wrong.append(f"{distribution} {build.version}: no excerpt — run {REFRESH}")
            continue
        wrong += differences(build, needs)
        compared[distribution] += 1
    wrong += [f"{name}: an excerpt of no build — run {REFRESH}" for name in wheels]
    figures["framework builds against their wheels"] = {
        **{f"builds compared, {name}": count for name, count in compared.items()},
        "pins compared": sum(compared.values()) * (len(PINS) + 1),
    } | {
        f"not compared, index of its own: {name} {' '.join(versions)}": len(versions)
        for name, versions in elsewhere.items()
    }
    assert wrong == []
    assert all(compared.values()), compared


@pytest.mark.parametrize("field", [*PINS, "python_from"])
def test_a_wrong_pin_is_named(field: str) -> None:
    build = next(
        fact.value
        for fact in load_catalogue().frameworks.values()
        if distribution_of(fact.value) == "torch"
    )
    needs = committed()[f"torch {build.version}"]
    assert differences(build, needs) == []
    found = differences(build.model_copy(update={field: "0.1"}), needs)
    assert found == [f"torch {build.version} {field}: catalogue 0.1, wheel {getattr(build, field)}"]


@pytest.mark.prove
def test_the_index_still_says_so(figures: dict[str, dict[str, float]]) -> None:
    again = [
        fetch(distribution, version)
        for distribution, versions in wanted().items()
        for version in versions
    ]
    figures["wheels read again"] = {"wheels compared": len(again)}
    assert again
    assert {needs.name: needs for needs in again} == committed()
