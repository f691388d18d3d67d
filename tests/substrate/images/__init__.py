"""The demo's mirror: filled from tools that were built here, served on a network's gateway."""

from __future__ import annotations

from bedplate.mirror import service
from bedplate.mirror.store import Store, cache
from tests.substrate.images.filling import fill, make_layers
from tests.substrate.images.recipes import known_tools

__all__ = ["down", "fill", "known_tools", "make_layers", "up"]


def up(network: str, gateway: str, *, demo: bool = False) -> None:
    """Fill the shared root and serve it on a network's gateway.

    The gateway's address exists once the network has a running container. Idempotent.

    Raises:
        MirrorError: a tool is not built, or something does not come up.
    """
    store = Store(cache() / "mirror")
    tools = known_tools()
    fill(store, tools, demo=demo)
    mirror = service.Mirror(network, gateway, store)
    if mirror.start():
        print(f"[mirror] serving {store.root} at {mirror.url}", flush=True)


def down(network: str) -> None:
    """End a network's mirror; what it served stays in the cache. Idempotent."""
    service.stop(network, forget=True)
