"""Images on disk, in the layout that the CNCF Distribution registry keeps them in.

Blobs lie by their digest, and small files (links) say which repository has which of them. nginx
alone can serve it, and so can a registry program.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bedplate.common import writing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

LINK = "link"


@dataclass(frozen=True)
class Images:
    """The images below a folder."""

    folder: Path

    @property
    def _top(self) -> Path:
        return self.folder / "docker/registry/v2"

    @property
    def blobs(self) -> Path:
        """Where all bytes lie, by their digests."""
        return self._top / "blobs/sha256"

    def blob(self, digest: str) -> Path:
        """Return where the bytes of a digest lie."""
        value = digest.removeprefix("sha256:")
        return self.blobs / value[:2] / value / "data"

    def manifest(self, digest: str) -> dict[str, Any] | None:
        """Return a manifest whose bytes are those of its digest; None if it is not there."""
        try:
            content = self.blob(digest).read_bytes()
        except OSError:
            return None
        if f"sha256:{hashlib.sha256(content).hexdigest()}" != digest:
            return None
        found: dict[str, Any] = json.loads(content)
        return found

    def add(self, content: bytes) -> str:
        """Write a small blob and return its digest."""
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        writing.replace(self.blob(digest), content)
        return digest

    def name(
        self, repository: str, tag: str, manifests: Sequence[str], blobs: Iterable[str]
    ) -> None:
        """Let a repository have an image.

        Args:
            repository: ``HOST/NAME``.
            tag: names the first of *manifests*.
            manifests: digests of an index and of the manifests below it that are there.
            blobs: digests of their configurations and layers.
        """
        folder = self._top / "repositories" / repository
        for blob in blobs:
            self._link(folder / "_layers" / _path(blob), blob)
        named = folder / "_manifests"
        for manifest in manifests:
            self._link(named / "revisions" / _path(manifest), manifest)
        digest = manifests[0]
        self._link(named / "tags" / tag / "index" / _path(digest), digest)
        self._link(named / "tags" / tag / "current", digest)  # last: now it can be pulled

    def tagged(self, repository: str, tag: str) -> str:
        """Return the digest that a tag names; empty without one."""
        place = self._top / "repositories" / repository / "_manifests/tags" / tag / "current"
        try:
            return (place / LINK).read_text().strip()
        except OSError:
            return ""

    def references(self) -> Iterator[tuple[str, str, str]]:
        """Yield repository, tag or digest, and digest of each manifest that can be asked for."""
        top = self._top / "repositories"
        for manifests in sorted(top.rglob("_manifests")):
            repository = str(manifests.parent.relative_to(top))
            for tag in sorted((manifests / "tags").glob("*/current/link")):
                yield repository, tag.parent.parent.name, tag.read_text().strip()
            for revision in sorted((manifests / "revisions").glob("*/*/link")):
                digest = revision.read_text().strip()
                yield repository, digest, digest

    @staticmethod
    def _link(folder: Path, digest: str) -> None:
        place = folder / LINK
        try:
            if place.read_text() == digest:
                return
        except OSError:
            pass  # it is written
        writing.replace(place, digest.encode())


def _path(digest: str) -> str:
    return digest.replace(":", "/", 1)
