"""What is proposed instead of a wrong value: what it was meant to be, and nothing else."""

from __future__ import annotations

import pytest

from bedplate.common.nearest import meant, write_one
from bedplate.site import suggestions
from bedplate.site.kubernetes import ENDPOINT
from bedplate.site.model import VERSION
from bedplate.site.patterns import NAMED
from bedplate.site.sources import REGISTRY

RELEASES = ["1.33", "1.33.6", "1.33.13", "1.36", "1.36.2", "1.36.3"]
DRIVERS = ["535.309.01", "580.95.05", "580.126.20", "580.178.04", "615.71.09"]
BUILDS = ["pytorch-2.9.1", "pytorch-2.10.0", "pytorch-2.15.0"]


@pytest.mark.parametrize(
    ("word", "known", "names"),
    [
        ("1.40", RELEASES, ["1.36"]),
        ("1.30", RELEASES, ["1.36"]),
        ("1.32.4", RELEASES, ["1.36.3"]),
        ("1.36.99", RELEASES, ["1.36"]),
        ("580", DRIVERS, ["580.178.04"]),
        ("580.95", DRIVERS, ["580.95.05"]),
        ("390.157", DRIVERS, ["615.71.09"]),
        ("999", DRIVERS, ["615.71.09"]),
        ("pytorch-2.99", BUILDS, ["pytorch-2.15.0"]),
        ("Kueue", ["kueue", "volcano"], ["kueue"]),
        ("kueu", ["kueue", "volcano"], ["kueue"]),
        ("tritonserver", ["kueue", "volcano"], []),
    ],
)
def test_the_nearest_known_name(word: str, known: list[str], names: list[str]) -> None:
    assert meant(word, known) == names


def test_of_two_that_are_as_near_none_is_proposed() -> None:
    assert write_one("mi300", ["mi300a", "mi300x"]) == "write one of them"
    assert write_one("mi300", ["mi300x"]) == "write mi300x"


@pytest.mark.parametrize(
    ("name", "value", "pattern", "fix"),
    [
        ("branch", "580.95.05", None,
         'write branch: "580", and bedplate_pins: {nvidia_driver: 580.95.05}'),
        ("branch", "R580", None, 'write "580"'),
        ("branch", "580.1", None, 'write "580"'),
        ("branch", "580-open", None, 'write "580", and flavour: open'),
        ("branch", "latest", None, None),
        ("version", "v1.36", VERSION, 'write "1.36"'),
        ("version", "latest", VERSION, None),
        ("bedplate_cuda", "cuda-12.9", VERSION, 'write "12.9"'),
        ("bedplate_frameworks", "pytorch==2.8", NAMED, "write pytorch-2.8"),
        ("bedplate_frameworks", "jax[cuda]", NAMED, "write jax"),
        ("bedplate_frameworks", "Pytorch", NAMED, "write pytorch"),
        ("endpoint", "https://10.0.0.1:6443/", ENDPOINT, "write 10.0.0.1:6443"),
        ("endpoint", "10.0.0.1:6443/", ENDPOINT, "write 10.0.0.1:6443"),
        ("endpoint", "10.0.0.1", ENDPOINT, None),
        ("registry", "https://r.example/gpu", REGISTRY, "write r.example/gpu"),
        ("profile", "MIG 1g.5gb", None, "write 1g.5gb"),
        ("profile", ["1g.10gb", "3g.40gb"], None,
         "write profiles: {1g.10gb: 1, 3g.40gb: 1}, the instances of each GPU"),
        ("profile", "1g.6gb:2,2g.12gb:1", None,
         "write profiles: {1g.6gb: 2, 2g.12gb: 1}, the instances of each GPU"),
        ("profile", "half", None, None),
    ],
)  # fmt: skip
def test_a_value_is_written_as_it_was_meant(
    name: str, value: object, pattern: str | None, fix: str | None
) -> None:
    assert suggestions.fix(name, value, pattern) == fix


@pytest.mark.parametrize(
    ("value", "fix"),
    [
        ("4", "write 4, without quotes"),
        ("0.25", "write 0.25, without quotes"),
        ("many", None),
        (None, None),
    ],
)
def test_a_number_in_quotes(value: object, fix: str | None) -> None:
    assert suggestions.number(value) == fix


@pytest.mark.parametrize(
    ("value", "fix"),
    [
        ("timeslicing", "write time-slicing"),
        ("TIME_SLICING", "write time-slicing"),
        ("vgpu", None),
        ("time", "write time-slicing"),
    ],
)
def test_a_misspelt_word(value: str, fix: str | None) -> None:
    assert suggestions.word(value, ["none", "time-slicing", "mps", "mig"]) == fix
