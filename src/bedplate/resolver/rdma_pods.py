"""Whether pods can use RDMA: what nodes offer them, by which plugin, and what a plan says of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from bedplate.lock.model import Image
from bedplate.lock.offers import pools_of_nodes
from bedplate.resolver.outcome import Notice
from bedplate.resolver.subjects import is_node
from bedplate.versions import parts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bedplate.catalogue import Catalogue
    from bedplate.lock import Lock
    from bedplate.lock.model import Pool
    from bedplate.resolver.subjects import Subject

PLUGIN: Final = "rdma_device_plugin"
RESOURCE: Final = "rdma/hca"
#: All pods of a node share its devices: more than a node runs. Kubernetes writes 1000 as 1k.
PODS: Final = 999
NO_DEVICE: Final = (
    "RDMA serves programs on the hosts only: pods get no device of it, and NCCL in pods uses TCP"
)
NOT_SAID: Final = "write bedplate_rdma.link: infiniband if the network is InfiniBand"
ROCE: Final = "RoCE needs the network card's interface in the pod, which no role gives it"


def decided(subject: Subject, catalogue: Catalogue) -> dict[str, Any]:
    """Return link and pods of a pool's RDMA, as the lock has them."""
    wished = subject.host.wishes.bedplate_rdma
    link = wished.link if wished is not None else None
    if link is None:
        return {}
    suffice = any(
        fact.value.link == link and fact.value.devices_suffice
        for fact in catalogue.rdma_links.values()
    )
    offers = suffice and is_node(subject.host) and _newest(catalogue) is not None
    return {"link": link, "pods": {RESOURCE: PODS} if offers else {}}


def plugin(pools: Iterable[Pool], catalogue: Catalogue) -> Image | None:
    """Return the device plugin where nodes of a pool offer RDMA devices: the newest known.

    Nothing else depends on its version, so that it is no choice of the solver's.
    """
    if not any(pool.rdma is not None and pool.rdma.pods for pool in pools):
        return None
    return _newest(catalogue)


def notices(lock: Lock, catalogue: Catalogue) -> Iterator[Notice]:
    """Yield a notice for each pool of nodes whose pods get no RDMA device."""
    nodes = pools_of_nodes(lock)
    sources = {str(fact.value.link): fact.source.url for fact in catalogue.rdma_links.values()}
    for name, pool in lock.pools.items():
        if pool.rdma is None or pool.rdma.pods or name not in nodes:
            continue
        hint = ROCE if pool.rdma.link == "ethernet" else NOT_SAID
        yield Notice(NO_DEVICE, name, hint=hint, source=sources.get(pool.rdma.link or "", ""))


def _newest(catalogue: Catalogue) -> Image | None:
    known = [fact.value for fact in catalogue.components.values() if fact.value.component == PLUGIN]
    if not known:
        return None
    newest = max(known, key=lambda one: parts(one.version))
    return Image(version=newest.version, image=newest.image or "")
