"""Stand-ins have the vendor's names and versions, say what they are, in a signed repository."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
import yaml

from bedplate.catalogue.load import load_catalogue
from tests.catalogue.packages import exactly, read_index
from tests.substrate.standin import deb, driver_packages, kernel_packages, rpm
from tests.substrate.standin.packages import ORIGIN, RELATIONS, family, format_of, pins
from tests.substrate.standin.signing import PUBLIC, Key

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SETS = [
    fact.value
    for fact in load_catalogue().driver_packages.values()
    if fact.value.source == "vendor-repo"
]


@pytest.fixture
def key(tmp_path: Path) -> Iterator[Key]:
    """A signing key."""
    made = Key(tmp_path / "gnupg")
    yield made
    made.close()


#: What other sources have, of which the vendor's packages need any version.
OTHERS = {"dkms"}


def test_every_package_of_the_catalogue_can_stand_in(figures: dict[str, dict[str, float]]) -> None:
    counted: Counter[str] = Counter()
    for os in sorted({one.os for one in SETS}):
        mine = [one for one in SETS if one.os == os]
        made = {(p.name, p.version): p for p in driver_packages(os, {one.version for one in mine})}
        for one in mine:
            wanted = {**one.packages, **(one.fabric or {})}
            assert set(wanted.items()) <= set(made), one
            for name, version in one.packages.items():
                package = made[name, version]
                # What a package needs belongs to its set, at the set's version, or is another's.
                others = {name: "" for name in package.needs if name in OTHERS}
                assert set(package.needs.items()) <= set((wanted | others).items()), package
                text = rpm.spec(package) if format_of(os) == "rpm" else deb.control(package)
                assert ORIGIN in text
        counted[f"packages of {os}"] = len(made)
    figures["stand-ins of the vendor's packages"] = dict(counted)
    assert set(counted) == {f"packages of {one.os}" for one in SETS}


def test_relations_are_of_packages_that_there_are() -> None:
    relations = yaml.safe_load(RELATIONS.read_text())
    known: dict[str, set[str]] = {format_: set() for format_ in relations}
    for one in SETS:
        known[format_of(one.os)] |= {family(name, one.branch) for name in one.packages}
    for format_, families in relations.items():
        assert set(families) <= known[format_], format_
        for related in families.values():
            assert set(related.get("needs", ())) <= known[format_], format_


def test_only_one_package_carries_a_file() -> None:
    """dpkg and rpm refuse a file that two packages of one set bring."""
    for one in SETS:
        there = set(one.packages.items())
        packages = [
            p for p in driver_packages(one.os, [one.version]) if (p.name, p.version) in there
        ]
        names = [name for package in packages for name in (*package.files, *package.links)]
        assert sorted(set(names)) == sorted(names), one


def test_apt_reads_the_repository_and_checks_its_key(key: Key, tmp_path: Path) -> None:
    folder = tmp_path / "repository"
    packages = driver_packages("ubuntu-24.04", ["580.178.04", "595.91.07"])
    deb.repository(packages, folder, key)
    sources = f"Types: deb\nURIs: file:{folder}\nSuites: ./\nSigned-By: {folder / PUBLIC}\n"
    wanted = pins("ubuntu-24.04", "580.178.04", "open")
    index = read_index(sources, wanted)
    assert {name: list(versions) for name, versions in index.items()} == {
        name: [version] for name, version in wanted.items()
    }
    dkms = index["nvidia-dkms-580-open"][wanted["nvidia-dkms-580-open"]]
    assert exactly(dkms) == {
        name: wanted[name] for name in ("nvidia-kernel-common-580", "nvidia-kernel-source-580-open")
    }
    text = (folder / "InRelease").read_text()
    (folder / "InRelease").write_text(text.replace(f"Label: {ORIGIN}", "Label: NVIDIA"))
    with pytest.raises(RuntimeError, match="signature"):
        read_index(sources, wanted)


def test_kernels_are_ordered_and_followed() -> None:
    first, second = "6.1.0-90-amd64", "6.1.0-91-amd64"
    made = kernel_packages("debian-12", [first, second])
    followers = [package for package in made if package.name == "linux-image-amd64"]
    assert [dict(package.needs) for package in followers] == [
        {f"linux-image-{first}": "6.1.0.90-1"},
        {f"linux-image-{second}": "6.1.0.91-1"},
    ]
    with pytest.raises(ValueError, match="no stand-ins of kernels for rocky-9"):
        kernel_packages("rocky-9", [first])


def test_a_driver_that_the_catalogue_does_not_have_is_named() -> None:
    with pytest.raises(ValueError, match=r"^the catalogue has no driver 1.2.3 for ubuntu-24.04$"):
        driver_packages("ubuntu-24.04", ["1.2.3", "580.178.04"])


def test_streams_carry_one_branch_in_one_flavour() -> None:
    text = rpm.streams(driver_packages("rocky-9", ["580.178.04", "595.91.07"]))
    documents = {
        document.split('stream: "')[1].split('"')[0]: document
        for document in text.split("---\n")
        if document
    }
    assert sorted(documents) == ["580-dkms", "580-open", "595-dkms", "595-open"]
    assert "kmod-nvidia-open-dkms-3:580.178.04-1.el9.x86_64" in documents["580-open"]
    assert "latest" not in documents["580-open"]
    assert ":595" not in documents["580-open"]
    assert "kmod-nvidia-latest-dkms-3:595.91.07-1.el9.x86_64" in documents["595-dkms"]
