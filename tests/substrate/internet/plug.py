"""Plugging a stand-in into hosts: names, trust, and no way to anywhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.substrate.hosts import containers
from tests.substrate.internet import egress

if TYPE_CHECKING:
    from tests.substrate.hosts.description import Description, Host
    from tests.substrate.internet.service import Service

MARK = "# The stand-in for the internet\n"
TRUST = "/usr/local/share/ca-certificates/stand-in-for-the-internet.crt"


def plug(service: Service, description: Description, host: Host) -> None:
    """Make a host know the vendors' names and trust the stand-in; deny it all else. Idempotent.

    The distribution's servers get names there too, so that the host needs no resolver.
    """
    container = description.container(host)
    servers = egress.distribution()
    lines = MARK + service.hosts_lines()
    lines += "".join(f"{address} {name}\n" for name, address in servers.items())
    certificate = service.authority.certificate.read_bytes()
    names = containers.execute(container, "cat", "/etc/hosts")
    if names.partition(MARK)[1:] != (MARK, lines.removeprefix(MARK)):
        _write(container, "/etc/hosts", (names.partition(MARK)[0] + lines).encode())
    if containers.execute(container, "sh", "-c", f"cat {TRUST} || true") != certificate.decode():
        _write(container, TRUST, certificate)
        containers.execute(container, "update-ca-certificates")
    egress.deny(container, description.subnet, servers.values())


def _write(container: str, path: str, content: bytes) -> None:
    containers.execute(container, "sh", "-c", f"cat > {path}", stdin=content)
