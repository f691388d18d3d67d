"""The bill's format: every file and image with address, digest, size and how it is known."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

FORMAT: Final = 1
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
Address = Annotated[str, Field(pattern=r"^https://\S+$")]


class Part(BaseModel):
    """Base of all parts of a bill: immutable and nothing unknown."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Known(Part):
    """Where a digest was read. One of the five is there; `fingerprint` goes with `index`.

    Attributes:
        checksum_file: the file that lists the SHA-256.
        release: GitHub's API, which has the SHA-256 of each file of a release.
        index: a repository's signed index.
        fingerprint: of the key that signed it, 40 hexadecimal digits.
        registry: the host whose API gave the manifest that the digest was computed from, or, of a
            chart, that names it.
        charts: a chart repository's index, which nobody signs: it is trusted because it came over
            TLS from its host.
    """

    checksum_file: Address | None = None
    release: Address | None = None
    index: Address | None = None
    fingerprint: Annotated[str, Field(pattern=r"^[0-9A-F]{40}$")] | None = None
    registry: str | None = None
    charts: Address | None = None


class File(Part):
    """A file: the vendor's own address, whatever mirror it is fetched through; size in bytes."""

    version: str
    url: Address
    sha256: Sha256
    size: Annotated[int, Field(ge=0)]
    known: Known


class Image(Part):
    """An image, by its official name with its tag.

    Attributes:
        digest: of what the tag names: an index of platforms, or the manifest itself.
        manifest: the digest of the manifest for linux/amd64.
        size: of that manifest's configuration and layers, in bytes.
        needed_by: what asks for it: a name of the catalogue's images, or a file that names it.
        known: the registry.
        notebook: versions of Python, JupyterHub and so on in an own image of courses, read from its
            layers; empty where they were not read.
    """

    digest: Digest
    manifest: Digest
    size: Annotated[int, Field(ge=0)]
    needed_by: str
    known: Known
    notebook: dict[str, str] = {}


class Refused(Part):
    """An own image that the bill does not have: what needs it, and why it was refused."""

    needed_by: str
    reason: str


class Gone(Part):
    """A package that its index does not offer in the locked version; newest offer first."""

    locked: str
    offered: list[str]


class Packages(Part):
    """The packages that the lock takes from some repositories, as their signed indexes have them.

    Attributes:
        indexes: the fingerprint of the key that signs each, by the repository's address.
        unread: those that could not be read; hosts have sources of their own for these packages.
        offered: version by name.
        gone: what no index offers. Nothing is said of it where one is unread.
    """

    indexes: dict[Annotated[str, Field(pattern=r"^https?://\S+$")], str]
    unread: list[str] = []
    offered: dict[str, str] = {}
    gone: dict[str, Gone] = {}


class Bill(Part):
    """Everything that a site's lock installs.

    Attributes:
        files: by artefact. A chart or a framework's wheel is a file like any other.
        images: by official name with tag.
        packages: by system and source, as in `ubuntu-24.04 vendor-repo`.
        refused: own images, by the same name; courses and jobs go without them.
    """

    format: Literal[1] = 1
    files: dict[str, File] = {}
    images: dict[str, Image] = {}
    packages: dict[str, Packages] = {}
    refused: dict[str, Refused] = {}
