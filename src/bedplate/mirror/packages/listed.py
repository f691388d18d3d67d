"""A site's packages for `bedplate mirror list`: what the mirror has, or what it is to have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bedplate.bill import place
from bedplate.mirror.packages import held
from bedplate.mirror.packages.wanted import systems

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bedplate.catalogue import Catalogue
    from bedplate.lock import Lock
    from bedplate.mirror.store import Store

ENDS = (".deb", ".rpm")


@dataclass(frozen=True)
class Package:
    """A package of one system.

    Attributes:
        system: as `debian-12`.
        name: the file's in the mirror; of a system that was not filled, what hosts install by name.
        version: of what is named so; empty where any is, or where a file has it in its name.
        sha256, size, address: the file's; empty, 0 and empty where there is none yet.
        wrong: what is wrong with the file.
    """

    system: str
    name: str
    version: str = ""
    sha256: str = ""
    size: int = 0
    address: str = ""
    wrong: str = ""


@dataclass(frozen=True)
class Packages:
    """All of them, and the addresses that filling them asks."""

    all: tuple[Package, ...] = ()
    archives: tuple[str, ...] = ()


def packages(site: Path, lock: Lock, catalogue: Catalogue, store: Store) -> Packages:
    """Return a site's packages; none where its hosts have sources of their own.

    Raises:
        LockError: the site's file of its packages can't be used.
    """
    if not lock.sources.mirrors_packages:
        return Packages()
    known = place.load(site)
    filled = known.systems if known else []
    asked = systems(lock, catalogue, filled)
    archives = {
        address
        for system in asked
        for source in system.sources
        for address in (source.repository.index, source.repository.key)
        if address
    }
    found = list(_filled(site, store))
    for system in asked:
        if system.name not in filled:
            named = {item for wanted in system.wanted for item in wanted.packages.items()}
            found += [Package(system.name, name, version) for name, version in sorted(named)]
    return Packages(tuple(found), tuple(sorted(archives)))


def _filled(site: Path, store: Store) -> Iterator[Package]:
    for address, part in sorted(held.parts(site, store).items()):
        if address.endswith(ENDS):
            system, _, file = part.name.partition(" ")
            name = file.rpartition("/")[2]
            wrong = part.wrong_size()
            yield Package(system, name, "", part.sha256, part.size, address, wrong)
