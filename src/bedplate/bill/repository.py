"""The packages of signed repositories, read from their indexes: apt's and dnf's."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit
from xml.etree import ElementTree

from bedplate.bill.errors import refused
from bedplate.bill.signatures import signed
from bedplate.common import reading

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from pathlib import Path

    from bedplate.bill.needs import Repository
    from bedplate.bill.places import Places
    from bedplate.bill.web import Web

#: By the end of the name, smallest first: what an index lists of these is read.
UNPACKED: dict[str, Callable[[bytes], bytes]] = {
    ".xz": lzma.decompress,
    ".gz": gzip.decompress,
    ".bz2": bz2.decompress,
    "": bytes,
}
REPODATA = "{http://linux.duke.edu/metadata/repo}"
COMMON = "{http://linux.duke.edu/metadata/common}"
BROKEN = (OSError, EOFError, lzma.LZMAError, ValueError)


@dataclass(frozen=True)
class Offer:
    """A package as its index has it; `url` is the vendor's own address, `size` in bytes."""

    name: str
    version: str
    url: str
    sha256: str
    size: int


def trusted(repository: Repository, keys: Mapping[str, str]) -> Repository:
    """Return a repository with the key that the site trusts for its host, if *keys* names one."""
    named = keys.get(urlsplit(repository.index).netloc, repository.fingerprint)
    return replace(repository, fingerprint=named)


def offers(
    web: Web, places: Places, repository: Repository, names: Collection[str]
) -> dict[str, list[Offer]]:
    """Return what a repository offers of some packages, in the order of its index.

    Raises:
        ResolveError: the index does not come, or is not signed by the key.
    """
    key = web.content(places.file(repository.key), "repository's key is not found")
    read = _rpm if repository.format == "rpm" else _deb
    found: dict[str, list[Offer]] = {}
    for offer in read(web, places, repository, key, frozenset(names)):
        found.setdefault(offer.name, []).append(offer)
    return found


def _deb(
    web: Web, places: Places, repository: Repository, key: bytes, names: frozenset[str]
) -> Iterator[Offer]:
    base = repository.index
    for top in [f"{base}dists/{suite}/" for suite in repository.suites] or [base]:
        where = places.file(f"{top}InRelease")
        release = signed(
            web.content(where, "repository's index is not found"),
            key,
            repository.fingerprint,
            where,
        ).decode("utf-8", "replace")
        listed = dict(digests(release))
        for folder in [f"{one}/binary-amd64/" for one in repository.components] or [""]:
            text = _unpacked(web, places, top, f"{folder}Packages", listed)
            for entry in paragraphs(text, names):
                yield _offer(entry, base, where)


def _offer(entry: Mapping[str, str], base: str, where: str) -> Offer:
    """Return a package of apt's list. Raises ResolveError where a field of it is not there."""
    try:
        place, size = entry["Filename"].removeprefix("./"), int(entry["Size"])
        return Offer(entry["Package"], entry["Version"], base + place, entry["SHA256"], size)
    except (KeyError, ValueError) as error:
        missing = error.args[0] if isinstance(error, KeyError) else "a number as its Size"
        got = f"{entry['Package']} without {missing}"
        raise refused("repository's list of packages is broken", where, got) from error


def digests(release: str) -> Iterator[tuple[str, tuple[str, int]]]:
    """Yield the name, SHA-256 and size of each file that a Release file lists."""
    inside = False
    for line in release.splitlines():
        if not line.startswith(" "):
            inside = line.strip() == "SHA256:"
        elif inside and len(words := line.split()) == 3:
            yield words[2], (words[0], int(words[1]))


def _unpacked(
    web: Web, places: Places, top: str, name: str, listed: dict[str, tuple[str, int]]
) -> str:
    for end, unpack in UNPACKED.items():
        if f"{name}{end}" not in listed:
            continue
        where = places.file(f"{top}{name}{end}")
        content = web.content(where, "repository's list of packages is not found")
        _expect(content, listed[f"{name}{end}"][0], where)
        try:
            return unpack(content).decode("utf-8", "replace")
        except BROKEN as error:
            raise refused("repository's list of packages is broken", where, str(error)) from error
    raise refused("repository has no list of packages", f"{top}{name}", "none in its index")


def _expect(content: bytes, sha256: str, where: str) -> None:
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise refused(
            "file is not what the signed index says",
            where,
            f"sha256:{found}",
            f"sha256:{sha256}",
            "try again in some minutes: a mirror may be in the middle of an update",
        )


