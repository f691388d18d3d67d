"""The control planes of a lock, in the order in which they are made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DOCUMENTATION = r"""
name: control_planes
short_description: The control planes of a lock, in the order in which they are made
description:
  - Turns the lock, as the lookup P(bedplate.gpu.lock#lookup) returns it, into the peers of the role
    C(control_plane_endpoint). The first one is initialised, and the others join it.
positional: _input
options:
  _input:
    description: The lock.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show the control planes
  ansible.builtin.debug:
    msg: "{{ lookup('bedplate.gpu.lock', inventory_dir) | bedplate.gpu.control_planes }}"
"""

RETURN = r"""
_value:
  description: The inventory name and the address of each.
  type: list
  elements: dict
"""


def control_planes(lock: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return ``[{name, address}]``, as the cluster stack orders them: by name."""
    hosts = sorted(lock["hosts"].items())
    return [
        {"name": name, "address": host.get("node_ip") or host["address"]}
        for name, host in hosts
        if "control_plane" in host["groups"]
    ]


class FilterModule:
    """The collection's filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"control_planes": control_planes}
