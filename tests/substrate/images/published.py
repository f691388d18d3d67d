"""The small files that vendors publish beside their artefacts, made for local builds.

A checksum file in the vendor's own form, what GitHub's API answers about a release, and a signed
index of packages: what `bedplate mirror resolve` reads.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from dataclasses import dataclass
from email.utils import formatdate
from typing import TYPE_CHECKING

from tests.substrate.images import signing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bedplate.catalogue.published_facts import Artifact
    from bedplate.mirror.index import FileEntry

HTTPS = "https://"
FORMS = {
    "bare": "{sha256}",
    "line": "{sha256}\n",
    "named": "{sha256}  {name}\n",
}


@dataclass(frozen=True)
class Made:
    """A file that was made: its fact, version, entry, and the form of its checksum file.

    ``control`` is the control data of a package.
    """

    artifact: Artifact
    version: str
    entry: FileEntry
    form: str
    control: str = ""


def address(artifact: Artifact, version: str) -> str:
    """Return a file's vendor address as ``HOST/PATH``."""
    if package := artifact.package:
        release = package.version.replace("{version}", version)
        return _plain(f"{package.index}{package.name}_{release}_amd64.deb", version)
    return _plain(artifact.url or "", version)


def published(made: Iterable[Made]) -> dict[str, bytes]:
    """Return the small files of everything that was made, by ``HOST/PATH``."""
    found: dict[str, bytes] = {}
    releases: dict[str, list[Made]] = {}
    indexes: dict[str, list[Made]] = {}
    for one in made:
        artifact = one.artifact
        if artifact.checksum_file:
            name = address(artifact, one.version).rpartition("/")[2]
            text = FORMS[one.form].format(sha256=one.entry.sha256, name=name)
            found[_plain(artifact.checksum_file, one.version)] = text.encode()
        elif artifact.release:
            releases.setdefault(_plain(artifact.release, one.version), []).append(one)
        elif artifact.package:
            indexes.setdefault(artifact.package.index, []).append(one)
    for place, group in releases.items():
        found[place] = _release(group)
    for index, group in indexes.items():
        assert group[0].artifact.package is not None
        found |= repository(
            index.removeprefix(HTTPS),
            {address(one.artifact, one.version): one for one in group},
        )
        found[_plain(group[0].artifact.package.key, "")] = signing.public_key()
    return found


def repository(index: str, packages: Mapping[str, Made]) -> dict[str, bytes]:
    """Return the signed index of a repository without suites, in the form that NVIDIA's has."""
    stanzas = [
        f"{one.control.strip()}\n"
        f"Filename: ./{place.removeprefix(index)}\n"
        f"Size: {one.entry.size}\n"
        f"SHA256: {one.entry.sha256}\n"
        for place, one in sorted(packages.items())
    ]
    plain = "\n".join(stanzas).encode()
    files = {"Packages": plain, "Packages.gz": gzip.compress(plain, mtime=0)}
    digests = [
        f" {hashlib.sha256(content).hexdigest()} {len(content)} {name}"
        for name, content in files.items()
    ]
    head = [
        "Origin: Bedplate's demo",
        "Architectures: amd64",
        f"Date: {formatdate(signing.CREATED, usegmt=True)}",
        "SHA256:",
    ]
    files["InRelease"] = signing.clear_signed("\n".join([*head, *digests]) + "\n")
    return {index + name: content for name, content in files.items()}


def _release(group: Iterable[Made]) -> bytes:
    assets = [
        {
            "name": address(one.artifact, one.version).rpartition("/")[2],
            "digest": f"sha256:{one.entry.sha256}",
            "size": one.entry.size,
            "browser_download_url": f"{HTTPS}{address(one.artifact, one.version)}",
        }
        for one in group
    ]
    return json.dumps({"assets": assets}, indent=1).encode()


def _plain(url: str, version: str) -> str:
    return url.replace("{version}", version).removeprefix(HTTPS)
