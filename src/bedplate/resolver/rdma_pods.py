"""Whether pods can use RDMA, and what a plan says of pools where they cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bedplate.lock.offers import pools_of_nodes
from bedplate.resolver.outcome import Notice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bedplate.lock import Lock

NO_DEVICE = "RDMA serves programs on the hosts only: pods get no device of it, and NCCL uses TCP"


def notices(lock: Lock) -> Iterator[Notice]:
    """Yield a notice for each pool of nodes whose pods get no RDMA device."""
    nodes = pools_of_nodes(lock)
    for name, pool in lock.pools.items():
        if pool.rdma is not None and name in nodes:
            yield Notice(NO_DEVICE, name)
