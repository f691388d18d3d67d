"""Where the hub keeps its accounts and cookies: with the site's data, or on one host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from bedplate.lock.courses import Volume
    from bedplate.lock.model import Lock

CONTROL_PLANE: Final = "control_plane"


def host(lock: Lock) -> str:
    """Return the host whose address users open, and which keeps the hub's state: the first one."""
    return min(name for name, one in lock.hosts.items() if CONTROL_PLANE in one.groups)


def shared(lock: Lock) -> Volume | None:
    """Return the homes of the site where they outlive each of its hosts; None where they do not."""
    storage = lock.cluster.storage if lock.cluster else None
    homes = storage.homes if storage else None
    return homes if homes and (homes.nfs or homes.shared) else None
