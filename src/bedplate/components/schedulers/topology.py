"""Where the nodes of a cluster stand: rack, leaf switch and NVLink domain. Pure functions.

The site names them; what it leaves open is taken from what GPU feature discovery found. Labels of
nodes, Volcano's HyperNodes and Kueue's topology are all made from the same places.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from bedplate.components.config import StackError
from bedplate.portable.message import problem
from bedplate.site import nesting
from bedplate.site.nesting import DOMAIN
from bedplate.site.site import NODES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bedplate.lock import Lock

POOL_LABEL: Final = "bedplate.io/pool"
SHARING_LABEL: Final = "bedplate.io/sharing"
#: Label by level. The narrowest level comes last; the other two may stand in either order.
LABELS: Final = {
    "rack": "topology.bedplate.io/rack",
    "leaf": "topology.bedplate.io/leaf",
    "nvlink_domain": "topology.bedplate.io/nvlink-domain",
}
HOST: Final = "kubernetes.io/hostname"
#: GPU feature discovery's label: the UUID of the NVLink fabric and the clique in it, where one
#: reaches beyond a host.
CLIQUE: Final = "nvidia.com/gpu.clique"
_NOT_IN_A_NAME = re.compile(r"[^a-z0-9-]+")


@dataclass(frozen=True)
class Places:
    """Where nodes stand.

    Attributes:
        levels: the levels that some node has a value of, from the widest to the narrowest.
        nodes: by node, its value of each level that it has one of.
    """

    levels: tuple[str, ...] = ()
    nodes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def labels(self, node: str) -> dict[str, str]:
        """Return the labels that say where a node stands."""
        return {LABELS[level]: value for level, value in self.nodes.get(node, {}).items()}


def places(lock: Lock, found: Mapping[str, Mapping[str, str]]) -> Places:
    """Return where the cluster's nodes stand, by the site and by discovered labels.

    Raises:
        StackError: GPUs of one NVLink fabric are in different domains of the site, or the other way
            round; or a part of a level lies in two of a wider one.
    """
    nodes = _of_site(lock)
    _compared(nodes, found)
    for name, place in nodes.items():
        clique = found.get(name, {}).get(CLIQUE)
        if clique and DOMAIN not in place:
            place[DOMAIN] = clique
    return Places(_levels(nodes), nodes)


def levels(lock: Lock, pool: str) -> list[str]:
    """Return the labels that every host of a pool has from the site, of the widest level first.

    Raises StackError as `places` does.
    """
    nodes = {name: place for name, place in _of_site(lock).items() if lock.hosts[name].pool == pool}
    order = _levels(nodes)
    return [LABELS[level] for level in order if all(level in place for place in nodes.values())]


def node_labels(lock: Lock, found: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    """Return all labels of each node: pool, mode of sharing, place, and what was discovered."""
    known = places(lock, found)
    labels = {}
    for name in known.nodes:
        pool = lock.hosts[name].pool
        own = {}
        if pool is not None:
            own = {POOL_LABEL: pool, SHARING_LABEL: lock.pools[pool].sharing.mode}
        labels[name] = {**found.get(name, {}), **own, **known.labels(name)}
    return {name: of_node for name, of_node in labels.items() if of_node}


def object_name(level: str, value: str) -> str:
    """Return a Kubernetes name for a part of a level; two parts never share one.

    >>> object_name("leaf", "l1")
    'leaf-l1'
    >>> object_name("nvlink_domain", "Row_7")
    'nvlink-domain-row-7-191265'
    """
    exact = f"{level.replace('_', '-')}-{value}"
    name = _NOT_IN_A_NAME.sub("-", exact.lower()).rstrip("-")
    if name == exact:
        return name
    return f"{name}-{hashlib.sha256(value.encode()).hexdigest()[:6]}"


def _of_site(lock: Lock) -> dict[str, dict[str, str]]:
    return {
        name: host.topology.model_dump(exclude_none=True) if host.topology else {}
        for name, host in sorted(lock.hosts.items())
        if set(NODES) & set(host.groups)
    }


def _compared(
    nodes: Mapping[str, Mapping[str, str]], found: Mapping[str, Mapping[str, str]]
) -> None:
    """Refuse a site whose NVLink domains are not those of the hardware."""
    both = {
        name: (place[DOMAIN], found[name][CLIQUE])
        for name, place in nodes.items()
        if DOMAIN in place and found.get(name, {}).get(CLIQUE)
    }
    for mine, other, got in (
        (0, 1, "{} is in the fabrics {}"),
        (1, 0, "fabric {} is in the domains {}"),
    ):
        for one, others in nesting.grouped(
            (pair[mine], pair[other]) for pair in both.values()
        ).items():
            if len(others) > 1:
                members = [name for name, pair in both.items() if pair[mine] == one]
                raise StackError(
                    problem(
                        "NVLink domains of the site are not those of the hardware",
                        f"bedplate_topology of {', '.join(members)}",
                        got.format(one, " and ".join(others)),
                        "one domain for each fabric that GPU feature discovery reports",
                        "correct nvlink_domain of these hosts, or leave it out: it is then taken"
                        " from the hardware",
                    )
                )


def _levels(nodes: Mapping[str, Mapping[str, str]]) -> tuple[str, ...]:
    """Return the levels in use, widest first. Raises StackError where they do not nest."""
    found = nesting.order(nodes)
    if isinstance(found, nesting.Overlap):
        raise StackError(
            problem(
                "a part of the topology has two parents",
                f"bedplate_topology of {', '.join(found.members)}",
                found.got,
                found.allowed,
                f"correct {found.outer} or {found.inner} of these hosts",
            )
        )
    return found
