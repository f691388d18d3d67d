"""Where hosts stand: what lies in two parts of a level is refused before hosts are touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bedplate.resolver.explanations import refused
from bedplate.site.nesting import Overlap, order

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bedplate.common.errors import Problem
    from bedplate.site import Site


def check(site: Site) -> Iterator[Problem]:
    """Yield the part that lies in two of the next wider level."""
    places = {
        host.name: host.wishes.bedplate_topology.model_dump(exclude_none=True)
        for host in site.nodes
        if host.wishes.bedplate_topology is not None
    }
    found = order(places)
    if isinstance(found, Overlap):
        host = site.hosts[found.members[-1]]
        hosts = f"{found.got} (hosts {', '.join(found.members)})"
        fix = f"correct {found.outer} or {found.inner} of these hosts"
        key = found.outer if found.outer in places[host.name] else found.inner
        path = ("bedplate_topology", key)
        yield refused("topology-nested", host, path, hosts, found.allowed, fix)
