"""The certificates that hosts trust for a registry and file server of the site's own."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from bedplate.common import reading
from bedplate.site.membership import at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bedplate.common.errors import Problem
    from bedplate.site.site import Site

PATH = ("bedplate_sources", "ca")
BEGIN = "-----BEGIN CERTIFICATE-----"


def problems_of(site: Site) -> Iterator[Problem]:
    """Yield that the file of certificates cannot be one; each setting once."""
    found = {
        host.wishes.bedplate_sources.ca: host
        for _, host in sorted(site.hosts.items(), reverse=True)
        if host.wishes.bedplate_sources.ca is not None
    }
    for name, host in found.items():
        path = site.path / str(name)
        if got := _wrong(path):
            yield at(
                host.places.of(PATH),
                "file has no certificates of authorities",
                ".".join(PATH),
                f"{path}: {got}",
                "certificates in PEM, and no private key",
                "name a file of certificates",
                "sources-ca",
            )


def _wrong(path: Path) -> str:
    """Return what is wrong with a file; empty if nothing is."""
    try:
        text = reading.content(path).decode("ascii", "replace")
    except OSError as error:
        return (error.strerror or "cannot be read").lower()
    if "PRIVATE KEY-----" in text:
        return "a private key"
    if BEGIN not in text:
        return "no certificate"
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(
            cadata=text[text.index(BEGIN) :]
        )
    except (ssl.SSLError, ValueError):
        return "a certificate that cannot be read"
    return ""
