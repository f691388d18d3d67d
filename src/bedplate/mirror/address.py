"""A mirror's address in one form: what it is found, listened on and asked by."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

from bedplate.mirror.errors import MirrorError

PORTS = {"http": 80, "https": 443}


class Address(NamedTuple):
    """Scheme, host without brackets, and port."""

    scheme: str
    host: str
    port: int

    @classmethod
    def of(cls, url: str) -> Address:
        """Read a site's `bedplate_sources.url`.

        Raises:
            MirrorError: no mirror can be served there.
        """
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise _refused(_shown(url), str(error)) from error
        if parts.scheme not in PORTS or not parts.hostname:
            raise _refused(_shown(url), "no host")
        if parts.username is not None or parts.query or parts.fragment:
            raise _refused(_shown(url), "a user, a query or a fragment in it")
        if parts.path.strip("/"):
            raise _refused(_shown(url), f"the path {parts.path}")
        if port == 0:
            raise _refused(_shown(url), "port 0")
        return cls(parts.scheme, parts.hostname, PORTS[parts.scheme] if port is None else port)

    @property
    def place(self) -> str:
        """The host with its port, as nginx and addresses have it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def name(self) -> str:
        """What a folder can be called by it."""
        return f"{self.host.replace(':', '_')}-{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.place}"


def _shown(url: str) -> str:
    """Return an address without what stands for a user and a password, or after a question mark."""
    scheme, slashes, rest = url.partition("://")
    return f"{scheme}{slashes}{rest.partition('?')[0].rpartition('@')[2]}"


def _refused(url: str, got: str) -> MirrorError:
    return MirrorError(
        "no mirror can be served at this address",
        f"bedplate_sources.url {url}",
        got,
        "http://HOST:PORT or https://HOST:PORT, a port from 1 to 65535, nothing else",
        "correct bedplate_sources.url, and run: bedplate plan SITE",
    )
