"""Who listens in a pod's network: an engine that others reach without its front is no engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

LISTEN: Final = "0A"
LOOPBACK6: Final = "00000000000000000000000001000000"
MAPPED: Final = "0000000000000000FFFF0000"


def exposed(tables: Iterable[str], own: int) -> list[int]:
    """Return the ports on which something but the front listens outside loopback.

    Args:
        tables: texts of /proc/net/tcp and tcp6, whose addresses are words of the machine's order.
        own: the front's port.
    """
    found = set()
    for table in tables:
        for line in table.splitlines()[1:]:
            _, local, _, state, *_ = line.split()
            address, _, port = local.partition(":")
            if state == LISTEN and int(port, 16) != own and not _loopback(address):
                found.add(int(port, 16))
    return sorted(found)


def read(paths: Iterable[Path]) -> list[str]:
    """Return the tables that there are; a kernel without IPv6 has one."""
    return [path.read_text() for path in paths if path.exists()]


def _loopback(address: str) -> bool:
    """Tell whether an address is of loopback. On x86 and ARM its first byte is written last."""
    four = address.removeprefix(MAPPED) if len(address) > 8 else address
    return address == LOOPBACK6 or (len(four) == 8 and four[-2:] == "7F")
