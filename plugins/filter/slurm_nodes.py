"""The Slurm cluster that a lock holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible.errors import AnsibleFilterError
from ansible_collections.bedplate.gpu.plugins.plugin_utils.package import package

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DOCUMENTATION = r"""
name: slurm_nodes
short_description: The nodes and the controller of a lock's Slurm cluster
description:
  - Turns the lock, as the lookup P(bedplate.gpu.lock#lookup) returns it, into what
    M(bedplate.gpu.slurm_controller) writes. Hosts of the group C(slurm) that are in a pool are its
    nodes, each pool a partition; the one that is in no pool is the controller.
  - Without such a host the first node is the controller too.
positional: _input
options:
  _input:
    description: The lock.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show the nodes
  ansible.builtin.debug:
    msg: "{{ (lookup('bedplate.gpu.lock', inventory_dir) | bedplate.gpu.slurm_nodes).nodes }}"
"""

RETURN = r"""
_value:
  description: The inventory name and the address of the C(controller), and the C(nodes) with name,
    inventory name, address, partition and GPUs.
  type: dict
"""


def slurm_nodes(lock: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``{controller, address, nodes}``; raises AnsibleFilterError for two controllers."""
    mine = {name: host for name, host in lock["hosts"].items() if "slurm" in host["groups"]}
    alone = sorted(name for name, host in mine.items() if not host["pool"])
    if len(alone) > 1:
        raise AnsibleFilterError(
            _problem(
                "more than one Slurm controller",
                "group slurm",
                f"{', '.join(alone)}, hosts in no pool",
                "one",
                "Keep one of them in the group, and put the others into a pool or take them out.",
            )
        )
    nodes = [
        _node(name, host, lock["pools"][host["pool"]])
        for name, host in mine.items()
        if host["pool"]
    ]
    twins = sorted(n["host"] for n in nodes if [o["name"] for o in nodes].count(n["name"]) > 1)
    if twins:
        raise AnsibleFilterError(
            _problem(
                "two Slurm nodes have one name",
                "group slurm",
                ", ".join(twins),
                "names that differ before the first dot",
                "Rename one of them in the inventory.",
            )
        )
    controller = next(iter([*alone, *sorted(mine)]), "")
    address = mine[controller]["address"] if controller else ""
    return {"controller": controller, "address": address, "nodes": nodes}


def _node(name: str, host: Mapping[str, Any], pool: Mapping[str, Any]) -> dict[str, Any]:
    sharing, expects = pool["sharing"], pool.get("expects")
    models = [gpu["model"] for gpu in pool.get("gpu", [])]
    if len(models) > 1:
        raise AnsibleFilterError(
            _problem(
                "GPUs of several models in one Slurm node",
                host["pool"],
                ", ".join(models),
                "one model",
                "Put hosts with equal GPUs into pools of their own.",
            )
        )
    if sharing.get("layout"):
        raise AnsibleFilterError(
            _problem(
                "GPUs of one Slurm node are divided differently",
                host["pool"],
                "bedplate_sharing with GPUs or several MIG profiles",
                "one MIG profile",
                "Name one profile for all GPUs, or put hosts with equal GPUs into pools of their"
                " own.",
            )
        )
    mig, cards = sharing["mode"] == "mig", sum(gpu["count"] for gpu in pool.get("gpu", []))
    return {
        "name": name.split(".")[0],
        "host": name,
        "address": host["address"],
        "partition": host["pool"].removeprefix("pool_"),
        "gpu": sharing["profile"] if mig else next(iter(models), ""),
        "count": expects["count"] if mig and expects else cards,
        "cards": cards,
        "mode": sharing["mode"],
        "shares": sharing.get("replicas") or 0,
    }


def _problem(what: str, where: str, got: str, allowed: str, fix: str) -> str:
    return str(package("portable.message").problem(what, where, got, allowed, fix))


class FilterModule:
    """The collection's filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"slurm_nodes": slurm_nodes}
