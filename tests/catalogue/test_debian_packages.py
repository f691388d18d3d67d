"""The driver and kernel packages of the catalogue are in the distributions' own indexes.

A set has to be complete too: what a package of it needs at exactly one version belongs to the set
at that version, or apt brings in another one.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from bedplate.catalogue.load import load_catalogue
from tests.catalogue.packages import (
    DEBIAN,
    INDEXED,
    UBUNTU,
    Index,
    committed,
    debian_sources,
    driver_pins,
    exactly,
    parsed,
    pins,
    read_index,
    stand_in,
)

if TYPE_CHECKING:
    from bedplate.catalogue.driver_facts import DriverPackages
    from bedplate.catalogue.facts import Fact

SYSTEMS = [*DEBIAN, *UBUNTU]
REFRESH = "python -m tests.catalogue.refresh_packages"


def wrong_in(fact: Fact[DriverPackages], index: Index) -> list[str]:
    """Return what of a driver set an index does not have, or wants otherwise."""
    wanted = driver_pins(fact.value)
    found = []
    for name, version in wanted.items():
        if version not in index.get(name, {}):
            has = ", ".join(index.get(name, {})) or "nothing"
            found.append(f"{fact.id}: {name} {version} is not in the index, which has {has}")
            continue
        needs = index[name][version]
        if (other := stand_in(name, needs)) is not None:
            found.append(f"{fact.id}: {name} {version} is empty and brings {other}")
        for other, exact in exactly(needs).items():
            if wanted.get(other) != exact:
                has = wanted.get(other, "none")
                found.append(f"{fact.id}: {name} needs {other} {exact}, the set has {has}")
    return found


def drivers() -> list[Fact[DriverPackages]]:
    """Return all driver sets."""
    return list(load_catalogue().driver_packages.values())


def changed(fact: Fact[DriverPackages], packages: dict[str, str]) -> Fact[DriverPackages]:
    """Return a driver set with other packages."""
    value = fact.value.model_copy(update={"packages": packages})
    return fact.model_copy(update={"value": value})


def test_driver_packages_are_in_the_index(figures: dict[str, dict[str, float]]) -> None:
    indexes = {os: committed(os) for os in SYSTEMS}
    compared: Counter[str] = Counter()
    left: Counter[str] = Counter()
    wrong = []
    for fact in drivers():
        os, source = fact.value.os, fact.value.source
        if os not in indexes or source not in INDEXED:
            left[f"not compared, no index at hand: {os} {source}"] += 1
            continue
        wrong += wrong_in(fact, indexes[os])
        compared[f"driver sets of {os} compared"] += 1
        compared[f"packages of {os} compared"] += len(driver_pins(fact.value))
    figures["driver packages against the distributions' indexes"] = dict(compared) | dict(left)
    assert wrong == []
    assert all(compared[f"packages of {os} compared"] > 0 for os in SYSTEMS)


def test_kernel_headers_are_in_the_index(figures: dict[str, dict[str, float]]) -> None:
    compared: Counter[str] = Counter()
    left: Counter[str] = Counter()
    wrong = []
    for fact in load_catalogue().kernels.values():
        if fact.value.os not in SYSTEMS:
            left[f"not compared, no index at hand: {fact.value.os}"] += 1
            continue
        compared[f"kernels of {fact.value.os} compared"] += 1
        if fact.value.headers not in committed(fact.value.os):
            wrong.append(f"{fact.id}: {fact.value.headers} is not in the index")
    figures["kernel headers against the distributions' indexes"] = dict(compared) | dict(left)
    assert wrong == []
    assert all(compared[f"kernels of {os} compared"] > 0 for os in SYSTEMS)


@pytest.mark.parametrize("os", SYSTEMS)
def test_excerpts_have_nothing_that_no_fact_asks_for(os: str) -> None:
    asked = {pin.name for pin in pins(os)}
    assert sorted(set(committed(os)) - asked) == [], f"run {REFRESH}"


def test_a_wrong_version_is_named() -> None:
    fact = next(fact for fact in drivers() if fact.value.os == "debian-13")
    index = committed("debian-13")
    name = next(
        name for name in fact.value.packages if exactly(index[name][fact.value.packages[name]])
    )
    packages = fact.value.packages | {name: "1.2-3"}
    assert wrong_in(fact, index) == []
    assert (
        f"{fact.id}: {name} 1.2-3 is not in the index, which has {', '.join(index[name])}"
        in wrong_in(changed(fact, packages), index)
    )


def test_a_package_left_out_is_named() -> None:
    fact = next(fact for fact in drivers() if fact.value.os == "debian-13")
    index = committed("debian-13")
    other, exact = next(
        need
        for name, version in fact.value.packages.items()
        for need in exactly(index[name][version]).items()
    )
    packages = {name: version for name, version in fact.value.packages.items() if name != other}
    assert any(
        problem.endswith(f"needs {other} {exact}, the set has none")
        for problem in wrong_in(changed(fact, packages), index)
    )


def test_an_empty_package_is_named() -> None:
    """As Ubuntu's nvidia-dkms-570-server 570.211.01, which depends on nvidia-dkms-580-server."""
    fact = next(fact for fact in drivers() if fact.value.os == "debian-13")
    name, version = "nvidia-dkms-570-server", "570.211.01-0ubuntu1"
    index: Index = {name: {version: ["nvidia-dkms-580-server"]}}
    assert wrong_in(changed(fact, {name: version}), index) == [
        f"{fact.id}: {name} {version} is empty and brings nvidia-dkms-580-server"
    ]


def test_apt_s_output_is_read() -> None:
    shown = (
        "Package: libcuda1\nVersion: 1-2\nDepends: a-b (= 1-2), cc (>= 1), ee (= 1) | ff\n\n"
        "Package: libcuda1\nVersion: 1-1\nPre-Depends: gg:any (= 0~1)\n"
    )
    index = parsed(shown)
    assert index == {
        "libcuda1": {
            "1-1": ["gg:any (= 0~1)"],
            "1-2": ["a-b (= 1-2)", "cc (>= 1)", "ee (= 1) | ff"],
        }
    }
    assert exactly(index["libcuda1"]["1-2"]) == {"a-b": "1-2"}
    assert exactly(index["libcuda1"]["1-1"]) == {"gg": "0~1"}


@pytest.mark.prove
@pytest.mark.parametrize("os", DEBIAN)
def test_the_index_still_says_so(os: str, figures: dict[str, dict[str, float]]) -> None:
    now = read_index(debian_sources(os), [pin.name for pin in pins(os)])
    compared = 0
    for pin in pins(os):
        if pin.version is not None and pin.version in committed(os).get(pin.name, {}):
            assert now[pin.name][pin.version] == committed(os)[pin.name][pin.version]
            compared += 1
    figures[f"index of {os} read again"] = {"packages compared": compared}
    assert compared > 0
