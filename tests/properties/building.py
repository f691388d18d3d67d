"""Sites as objects, without Ansible and without files; and the same sites a little changed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bedplate.common.connection import Connection
from bedplate.site.model import Wishes
from bedplate.site.places import Places
from bedplate.site.site import Site, SiteHost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

ENDPOINT = "k8s.example:6443"
CLUSTER = "cluster"


@dataclass(frozen=True)
class Pool:
    """Hosts that wish the same, below one of the groups that pools are in."""

    wishes: Mapping[str, Any]
    hosts: int = 1
    parent: str = "gpu_pools"


@dataclass(frozen=True)
class Plain:
    """A site as plain data: what everyone wishes, the pools by name, hosts of the control plane."""

    shared: Mapping[str, Any]
    pools: Mapping[str, Pool]
    control_plane: int = 1
    control_plane_wishes: Mapping[str, Any] = field(default_factory=dict)
    #: Whether control planes are known by addresses, from 192.0.2.1 on, or by their names.
    numbered: bool = False

    def site(self, order: Callable[[list[str]], Iterable[str]] = lambda names: names) -> Site:
        """Return the site, its hosts in an order."""
        hosts = {}
        for number in range(self.control_plane):
            wishes = _wishes(self.shared, self.control_plane_wishes)
            address = f"192.0.2.{number + 1}" if self.numbered else None
            hosts[f"cp{number}"] = _host(f"cp{number}", None, ("control_plane",), wishes, address)
        for pool, its in self.pools.items():
            wishes = _wishes(self.shared, its.wishes)
            for number in range(its.hosts):
                name = f"{pool.removeprefix('pool_')}{number:02}"
                groups = (its.parent, pool)
                hosts[name] = _host(name, pool, groups, wishes)
        ordered = {name: hosts[name] for name in order(list(hosts))}
        parents = {pool.parent for pool in self.pools.values()}
        groups = {"control_plane", *parents, *self.pools}
        return Site(Path("site"), ordered, frozenset(groups))

    def pool(self, name: str, **wishes: Any) -> Plain:
        """Return the site with some wishes of a pool set; None takes one away."""
        pool = self.pools[name]
        changed = {key: value for key, value in (pool.wishes | wishes).items() if value is not None}
        return replace(self, pools={**self.pools, name: replace(pool, wishes=changed)})

    def everywhere(self, **wishes: Any) -> Plain:
        """Return the site with some shared wishes set; None takes one away."""
        changed = {
            key: value for key, value in {**self.shared, **wishes}.items() if value is not None
        }
        return replace(self, shared=changed)


def _wishes(shared: Mapping[str, Any], own: Mapping[str, Any]) -> Wishes:
    """Merge as group variables do, but for pins: every pool has its own and everyone's."""
    pins = {**shared.get("pins", {}), **own.get("pins", {})}
    merged = {**shared, **own, **({"pins": pins} if pins else {})}
    return Wishes.model_validate({f"bedplate_{key}": value for key, value in merged.items()})


def _host(
    name: str,
    pool: str | None,
    groups: tuple[str, ...],
    wishes: Wishes,
    address: str | None = None,
) -> SiteHost:
    return SiteHost(Connection(name=name, address=address or name), pool, groups, wishes, Places())