def paragraphs(text: str, names: frozenset[str] | None = None) -> Iterator[dict[str, str]]:
    """Yield the fields of the packages of these names, or of all."""
    for paragraph in text.split("\n\n"):
        fields = {
            key: value.strip()
            for line in paragraph.splitlines()
            if not line.startswith((" ", "\t")) and ":" in line
            for key, _, value in [line.partition(":")]
        }
        if "Package" in fields and (names is None or fields["Package"] in names):
            yield fields


def _rpm(
    web: Web, places: Places, repository: Repository, key: bytes, names: frozenset[str]
) -> Iterator[Offer]:
    base = repository.index
    where = places.file(f"{base}repodata/repomd.xml")
    content = web.content(where, "repository's index is not found")
    if repository.signed_index:
        signature = web.content(f"{where}.asc", "repository's signature is not found")
        signed(content, key, repository.fingerprint, where, detached=signature)
    name, part = primary_of(content, where)
    packed = web.content(places.file(base + name), "repository's list of packages is not found")
    _expect(packed, part.sha256, places.file(base + name))
    yield from primary(packed, base, name, names)


class IndexPart(NamedTuple):
    """A file that dnf's index names: what is in it, its SHA-256, and its size; -1 if not said."""

    kind: str
    sha256: str
    size: int


def parts_of_index(content: bytes) -> dict[str, IndexPart]:
    """Return the files that a `repomd.xml` names, by their place; none of what is no such file."""
    try:
        # It is signed, or came from where its owner publishes it.
        tree = ElementTree.fromstring(content)  # noqa: S314
    except ElementTree.ParseError:
        return {}
    found = {}
    for data in tree.iter(f"{REPODATA}data"):
        place, checksum = data.find(f"{REPODATA}location"), data.find(f"{REPODATA}checksum")
        if place is not None and checksum is not None and checksum.get("type") == "sha256":
            size = int(data.findtext(f"{REPODATA}size") or -1)
            name = place.get("href", "")
            found[name] = IndexPart(data.get("type", ""), (checksum.text or "").strip(), size)
    return found


def primary_of(content: bytes, where: str) -> tuple[str, IndexPart]:
    """Return the list of packages that a `repomd.xml` names: its place, and what it is.

    Raises:
        ResolveError: it names none.
    """
    for name, part in parts_of_index(content).items():
        if part.kind == "primary":
            return name, part
    raise refused("repository has no list of packages", where, "no primary data in its index")


def primary(
    packed: bytes, base: str, name: str, names: Collection[str] | None = None
) -> Iterator[Offer]:
    """Yield the packages of these names, or all, from a list that is known to be the right one.

    Raises:
        ResolveError: it cannot be read.
    """
    try:
        tree = ElementTree.fromstring(_unpack(name)(packed))  # noqa: S314 - see above
    except (*BROKEN, ElementTree.ParseError) as error:
        raise refused("repository's list of packages is broken", base + name, str(error)) from error
    for package in tree.iter(f"{COMMON}package"):
        called = package.findtext(f"{COMMON}name", "")
        if names is not None and called not in names:
            continue
        version, size = package.find(f"{COMMON}version"), package.find(f"{COMMON}size")
        place = package.find(f"{COMMON}location")
        if version is None or size is None or place is None:
            continue
        epoch = version.get("epoch", "0")
        full = f"{version.get('ver')}-{version.get('rel')}"
        yield Offer(
            called,
            full if epoch == "0" else f"{epoch}:{full}",
            base + place.get("href", ""),
            package.findtext(f"{COMMON}checksum", ""),
            int(size.get("package", "0")),
        )


def _unpack(name: str) -> Callable[[bytes], bytes]:
    return next((how for end, how in UNPACKED.items() if end and name.endswith(end)), bytes)


def listed(path: Path, names: Collection[str]) -> dict[str, list[str]]:
    """Return the versions of some packages in a file: apt's `Packages`, or dnf's `primary.xml`.

    Raises:
        ResolveError: it cannot be read.
    """
    try:
        content = reading.content(path)
        if ".xml" in path.name:
            offered = primary(content, f"{path.parent}/", path.name, frozenset(names))
            pairs = [(offer.name, offer.version) for offer in offered]
        else:
            text = _unpack(path.name)(content).decode("utf-8", "replace")
            found = paragraphs(text, frozenset(names))
            pairs = [(one["Package"], one["Version"]) for one in found]
    except BROKEN as error:
        what, allowed = "list of packages cannot be read", "a file named as the archive has it"
        raise refused(what, str(path), reading.why(error), allowed, "fetch it again") from error
    versions: dict[str, list[str]] = {}
    for name, version in pairs:
        versions.setdefault(name, []).append(version)
    return versions
