"""The settings of where everything comes from, and how hosts reach it."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from bedplate.site.patterns import OwnFile, PoolName, Wish, address

HOST = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?$"
#: An OpenPGP key's whole fingerprint.
KEY = r"^[0-9A-F]{40}$"
#: An address without a password: the lock has it. A query would be a token.
PLACE = r"^https?://[^\s/@?#]+(/[^\s@?#]*)?$"
#: A registry's host, and below which name it keeps what hosts pull: names as a registry takes them.
REGISTRY = HOST[:-1] + r"(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$"
#: What apt, dnf and containerd take in their files without quotes.
USER, PASSWORD = r"^[!$-9;-\[\]-~]+$", r"^[!$-\[\]-~]+$"


class Sources(Wish):
    """Where everything comes from. The lock has the addresses, so that they name no password."""

    mode: Literal["upstream", "mirror"] = "upstream"
    """Whether hosts download from the vendors or from a mirror of yours. Example: `mirror`"""
    url: Annotated[str, Field(pattern=PLACE), AfterValidator(address)] | None = None
    """The mirror's address, which `bedplate mirror serve` serves. Left out: `files` and `registry`
    take its place. Example: `http://mirror.example:5080`"""
    files: Annotated[str, Field(pattern=PLACE), AfterValidator(address)] | None = None
    """A file server of your own, in place of `url`. Left out: `url` serves files. Example:
    `https://files.example/gpu`"""
    registry: Annotated[str, Field(pattern=REGISTRY)] | None = None
    """A registry of your own, in place of `url`, with the name below which images lie. Left out:
    `url` serves images. Example: `registry.example/gpu`"""
    ca: OwnFile | None = None
    """A file of the site with the certificates of the authorities that hosts trust for these
    servers; its path begins with a dot. Left out: those that the system trusts. Example:
    `.tls/ca.pem`"""
    pip: Annotated[str, Field(pattern=PLACE), AfterValidator(address)] | None = None
    """A Python package index, from which images are built and notebooks install. Left out: the
    public one. Example: `https://pypi.example/simple`"""
    conda: Annotated[str, Field(pattern=PLACE), AfterValidator(address)] | None = None
    """The root of conda's channels, from which images are built and notebooks install. Left out:
    the public one. Example: `https://conda.example`"""
    packages: Literal["mirror", "hosts"] = "mirror"
    """Whether hosts of mode `mirror` take packages from the mirror alone, or from sources of their
    own. Example: `hosts`"""
    keys: dict[Annotated[str, Field(pattern=HOST)], Annotated[str, Field(pattern=KEY)]] | None = (
        None
    )
    """Fingerprints of keys that sign package repositories, by the repository's host, where that is
    not its vendor's. Left out: the vendors' keys in the catalogue. Example: `{mirror.example:
    0123456789ABCDEF0123456789ABCDEF01234567}`"""


class Login(Wish):
    """Who logs in to `files` and `registry` of the sources.

    It belongs into a vault. It is no part of the decision, nor of the lock.
    """

    secret: ClassVar[bool] = True

    user: Annotated[str, Field(pattern=USER)]
    """The user's name. Example: `puller`"""
    password: Annotated[str, Field(pattern=PASSWORD)]
    """The password, or a token. Example: `aPasswordInAVault`"""


class Proxy(Wish):
    """How hosts reach the internet where they cannot do so directly.

    It is no part of the decision, nor of the lock.
    """

    secret: ClassVar[bool] = True

    url: Annotated[str, Field(pattern=r"^https?://[^\s/\"'\\]+/?$"), AfterValidator(address)]
    """The proxy's address. With a password in it, it belongs in a vault. Example:
    `http://proxy.example:3128`"""
    direct: list[Annotated[str, Field(pattern=r"^[0-9A-Za-z.:/*_-]+$")]] = []
    """Hosts, domains and subnets that are reached without the proxy. Example: `[.example,
    10.0.0.0/8]`"""


class TeamImage(Wish):
    """An image of the site's own, for one pool.

    A team's jobs run it by its name, and courses of that pool as one of their `frameworks`. What it
    says of itself is what `bedplate mirror inspect` reads.
    """

    image: Annotated[str, Field(pattern=r"^[^\s@/]+(/[^\s@]+)+@sha256:[0-9a-f]{64}$")]
    """The image by its digest. Example:
    `r.example/x@sha256:0000000000000000000000000000000000000000000000000000000000000000`"""
    pool: PoolName
    """The pool whose driver and GPUs the image must be compatible with. Example: `pool_class`"""
    cuda: Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+$")] | None = None
    """The CUDA version in the image, as `bedplate mirror inspect` shows it. Left out: the driver is
    not checked for it. Example: `"12.6"`"""
    built_for: list[Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]$")]] = []
    """The compute capabilities that the image has code for. Left out: the GPUs are not checked for
    it. Example: `["7.5", "8.0"]`"""
    ptx: bool = False
    """Whether the image has PTX code, which newer GPUs compile for themselves. Example: `true`"""
    requires: str | None = None
    """The image's `NVIDIA_REQUIRE_CUDA`, by which it asks for a driver. Left out: it asks for none.
    Example: `cuda>=12.6`"""
