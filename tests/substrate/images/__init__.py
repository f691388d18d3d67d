"""The demo's mirror: filled from tools that were built here, served on a network's gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bedplate.mirror import service
from bedplate.mirror.index import write_index
from bedplate.mirror.store import Store, cache
from tests.substrate.images.filling import fill
from tests.substrate.images.recipes import known_tools

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["down", "fill", "known_tools", "up"]


def up(network: str, gateway: str, site: Path, *, skip_missing: bool = False) -> None:
    """Fill the shared root, serve it on a network's gateway, and write the site's index.

    The gateway's address exists once the network has a running container. Idempotent.

    Raises:
        MirrorError: a tool is not built, or something does not come up.
    """
    store = Store(cache() / "mirror")
    tools = known_tools()
    contents = fill(store, tools, skip_missing=skip_missing)
    mirror = service.Mirror(network, gateway, store)
    if mirror.start(tools["registry"].program("registry")):
        print(f"[mirror] serving {store.root} at {mirror.url}", flush=True)
    write_index(site, contents.at(mirror.url))


def down(network: str) -> None:
    """End a network's mirror; what it served stays in the cache. Idempotent."""
    service.stop(network, forget=True)
