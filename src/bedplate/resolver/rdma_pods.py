"""Whether pods can use RDMA: what nodes offer them, by which plugin, and what a plan says of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bedplate.common.versions import parts
from bedplate.lock.model import Image
from bedplate.lock.offers import pools_of_nodes
from bedplate.resolver.outcome import Notice

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bedplate.catalogue import Catalogue
    from bedplate.lock import Lock
    from bedplate.lock.model import Pool
    from bedplate.resolver.wishes import Subject

PLUGIN: Final = "rdma_device_plugin"
RESOURCE: Final = "rdma/hca"
#: All pods of a node share its devices: more than a node runs. Kubernetes writes 1000 as 1k.
PODS: Final = 999
NO_DEVICE: Final = (
    "RDMA serves programs on the hosts only: pods get no device of it, and NCCL in pods uses TCP"
)
OFFER: Final = "remove bedplate_rdma.pods: false where jobs of several nodes run in pods"


def decided(subject: Subject, catalogue: Catalogue) -> dict[str, dict[str, int]]:
    """Return what each node of a pool with RDMA offers to pods as the lock has it, if anything."""
    wished = subject.host.wishes.bedplate_rdma
    offers = wished is not None and wished.pods and subject.host.is_node
    return {"pods": {RESOURCE: PODS}} if offers and _newest(catalogue) is not None else {}


def plugin(pools: Iterable[Pool], catalogue: Catalogue) -> Image | None:
    """Return the device plugin where nodes of a pool offer RDMA devices: the newest known.

    Nothing else depends on its version, so that it is no choice of the solver's.
    """
    if not any(pool.rdma is not None and pool.rdma.pods for pool in pools):
        return None
    return _newest(catalogue)


def notices(lock: Lock) -> Iterator[Notice]:
    """Yield a notice for each pool of nodes whose pods get no RDMA device."""
    nodes = pools_of_nodes(lock)
    for name, pool in lock.pools.items():
        if pool.rdma is not None and not pool.rdma.pods and name in nodes:
            yield Notice(NO_DEVICE, name, hint=OFFER)


def _newest(catalogue: Catalogue) -> Image | None:
    known = [fact.value for fact in catalogue.components.values() if fact.value.component == PLUGIN]
    if not known:
        return None
    newest = max(known, key=lambda one: parts(one.version))
    return Image(version=newest.version, image=newest.image or "")
