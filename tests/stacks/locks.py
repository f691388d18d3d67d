"""Locks for tests of what the stacks make of one: the demo's, with other hosts, teams or preset."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bedplate.lock import Lock, load_lock
from bedplate.lock.model import Addon, Team, Topology

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bedplate.site.presets import Preset

DEMO = Path(__file__).parents[2] / "inventories/demo"
POOL = "pool_class"


@cache
def _demo() -> Lock:
    return load_lock(DEMO)


def lock_of(
    hosts: Mapping[str, Mapping[str, str]],
    *,
    groups: Sequence[str] = ("gpu_pools", POOL),
    teams: Mapping[str, Mapping[str, Any]] | None = None,
    preset: Preset | None = None,
    addons: Sequence[str] = (),
) -> Lock:
    """Return a lock of these hosts, all of one pool, by their places."""
    lock = _demo()
    assert lock.cluster is not None
    one = lock.hosts["gpu-b"].model_copy(update={"groups": list(groups)})
    cluster = lock.cluster.model_copy(
        update={
            "teams": {name: Team.model_validate(team) for name, team in (teams or {}).items()},
            "preset": preset,
            "addons": [Addon(name=name, kind="scheduler", version="1.14.1") for name in addons],
        }
    )
    made = {
        name: one.model_copy(update={"topology": Topology(**place) if place else None})
        for name, place in hosts.items()
    }
    return lock.model_copy(update={"hosts": made, "cluster": cluster})


def of_control_planes(names: Sequence[str], endpoint: str) -> Lock:
    """Return a lock whose hosts are these control planes, of the cluster at an endpoint."""
    lock = lock_of({name: {} for name in names}, groups=["control_plane"])
    assert lock.cluster is not None
    kubernetes = lock.cluster.kubernetes.model_copy(update={"endpoint": endpoint})
    cluster = lock.cluster.model_copy(update={"kubernetes": kubernetes})
    return lock.model_copy(update={"cluster": cluster})
