"""What a mirror holds: the entries, and the file that tells a site about them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bedplate.mirror import atomic
from bedplate.mirror.errors import MirrorError

SHA256 = r"^[0-9a-f]{64}$"
DIGEST = r"^sha256:[0-9a-f]{64}$"
LOCATION = Path(".bedplate", "mirror.json")


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FileEntry(_Strict):
    """A file artifact.

    Attributes:
        version: the version of the software in it.
        path: below the mirror's address: ``/files/sha256/<hex>/<name>``.
        sha256: of the file's bytes, in hexadecimal.
        size: in bytes.
        recipe: digest of what it was assembled from.
    """

    version: str
    path: str = Field(pattern=r"^/files/sha256/[0-9a-f]{64}/[^/]+$")
    sha256: str = Field(pattern=SHA256)
    size: int = Field(ge=0)
    recipe: str = Field(pattern=DIGEST)


class ImageEntry(_Strict):
    """An image: its manifest's digest, its layers' size in bytes, and its recipe's digest."""

    digest: str = Field(pattern=DIGEST)
    size: int = Field(ge=0)
    recipe: str = Field(pattern=DIGEST)


class Contents(_Strict):
    """Everything in a mirror's root: files by artifact, images by official name with tag."""

    files: dict[str, FileEntry] = {}
    images: dict[str, ImageEntry] = {}

    def at(self, url: str) -> MirrorIndex:
        """Return the index of a mirror that serves these contents at an address."""
        return MirrorIndex(format=1, url=url, files=self.files, images=self.images)


class MirrorIndex(Contents):
    """Contents and the address (``http://ADDRESS:PORT``) at which a site's hosts find them."""

    format: Literal[1]
    url: str = Field(pattern=r"^https?://[^/\s]+$")

    def file_url(self, artifact: str) -> str:
        """Return where an artifact is fetched.

        Raises:
            MirrorError: the mirror does not hold it.
        """
        if artifact not in self.files:
            raise MirrorError(
                "the mirror lacks an artifact",
                f"{self.url}: files",
                artifact,
                ", ".join(sorted(self.files)) or "nothing: the mirror is empty",
                "fill the mirror again",
            )
        return self.url + self.files[artifact].path


def write_index(site: Path, index: MirrorIndex) -> bool:
    """Write a site's ``.bedplate/mirror.json``; return whether it changed."""
    path = site / LOCATION
    text = index.model_dump_json(indent=2) + "\n"
    if path.is_file() and path.read_text() == text:
        return False
    atomic.write(path, text)
    return True


def load_index(site: Path) -> MirrorIndex:
    """Read a site's ``.bedplate/mirror.json``.

    Raises:
        MirrorError: it is not there, or is not an index.
    """
    path = site / LOCATION
    try:
        text = path.read_text()
    except FileNotFoundError as error:
        raise MirrorError(
            "the site's sources are a mirror that has not been made",
            str(path),
            "no such file",
            "the index that filling and starting the mirror writes",
            f"run 'python -m tests.substrate up DESCRIPTION --site {site}' for the demo,"
            " or set bedplate_sources.mode to upstream",
        ) from error
    try:
        return MirrorIndex.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise MirrorError(
            "the mirror's index can't be read",
            f"{path}: {where or 'whole file'}",
            f"{str(first['input'])[:80]!r}",
            first["msg"],
            "remove the file and start the mirror again",
        ) from error
