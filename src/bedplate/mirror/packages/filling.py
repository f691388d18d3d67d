"""Filling a mirror with a site's packages: looked up, fetched, written as signed repositories."""

from __future__ import annotations

import fcntl
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bedplate.bill import place
from bedplate.catalogue import catalogue_of
from bedplate.mirror.errors import MirrorError
from bedplate.mirror.index import FileEntry
from bedplate.mirror.packages import deb, keys, pool, rpm
from bedplate.mirror.packages.apt_root import AptRoot
from bedplate.mirror.packages.dnf_root import DnfRoot
from bedplate.mirror.packages.wanted import systems
from bedplate.mirror.store import cache, digest_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from bedplate.bill.web import Web
    from bedplate.lock import Lock
    from bedplate.mirror.packages.pool import Package
    from bedplate.mirror.packages.wanted import System
    from bedplate.mirror.store import Store


@dataclass(frozen=True)
class Filled:
    """What the mirror has of one system's packages: how many, their bytes, whether it changed."""

    system: str
    packages: int
    size: int
    changed: bool


def fill(
    site: Path,
    lock: Lock,
    store: Store,
    web: Web,
    *,
    more: Sequence[str] = (),
    ca: Path | None = None,
) -> Iterator[Filled]:
    """Have the mirror hold what the hosts of a site install, and yield each system when it does.

    The key is made with the first fill, and `SITE/.bedplate.packages.yml` has its public half.
    Archives are asked with the authorities in *ca*, or with this machine's.

    Raises:
        MirrorError: a system's packages can't be had here, or not whole.
        ResolveError: a key of an archive doesn't come.
    """
    found = systems(lock, catalogue_of(site), more)
    refuse_others(site, found)
    held = _kept(site)
    try:
        for system in found:
            packages = _fetched(_root(system, ca), system, web)
            held = held or _made(site)
            key, known = held
            with store.filling():
                folder = store.place(f"{known.address}/{system.name}")
                pool.clean(folder)
                changed = _published(system, folder, packages, key)
                _record(store, f"{known.address}/{system.name}/", folder)
            names = sorted({*known.systems, system.name})
            known = known.model_copy(update={"systems": names})
            held = key, known
            place.write(site, known)
            size = sum(one.size for one in packages)
            yield Filled(system.name, len(packages), size, changed)
    finally:
        if held:
            held[0].close()


def refuse_others(site: Path, found: Sequence[System]) -> None:
    """Refuse a site of which a system's packages can't be had by this version."""
    if not found:
        raise MirrorError(
            "no system is known to have packages for",
            str(site),
            "a lock without pools",
            "hosts in pools, or their system",
            "name the system with --system, as in --system debian-12",
        )
    for system in found:
        if not system.sources:
            raise MirrorError(
                f"packages of {system.name} cannot be mirrored",
                str(site),
                "a system whose archives the catalogue does not have",
                "Debian, Ubuntu and Rocky Linux, or what the site's own facts name",
                "name its archives in SITE/facts/distribution-archives.yml; or offer its packages "
                "from a mirror of your own (reposync, Satellite) that hosts use already, and set "
                "bedplate_sources.packages: hosts",
            )


def _root(system: System, ca: Path | None = None) -> AptRoot | DnfRoot:
    root = cache() / "packages" / system.name
    return DnfRoot(root, ca) if system.format == "rpm" else AptRoot(root, ca)


def _published(
    system: System, folder: Path, packages: Sequence[Package], key: keys.SigningKey
) -> bool:
    root = _root(system)
    if isinstance(root, DnfRoot):
        return rpm.publish(folder, root.archives, packages, key, root.modules())
    return deb.publish(folder, root.archives, packages, key)


def _fetched(root: AptRoot | DnfRoot, system: System, web: Web) -> list[Package]:
    """Fetch all that a system's hosts install, and return it, each once."""
    root.root.mkdir(parents=True, exist_ok=True)
    with (root.root / "lock").open("w") as lock:
        # A package manager takes one at a time, and another run may be here.
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _fetched_into(root, system, web)


def _fetched_into(root: AptRoot | DnfRoot, system: System, web: Web) -> list[Package]:
    fingerprints = {}
    for source in system.sources:
        one = source.repository
        fingerprints[one.fingerprint] = keys.trusted(web, one)
    root.prepare(system, fingerprints)
    every: dict[str, Package] = {}
    for wanted in system.wanted:
        packages = root.closure(system, wanted)
        root.fetch(system, wanted, packages)
        every.update({one.name: one for one in packages})
    found = sorted(every.values())
    pool.keep_only(root.archives, found, f".{system.format}")
    return found


def _kept(site: Path) -> tuple[keys.SigningKey, place.Place] | None:
    """Return the site's key and what the site says of it, None before the first fill."""
    known = place.load(site)
    if known is None:
        return None
    return keys.SigningKey.kept(keys.home(), known.fingerprint, place.path_of(site)), known


def _made(site: Path) -> tuple[keys.SigningKey, place.Place]:
    """Make the site's key: once packages are there, so that a run that fails before leaves none."""
    key = keys.SigningKey.made(keys.home(), site.resolve().name)
    return key, place.Place(fingerprint=key.fingerprint, key=key.public())


def _record(store: Store, prefix: str, folder: Path) -> None:
    """Have the mirror's record list what lies below a folder, and nothing else there."""
    contents = store.contents()
    files = {name: entry for name, entry in contents.files.items() if not name.startswith(prefix)}
    for path in sorted(one for one in folder.rglob("*") if one.is_file()):
        with path.open("rb") as file:
            sha256 = digest_of(file)
        name = prefix + str(path.relative_to(folder))
        recipe = f"sha256:{sha256}"
        files[name] = FileEntry(sha256=sha256, size=path.stat().st_size, recipe=recipe)
    store.record(contents.model_copy(update={"files": files}))
