"""Nodes without hosts: Node objects that the scheduler takes as they are."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from tests.schedulers.api import THREADS, Api

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

GPU = "nvidia.com/gpu"


def node(
    name: str,
    gpus: int = 0,
    labels: Mapping[str, str] | None = None,
    resources: Mapping[str, str] | None = None,
    taints: Iterable[Mapping[str, str]] = (),
) -> dict[str, Any]:
    """Return a node that is Ready and has `gpus` of nvidia.com/gpu and whatever else is named."""
    offered = {"cpu": "64", "memory": "512Gi", "pods": "250", "ephemeral-storage": "1Ti"}
    offered |= {GPU: str(gpus)} if gpus else {}
    offered |= dict(resources or {})
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "no kubelet"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": {"taints": [dict(taint) for taint in taints]},
        "status": {"capacity": offered, "allocatable": offered, "conditions": [ready]},
    }


def add_nodes(api: Api, nodes: Iterable[dict[str, Any]]) -> list[str]:
    """Create nodes with their status, and return their names."""

    def add(one: dict[str, Any]) -> str:
        api.create(one)
        api.patch(api.path_of(one), {"status": one["status"]}, "status")
        return str(one["metadata"]["name"])

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(add, nodes))


def remove_nodes(api: Api) -> None:
    """Delete all nodes."""
    api.delete(api.path("nodes"))
