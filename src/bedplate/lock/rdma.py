"""What pods get of a pool's RDMA: a resource, and NCCL's settings by the name of a ConfigMap."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bedplate.lock.model import Pool


def resources(pool: Pool) -> dict[str, int]:
    """Return the resources by which pods get a node's RDMA devices, with how many pods may."""
    return pool.rdma.pods if pool.rdma is not None else {}


def settings_name(pool: str) -> str:
    """Return the name of the ConfigMap with NCCL's settings for a pool.

    >>> settings_name("pool_train")
    'nccl-pool-train'
    """
    return f"nccl-{pool.replace('_', '-').lower()}"
