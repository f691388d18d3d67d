"""Servers of a site's own: whom a host trusts for them, and who logs in, as files of the host.

Everything on the host that fetches from them reads these. A module's arguments would show a
password in journals and process lists.
"""

from typing import List, NamedTuple

from . import proxy

#: Written by the playbooks, for root alone.
PATH = "/etc/bedplate/sources/access.env"


class Access(NamedTuple):
    """Addresses with a slash at their end, a file of certificates, ``user:password``; or empty."""

    below: List[str]
    ca: str
    login: str


def access(url: str, path: str = "") -> Access:
    """What an address of the site's own servers wants; of any other, nothing."""
    try:
        with open(path or PATH, encoding="utf-8") as stream:
            found = proxy.parsed(stream.read())
    except OSError:
        return Access([], "", "")
    below = found.get("BELOW", "").split()
    if not url.startswith(tuple(below)) or not below:
        return Access([], "", "")
    return Access(below, found.get("CA", ""), found.get("LOGIN", ""))
