"""What an archive offers in place of a driver that it has dropped: a fact, ready for the site."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import yaml

from bedplate.bill.needs import needs_of
from bedplate.bill.repository import offers, trusted
from bedplate.catalogue.rows import OF_SITE
from bedplate.common.versions import parts
from bedplate.lock.file import BlockDumper, write_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from bedplate.bill.model import Bill
    from bedplate.bill.needs import Repository
    from bedplate.bill.places import Places
    from bedplate.bill.web import Web
    from bedplate.catalogue import Catalogue
    from bedplate.catalogue.driver_facts import DriverPackages
    from bedplate.catalogue.facts import Fact
    from bedplate.lock import Lock

#: Below the site, where git ignores it: nothing reads it until the user moves it.
PLACE = (".bedplate", "facts")
EPOCH = re.compile(r"^\d+:")
SNAPSHOT = """\
# What the archive offered on {day}. No test of Bedplate has asked it.
Types: deb
URIs: {url}
Suites: {suites}
Components: {components}
Check-Valid-Until: no
Signed-By: {keyring}
"""


@dataclass(frozen=True)
class Replacement:
    """A driver that an archive offers instead of the locked one; none, where it has no whole set.

    `snapshots` are apt's sources of the archive as it was when the locked one was there.
    """

    pools: tuple[str, ...]
    gone: Fact[DriverPackages]
    offered: DriverPackages | None
    index: str
    snapshots: str = ""


def replacements(
    web: Web,
    ways: tuple[Places, Mapping[str, str]],
    lock: Lock,
    catalogue: Catalogue,
    bill: Bill,
) -> Iterator[Replacement]:
    """Yield what is offered in place of each driver with packages that are gone.

    `ways` are where indexes lie, and the keys that the site trusts for their hosts.

    Raises:
        ResolveError: an index could not be read again.
    """
    places, keys = ways
    pools: dict[tuple[str, str], list[str]] = {}
    for name, pool in lock.pools.items():
        driver = pool.nvidia_driver
        source = f"{pool.os} {driver.source}" if driver else ""
        if driver is None or source not in bill.packages:
            continue
        names = {*driver.packages, *(pool.nvidia_fabric.packages if pool.nvidia_fabric else {})}
        if names & set(bill.packages[source].gone):
            key = f"{pool.os}-{driver.source}-{driver.version}-{driver.flavour}"
            pools.setdefault((source, key), []).append(name)
    needs = needs_of(lock, catalogue).packages
    for (source, key), users in pools.items():
        fact = catalogue.driver_packages[key]
        there: dict[str, list[str]] = {}
        wanted = {**fact.value.packages, **(fact.value.fabric or {})}
        repositories = needs[source].repositories
        for one in repositories:
            found = offers(web, places, trusted(one, keys), wanted)
            for name, its in found.items():
                there.setdefault(name, []).extend(offer.version for offer in its)
        yield Replacement(
            tuple(users),
            fact,
            offered(fact.value, there),
            repositories[0].index,
            _snapshots(fact, repositories, catalogue),
        )


def offered(gone: DriverPackages, there: Mapping[str, list[str]]) -> DriverPackages | None:
    """Return the newest whole set of the branch among the versions that an index has, oldest first.

    Packages with a version of their own get their newest. The fabric's are left out where they are
    not all there.
    """
    own = [name for name, version in gone.packages.items() if _of(version) == gone.version]
    versions = [{_of(version) for version in there.get(name, ())} for name in own]
    known = set.intersection(*versions) if versions else set()
    known = {one for one in known if one.startswith(f"{gone.branch}.") and one != gone.version}
    if not known:
        return None
    version = max(known, key=lambda one: (parts(one), one))
    packages = _set(gone.packages, gone.version, version, there)
    if packages is None:
        return None
    fabric = _set(gone.fabric, gone.version, version, there) if gone.fabric else None
    return gone.model_copy(update={"version": version, "packages": packages, "fabric": fabric})


def _set(
    names: Mapping[str, str], old: str, new: str, there: Mapping[str, list[str]]
) -> dict[str, str] | None:
    found = {}
    for name, version in names.items():
        known = there.get(name, [])
        if _of(version) == old:
            known = [one for one in known if _of(one) == new]
        if not known:
            return None
        found[name] = version if version in known else known[-1]
    return found


def _of(version: str) -> str:
    """Return the maker's part of a package's version: neither epoch nor the package's revision."""
    return EPOCH.sub("", version).rpartition("-")[0]


def _snapshots(
    fact: Fact[DriverPackages], repositories: tuple[Repository, ...], catalogue: Catalogue
) -> str:
    """Return apt's sources of the archives as they were on the day that the fact was read."""
    day = fact.source.read
    keyring = "ubuntu-archive-keyring" if "ubuntu" in fact.value.os else "debian-archive-keyring"
    texts = []
    for archive in catalogue.distribution_archives.values():
        snapshot = catalogue.snapshots.get(archive.value.archive)
        if snapshot and archive.value.url in {one.index for one in repositories}:
            texts.append(
                SNAPSHOT.format(
                    day=day,
                    url=snapshot.value.url.format(time=f"{day:%Y%m%d}T235959Z"),
                    suites=" ".join(archive.value.suites),
                    components=" ".join(archive.value.components),
                    keyring=f"/usr/share/keyrings/{keyring}.gpg",
                )
            )
    return "\n".join(dict.fromkeys(texts))


def written(site: Path, found: Replacement) -> Iterator[str]:
    """Write what can be taken over, and yield what to do with it, line by line."""
    old, new, pools = found.gone.value, found.offered, ", ".join(found.pools)
    folder = site.joinpath(*PLACE)
    folder.mkdir(parents=True, exist_ok=True)
    if new is None:
        yield f"{pools}: no whole set of another driver {old.branch} for {old.os} is offered"
    else:
        path = folder / f"driver-packages.{new.os}-{new.source}-{new.version}-{new.flavour}.yml"
        write_text(path, entry(found.gone, new, found.index))
        yield f"{pools}: driver {new.version} is offered in place of {old.version}. To take it:"
        yield f"  mkdir -p {site}/facts && cp {path} {site}/facts/"
        yield f"  set bedplate_pins: {{nvidia_driver: {new.version}}}, then: bedplate plan {site}"
    if found.snapshots:
        path = folder / f"{old.os}-{found.gone.source.read}.sources"
        write_text(path, found.snapshots)
        yield f"{pools}: to stay with {old.version}: {path} has apt's sources of the archive as"
        yield "  it was then, for /etc/apt/sources.list.d of the hosts. No test has asked them."


def entry(gone: Fact[DriverPackages], new: DriverPackages, index: str) -> str:
    """Return a file of a site's facts with a driver."""
    content: list[dict[str, Any]] = [
        {
            "value": new.model_dump(mode="json", exclude_defaults=True),
            "reason": f"{index} offers it, and no longer {gone.value.version} ({gone.id}).",
            "source": {"url": index, "read": datetime.now(UTC).date()},
            "sure": OF_SITE,
        }
    ]
    text: str = yaml.dump(content, Dumper=BlockDumper, sort_keys=False, width=140)
    return f"# Written by `bedplate mirror resolve`, for SITE/facts.\n{text}"
