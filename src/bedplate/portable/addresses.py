"""Addresses of downloads: which can be used, and what of them a message may show."""

import contextlib
import ipaddress
import re
import urllib.parse
from typing import Tuple

from .message import problem

#: The longest text of a server's, and name of a file, in letters.
_SHOWN, _LONGEST_NAME = 300, 200
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_PLACE = re.compile(r"(?:\[[0-9A-Fa-f:.%\w-]+\]|[^\[\]:@]+)(?::([0-9]{0,5}))?", re.ASCII)
#: Signs of ASCII that stay as they are in an address.
_SIGNS = "!#$%&'()*+,-./:;<=>?@[\\]^_`{|}~\""


class AddressError(ValueError):
    """An address that cannot be used; the text says how to fix it."""


def checked(url: str) -> urllib.parse.SplitResult:
    """The parts of an address, in letters that HTTP has. Raises AddressError for what is none."""
    scheme = _SCHEME.match(url)
    if not url.startswith(("http://", "https://", "file://")):
        got = scheme.group(1) if scheme else "no scheme"
        raise _unusable(url, got, "http, https or file", "Give a full URL.")
    if any(not letter.isprintable() or letter.isspace() for letter in url):
        raise _unusable(url, "a space or a sign that cannot be printed", "none", "Write it as %20.")
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError:
        raise _unusable(url, "brackets or letters in the host's place") from None
    user, at, place = parts.netloc.rpartition("@")
    found = _PLACE.fullmatch(place)
    if parts.scheme == "file":
        return parts
    if found is None or int(found.group(1) or 80) not in range(1, 1 << 16):
        if not at and "@" in url:
            raise _unusable(
                url, "/, ? or # in a user or password", "them as %2F, %3F and %23", "Write them so."
            )
        raise _unusable(url, "no host, or an invalid port")
    try:
        place = place.encode("idna").decode()
    except UnicodeError:
        raise _unusable(url, "a host whose name is too long, or empty in part") from None
    return parts._replace(
        netloc=user + at + place,
        path=urllib.parse.quote(parts.path, safe=_SIGNS),
        query=urllib.parse.quote(parts.query, safe=_SIGNS),
    )


def _unusable(
    url: str,
    got: str,
    allowed: str = "a URL with the host's name or address, and a port from 1 to 65535",
    fix: str = "Correct it.",
) -> AddressError:
    return AddressError(problem("the address cannot be used", shown(url), got, allowed, fix))


def in_networks(place: str, networks: str) -> bool:
    """Whether ``place`` (a host, maybe with a port) is an address in one of ``networks``.

    They are listed with commas, among names, which do not count here, as in ``no_proxy``.
    """
    try:
        address = ipaddress.ip_address(urllib.parse.urlsplit("//" + place).hostname or "")
    except ValueError:
        return False
    for network in networks.split(","):
        with contextlib.suppress(ValueError):  # a name
            if address in ipaddress.ip_network(network.strip(), strict=False):
                return True
    return False


def without_user(url: str) -> Tuple[str, str]:
    """An address without the user and password that it may name, and those."""
    parts = urllib.parse.urlsplit(url)
    user, at, place = parts.netloc.rpartition("@")
    return (urllib.parse.urlunsplit(parts._replace(netloc=place)) if at else url), (
        urllib.parse.unquote(user)
    )


def shown(url: str) -> str:
    """An address as messages may show it: without user, password, query and fragment.

    An @ behind the host's place may end a password with a slash: what is before it is hidden then.
    """
    scheme, mark, rest = url.partition("://")
    if not mark:
        return plain(url.partition("?")[0]) if "@" not in url else "…"
    place = re.split("[/?#]", rest, maxsplit=1)[0]
    before, at, after = rest.rpartition("@")
    if at and ("?" in before or "#" in before):
        return plain(f"{scheme}://…")
    hidden = "…@" if "@" in rest[len(place) :] else ""
    path = re.split("[?#]", after, maxsplit=1)[0]
    return plain(f"{scheme}://{hidden}{path}{'' if path == after else '?…'}")


def file_name(url: str) -> str:
    """The name of the file that an address gives; ``download`` where that can be no file's."""
    try:
        path = urllib.parse.urlsplit(url).path
    except ValueError:
        return "download"
    name = re.sub(r"[^A-Za-z0-9._+~^-]", "_", urllib.parse.unquote(path.rsplit("/", 1)[-1]))
    return name[-_LONGEST_NAME:] if name not in ("", ".", "..") and "@" not in path else "download"


def plain(text: str) -> str:
    """A text from outside, for one line of a message."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:_SHOWN])
