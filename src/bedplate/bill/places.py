"""Where the bill's addresses are asked: at the vendors themselves, or all at one mirror."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bedplate.catalogue import Catalogue
    from bedplate.lock.model import Sources

HTTPS = "https://"


@dataclass(frozen=True)
class Places:
    """How a vendor's address is reached.

    Attributes:
        mirror: the mirror's address without a slash at its end; None to ask the vendors.
        registries: the host of a registry's API where it is not the one in its images' names.
        files, images: the same of a site's own server of files, and of its registry's API with the
            name below which images lie.
    """

    mirror: str | None
    registries: Mapping[str, str]
    files: str | None = None
    images: str | None = None

    @classmethod
    def of(cls, sources: Sources, catalogue: Catalogue) -> Places:
        """Return the places of a lock's sources."""
        if sources.registry is not None:
            host, slash, below = sources.registry.partition("/")
            images = f"{HTTPS}{host}/v2{slash}{below}"
            return cls(None, cls.hosts(catalogue), sources.files, images)
        mirror = sources.url if sources.mode == "mirror" else None
        return cls(mirror.rstrip("/") if mirror else None, cls.hosts(catalogue))

    @property
    def asked(self) -> str | None:
        """Return what names the mirror that is asked; None for the vendors."""
        return f"{self.files} {self.images}" if self.images is not None else self.mirror

    @staticmethod
    def hosts(catalogue: Catalogue) -> dict[str, str]:
        """Return the registries whose API has a host of its own."""
        return {name: fact.value.host for name, fact in catalogue.registries.items()}

    def file(self, url: str) -> str:
        """Return where a file is fetched: `https://HOST/PATH`, or that path below the mirror's."""
        below = f"{self.mirror}/files" if self.mirror is not None else self.files
        return url if below is None else f"{below}/{url.partition('://')[2]}"

    def repository(self, reference: str) -> str:
        """Return the address of an image's repository in its registry's API, without a slash."""
        below = f"{self.mirror}/v2" if self.mirror is not None else self.images
        if below is not None:
            return f"{below}/{split(reference)[0]}"
        return self.official(reference)

    def official(self, reference: str) -> str:
        """Return the same at its maker's own registry, whatever mirror is asked."""
        host, _, name = split(reference)[0].partition("/")
        return f"{HTTPS}{self.registries.get(host, host)}/v2/{name}"


def split(reference: str) -> tuple[str, str]:
    """Return `HOST/NAME` and the tag of `HOST/NAME:TAG`."""
    repository, _, tag = reference.rpartition(":")
    return repository, tag
