"""Where users reach the hub, and whether a certificate is good for that. Pure functions."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from cryptography import x509

from bedplate.common.errors import Wrong
from bedplate.lock import hub_state

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import date

    from bedplate.lock import Lock

CERTIFICATE: Final = "bedplate_hub.certificate"
HTTPS: Final = 443
#: A certificate that ends within this time is reported.
SOON: Final = timedelta(days=30)


def host(lock: Lock) -> str:
    """Return the name or address that users write: of `bedplate_hub.url`, else of that host."""
    hub = lock.cluster.hub if lock.cluster else None
    named = urlsplit(hub.url).hostname if hub and hub.url else None
    return named or lock.hosts[hub_state.host(lock)].address


def port(lock: Lock) -> int | None:
    """Return the port that users write, for a hub with a certificate and an address of its own."""
    hub = lock.cluster.hub if lock.cluster else None
    if hub is None or hub.certificate is None or hub.url is None:
        return None
    return urlsplit(hub.url).port or HTTPS


def wrong(text: str, host: str, day: date) -> Iterator[Wrong]:
    """Yield what keeps a certificate in PEM from serving as that of a host on a day, in UTC."""
    first, begins, ends = _read(text)
    since, until = _hours(day)
    renew = "put a renewed one there"
    if ends < since:
        yield Wrong(f"one that ended on {ends:%Y-%m-%d}", f"an end on {day} or later", renew)
    if begins > until:
        got, fix = f"one that begins on {begins:%Y-%m-%d}", "check its dates, and this clock"
        yield Wrong(got, f"a beginning on {day} or before", fix)
    names = _names(first)
    if not any(_is_of(name, host) for name in names):
        got = f"one of {', '.join(names)}" if names else "one without subjectAltName"
        fix = "issue one for that name, or write the address that users open as bedplate_hub.url"
        yield Wrong(got, f"one of {host}", fix)


def ends_soon(text: str, day: date) -> str:
    """Return a clause where a certificate ends soon after a day; empty where it does not."""
    _, _, ends = _read(text)
    left = ends - _hours(day)[0]
    if not timedelta(0) <= left <= SOON:
        return ""
    return f"the hub's certificate ends on {ends:%Y-%m-%d}, in {left.days} days"


def _hours(day: date) -> tuple[datetime, datetime]:
    """Return when a day begins and ends: what is valid at some time of it is valid."""
    return datetime.combine(day, time.min, UTC), datetime.combine(day, time.max, UTC)


def _read(text: str) -> tuple[x509.Certificate, datetime, datetime]:
    """Return the first certificate, and when it is valid. Raises ValueError where there is none."""
    first, *_ = x509.load_pem_x509_certificates(text.encode())
    return first, first.not_valid_before_utc, first.not_valid_after_utc


def _names(certificate: x509.Certificate) -> list[str]:
    """Return the names and addresses that it is for; browsers read no other part of it."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    addresses = found.get_values_for_type(x509.IPAddress)
    return [*found.get_values_for_type(x509.DNSName), *map(str, addresses)]


def _is_of(name: str, host: str) -> bool:
    """Tell whether a certificate's name covers a host: `*` is one label, the first (RFC 9525)."""
    address, its = _address(host), _address(name)
    if address or its:
        return address == its
    wanted, given = (text.lower().rstrip(".").split(".") for text in (host, name))
    if given[0] == "*":
        return len(wanted) > 1 and wanted[1:] == given[1:]
    return wanted == given


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
