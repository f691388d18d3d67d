"""What the distributions' package indexes say, read by apt beside this machine's own lists."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bedplate.catalogue.load import load_catalogue
from tests.substrate.hosts import apt_sources

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bedplate.catalogue.driver_facts import DriverPackages

#: Sources of drivers whose packages are in a distribution's index.
INDEXED = ("distro", "precompiled")
DEBIAN = {"debian-12": "bookworm", "debian-13": "trixie"}
UBUNTU = {"ubuntu-22.04": "jammy", "ubuntu-24.04": "noble"}
DEBIAN_COMPONENTS = ["main", "contrib", "non-free", "non-free-firmware"]
UBUNTU_COMPONENTS = ["main", "restricted", "multiverse"]
#: Where the committed excerpts of the indexes are.
DATA = Path(__file__).parent / "data" / "packages"
FIELD = re.compile(r"^(Package|Version|Depends|Pre-Depends): (.+)$", re.MULTILINE)
EXACT = re.compile(r"^(?P<name>[a-z0-9][a-z0-9.+-]+)(?::any)? \(= (?P<version>[^)]+)\)$")
BRANCH = re.compile(r"(?<=-)\d{3}(?=-|$)")
TIMEOUT_S = 300

#: Name: version: what the package depends on.
type Index = dict[str, dict[str, list[str]]]


@dataclass(frozen=True)
class Pin:
    """A package at a version that a fact asks of a system."""

    fact: str
    name: str
    version: str | None


def driver_pins(driver: DriverPackages) -> dict[str, str]:
    """Return all packages of a driver set, Fabric Manager's among them."""
    return driver.packages | (driver.fabric or {})


def pins(os: str) -> list[Pin]:
    """Return what the catalogue asks of a system's index; any version of kernel headers will do."""
    catalogue = load_catalogue()
    drivers = [
        Pin(fact.id, name, version)
        for fact in catalogue.driver_packages.values()
        if fact.value.os == os and fact.value.source in INDEXED
        for name, version in driver_pins(fact.value).items()
    ]
    headers = [
        Pin(fact.id, fact.value.headers, None)
        for fact in catalogue.kernels.values()
        if fact.value.os == os and fact.value.headers is not None
    ]
    return drivers + headers


def debian_sources(os: str) -> str:
    """Return deb822 sources of a Debian release, from those of this machine."""
    files = [(path.name, path.read_text()) for path in apt_sources.machine_files()]
    codename = apt_sources.machine_codename()
    return apt_sources.derive(files, codename, DEBIAN[os], DEBIAN_COMPONENTS)


def ubuntu_sources(os: str, uri: str, keyring: Path) -> str:
    """Return deb822 sources of an Ubuntu release at an archive."""
    release = UBUNTU[os]
    return (
        f"Types: deb\nURIs: {uri}\nSuites: {release} {release}-updates\nArchitectures: amd64\n"
        f"Components: {' '.join(UBUNTU_COMPONENTS)}\nSigned-By: {keyring.resolve()}\n"
    )


def read_index(sources: str, names: Iterable[str]) -> Index:
    """Read some packages of an index with apt, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "lists/partial").mkdir(parents=True)
        (root / "cache/archives/partial").mkdir(parents=True)
        (root / "index.sources").write_text(sources)
        options = [
            f"Dir::State::Lists={root / 'lists'}",
            f"Dir::Cache={root / 'cache'}",
            f"Dir::Etc::SourceList={root / 'index.sources'}",
            f"Dir::Etc::SourceParts={root / 'none'}",
            "APT::Sandbox::User=",
            "Acquire::Languages=none",
        ]
        flags = [part for option in options for part in ("-o", option)]
        _run(["apt-get", *flags, "update"])
        shown = _run(["apt-cache", *flags, "show", *sorted(set(names))], missing_is_fine=True)
    return parsed(shown)


def parsed(shown: str) -> Index:
    """Return what `apt-cache show` printed."""
    index: Index = {}
    for stanza in shown.split("\n\n"):
        fields = dict(
            re.findall(r"^(Package|Version|Depends|Pre-Depends): (.+)$", stanza, re.MULTILINE)
        )
        if "Package" not in fields:
            continue
        needs = ", ".join(fields.get(key, "") for key in ("Pre-Depends", "Depends")).split(", ")
        index.setdefault(fields["Package"], {})[fields["Version"]] = sorted(filter(None, needs))
    return {name: dict(sorted(versions.items())) for name, versions in sorted(index.items())}


def exactly(needs: Iterable[str]) -> dict[str, str]:
    """Return those of a package's dependencies that ask for one version."""
    return {found["name"]: found["version"] for found in map(EXACT.match, needs) if found}


def stand_in(name: str, needs: Iterable[str]) -> str | None:
    """Return the package of another branch that an empty package brings in its place."""
    for need in needs:
        other = need.split(" ", 1)[0]
        if other != name and BRANCH.sub("", other) == BRANCH.sub("", name):
            return other
    return None


def committed(os: str) -> Index:
    """Return the committed excerpt of a system's index."""
    index: Index = json.loads((DATA / f"{os}.json").read_text())["packages"]
    return index


def _run(command: list[str], *, missing_is_fine: bool = False) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )  # fmt: skip
    failed = re.search(r"^(E|Err):", done.stderr + done.stdout, re.MULTILINE)
    if (done.returncode or failed) and not missing_is_fine:
        raise RuntimeError(f"{command[0]} failed\n{done.stdout}\n{done.stderr}")
    return done.stdout
