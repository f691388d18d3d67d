"""What a lock promises of each node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible_collections.bedplate.gpu.plugins.plugin_utils.package import package

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


DOCUMENTATION = r"""
name: node_expectations
short_description: What a lock promises of each node of the cluster
description:
  - Turns the lock, as the lookup P(bedplate.gpu.lock#lookup) returns it, into what
    M(bedplate.gpu.cluster_evidence) compares the nodes with.
positional: _input
options:
  _input:
    description: The lock.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show what each node is to offer
  ansible.builtin.debug:
    msg: "{{ lookup('bedplate.gpu.lock', inventory_dir) | bedplate.gpu.node_expectations }}"
"""

RETURN = r"""
_value:
  description: By node name, its Kubernetes version and, for GPU nodes, resource and count, and
    with C(also) the further ones of a node whose GPUs are not alike.
  type: dict
"""


def node_expectations(lock: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Map node names to ``{kubernetes[, resource, count, also, rdma]}``.

    `also` has further resources and their counts, where MIG divides GPUs differently. Where a DRA
    driver owns a node's GPUs, the resource is the driver's name. `rdma` has RDMA devices for pods.
    """
    expected = {}
    for name, host in lock["hosts"].items():
        if not {"control_plane", "gpu_pools", "workers"} & set(host["groups"]):
            continue
        # A site with such hosts has a cluster.
        wish: dict[str, Any] = {"kubernetes": lock["cluster"]["kubernetes"]["version"]}
        # Another stack's plugin may provide the resource: then its GPUs are not the cluster's yet.
        expects = lock["pools"][host["pool"]].get("expects") if host["pool"] else None
        if expects and expects["by"] in ("cluster", "dra"):
            by_dra = expects["by"] == "dra"
            resource = package("portable.dra").DRIVER if by_dra else expects["resource"]
            # A node whose GPUs are all divided differently has no whole one to offer.
            counts = {resource: expects["count"], **expects.get("also", {})}
            (first, count), *others = [(one, n) for one, n in counts.items() if n]
            wish |= {"resource": first, "count": count}
            if others:
                wish["also"] = dict(others)
        rdma = lock["pools"][host["pool"]].get("rdma") if host["pool"] else None
        if rdma and rdma.get("pods"):
            wish["rdma"] = dict(rdma["pods"])
        expected[name] = wish
    return expected


class FilterModule:
    """The collection's filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"node_expectations": node_expectations}
