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
    """Where everything comes from. The lock has the address, so that it names no password.

    `keys` has the fingerprint of the key that signs a repository, by the repository's host, where
    that is not its vendor's: a mirror that signs again with a key of its own, or what serves one
    under the vendors' names (`bedplate mirror resolve --upstream` and `packages`). `pip` and
    `conda` are a package index and a root of channels, which images are built from and notebooks
    install from.
    `packages` says where hosts of mode `mirror` take packages from: the mirror alone, or sources of
    their own. In place of `url`, `files` is a file server of the site's own and `registry` its
    registry, with the name below which images lie. `ca` is a file of the site's with the
    certificates of the authorities that hosts trust for both, or for `url`.
    """

    mode: Literal["upstream", "mirror"] = "upstream"
    url: Annotated[str, Field(pattern=PLACE), AfterValidator(address)] | None = None
    files: Annotated[str, Field(pattern=PLACE), AfterValidator(address)] | None = None
    registry: Annotated[str, Field(pattern=REGISTRY)] | None = None
    ca: OwnFile | None = None
    pip: Annotated[str, Field(pattern=PLACE), AfterValidator(address)] | None = None
    conda: Annotated[str, Field(pattern=PLACE), AfterValidator(address)] | None = None
    packages: Literal["mirror", "hosts"] = "mirror"
    keys: dict[Annotated[str, Field(pattern=HOST)], Annotated[str, Field(pattern=KEY)]] | None = (
        None
    )


class Login(Wish):
    """Who logs in to `files` and `registry` of the sources.

    It belongs into a vault. It is no part of the decision, nor of the lock.
    """

    secret: ClassVar[bool] = True

    user: Annotated[str, Field(pattern=USER)]
    password: Annotated[str, Field(pattern=PASSWORD)]


class Proxy(Wish):
    """How hosts go out where they can't directly; `direct` names what is reached without it.

    An address with a password belongs into a vault. It is no part of the decision, nor of the lock.
    """

    secret: ClassVar[bool] = True

    url: Annotated[str, Field(pattern=r"^https?://[^\s/\"'\\]+/?$"), AfterValidator(address)]
    direct: list[Annotated[str, Field(pattern=r"^[0-9A-Za-z.:/*_-]+$")]] = []


class TeamImage(Wish):
    """An image of the site's own, and the pool whose driver and GPUs it has to go with.

    A team's jobs run it by its name, and courses of that pool as one of their `frameworks`.

    `cuda`, `built_for`, `ptx` and `requires` are what the image says of itself, as `bedplate mirror
    inspect` reads it.
    """

    image: Annotated[str, Field(pattern=r"^[^\s@/]+(/[^\s@]+)+@sha256:[0-9a-f]{64}$")]
    pool: PoolName
    cuda: Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+$")] | None = None
    built_for: list[Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]$")]] = []
    ptx: bool = False
    requires: str | None = None
