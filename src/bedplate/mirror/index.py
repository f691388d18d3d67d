"""What a mirror holds: the entries of its record."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

SHA256 = r"^[0-9a-f]{64}$"
DIGEST = r"^sha256:[0-9a-f]{64}$"


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FileEntry(_Strict):
    """A file.

    Attributes:
        sha256: of the file's bytes, in hexadecimal.
        size: in bytes.
        recipe: digest of what it was made from.
    """

    sha256: str = Field(pattern=SHA256)
    size: int = Field(ge=0)
    recipe: str = Field(pattern=DIGEST)


class ImageEntry(_Strict):
    """An image: its index's digest, its layers' size in bytes, and its recipe's digest."""

    digest: str = Field(pattern=DIGEST)
    size: int = Field(ge=0)
    recipe: str = Field(pattern=DIGEST)


class Contents(_Strict):
    """Everything in a mirror's root: files by ``HOST/PATH``, images by official name with tag."""

    files: dict[str, FileEntry] = {}
    images: dict[str, ImageEntry] = {}
