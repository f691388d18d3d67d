"""How hosts are reached: each by an address of its own."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any

from bedplate.site.membership import at

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bedplate.errors import Problem
    from bedplate.site.effective import RawHost
    from bedplate.site.load import SiteHost

SSH = 22


def port_of(raw: RawHost) -> tuple[int, list[Problem]]:
    """Return a host's SSH port, and what is wrong with it."""
    value: Any = raw.connection.get("ansible_port", SSH)
    try:
        port = int(str(value))
        if 0 < port < 2**16:
            return port, []
    except (TypeError, ValueError):
        pass
    place = raw.places.of(("ansible_port",))
    fix = "correct it, or leave it out for 22"
    return SSH, [at(place, "no port", "ansible_port", str(value), "1 to 65535", fix, "address")]


def canonical(address: str) -> str:
    """Return the one form of an address or name that may be written in several ways."""
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return address.lower().rstrip(".")


def same(hosts: Mapping[str, SiteHost]) -> list[Problem]:
    """Return the hosts that are reached as another one is."""
    problems = []
    first: dict[tuple[str, int], SiteHost] = {}
    for _, host in sorted(hosts.items()):
        other = first.setdefault((canonical(host.address), host.port), host)
        if other is not host:
            problems.append(
                at(
                    host.places.of(("ansible_host",)),
                    f"hosts {other.name} and {host.name} have the same address",
                    "ansible_host",
                    f"{host.address}, also at {other.places.of(('ansible_host',))}",
                    "one address per host",
                    f"correct one of them, or remove {host.name}",
                    "address",
                )
            )
    return problems
