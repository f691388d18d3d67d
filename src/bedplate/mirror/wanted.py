"""What a site's bill wants to be in a mirror: files, manifests and blobs, each with its place."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bedplate.bill.places import HTTPS, split
from bedplate.mirror.download import Part
from bedplate.mirror.errors import MirrorError
from bedplate.mirror.index import Contents, FileEntry, ImageEntry

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bedplate.bill import Bill, Image, Places
    from bedplate.mirror.images import Images
    from bedplate.mirror.store import Store

SHA256 = "sha256:"
#: HOST/NAME:TAG, each part as a registry takes it: none leads out of a folder.
NAMED = re.compile(r"[a-z0-9.-]+(:[0-9]+)?(/[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*)+:\w[\w.-]{0,127}")


@dataclass(frozen=True)
class WantedImage:
    """An image: its name, its manifests from the top down, and its other blobs."""

    name: str
    manifests: tuple[str, ...]
    blobs: tuple[Part, ...]

    @property
    def size(self) -> int:
        """The size of its blobs in bytes."""
        return sum(part.size for part in self.blobs)

    def name_in(self, images: Images) -> None:
        """Let a mirror's images have it: its blobs are there."""
        repository, tag = split(self.name)
        blobs = [f"{SHA256}{part.sha256}" for part in self.blobs]
        images.name(repository, tag, self.manifests, blobs)


def files(bill: Bill, store: Store) -> dict[str, Part]:
    """Return the files of a bill by their vendors' addresses, without https://.

    Raises:
        MirrorError: an address would lead out of the mirror.
    """
    return {
        address: Part(name, file.url, file.sha256, file.size, store.place(address))
        for name, file in sorted(bill.files.items())
        for address in [file.url.removeprefix(HTTPS)]
    }


def manifests(name: str, entry: Image) -> tuple[str, ...]:
    """Return the digests of an image's manifests, the one that its tag names first.

    Raises:
        MirrorError: it has no name that a registry takes.
    """
    if not NAMED.fullmatch(name):
        raise MirrorError(
            "image has no name that a registry takes",
            "the site's bill",
            name,
            "HOST/NAME:TAG",
            "find out who wrote it into the bill: bedplate mirror resolve SITE",
        )
    return tuple(dict.fromkeys((entry.digest, entry.manifest)))


def image(
    name: str, entry: Image, manifest: dict[str, Any], store: Store, places: Places
) -> WantedImage:
    """Return the parts of an image whose platform's manifest is known.

    Raises:
        MirrorError: its manifest has another form than the specification's.
    """
    where = places.official(name)
    try:
        blobs = tuple(
            Part(
                name,
                f"{where}/blobs/{blob['digest']}",
                str(blob["digest"]).removeprefix(SHA256),
                int(blob["size"]),
                store.images.blob(str(blob["digest"])),
            )
            for blob in [manifest["config"], *manifest["layers"]]
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _no_manifest(name, entry) from error
    if not all(re.fullmatch(r"[0-9a-f]{64}", blob.sha256) for blob in blobs):
        raise _no_manifest(name, entry)
    return WantedImage(name, manifests(name, entry), blobs)


def entries(
    files: Mapping[str, Part],
    images: Iterable[WantedImage],
    along: Mapping[str, FileEntry] | None = None,
) -> Contents:
    """Return what a mirror's record has of files by address and of images."""
    found = {
        address: FileEntry(sha256=part.sha256, size=part.size, recipe=f"{SHA256}{part.sha256}")
        for address, part in files.items()
    }
    named = {
        image.name: ImageEntry(
            digest=image.manifests[0], size=image.size, recipe=image.manifests[0]
        )
        for image in images
    }
    return Contents(files=found | dict(along or {}), images=named)


def _no_manifest(name: str, entry: Image) -> MirrorError:
    return MirrorError(
        f"manifest of image {name} cannot be read",
        entry.manifest,
        "another form",
        "an image manifest of the OCI or of Docker",
        "choose another version of the image",
    )
