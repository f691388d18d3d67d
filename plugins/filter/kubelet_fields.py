"""The fields of kubelet's configuration that follow from the size of a node."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ansible_collections.bedplate.gpu.plugins.plugin_utils.package import package

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DOCUMENTATION = r"""
name: kubelet_fields
short_description: Fields of kubelet's configuration that follow from the size of a node
description:
  - What the node keeps for its system, kubelet and container runtime, and how many processes a pod
    may have. A field that the pool sets itself is left to it.
positional: _input, cpus, room, given
options:
  _input:
    description: The text of C(/proc/meminfo).
    type: str
    required: true
  cpus:
    description: How many CPUs the node has.
    type: int
    required: true
  room:
    description: What the lock says of all nodes. Empty for no fields.
    type: dict
    required: true
  given:
    description: The fields that the pool sets itself.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show what a node keeps
  ansible.builtin.debug:
    msg: "{{ meminfo | bedplate.gpu.kubelet_fields(64, room, {}) }}"
  vars:
    room:
      memory: {base: 330, percent: 5}
      cpu: {base: 80, percent: 1}
"""

RETURN = r"""
_value:
  description: C(kubeReserved) and C(podPidsLimit), as far as they are the lock's to say.
  type: dict
"""


def kubelet_fields(
    meminfo: str, cpus: int, room: Mapping[str, Any], given: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the fields; without a number for the node's memory, none that needs it."""
    memory = re.search(r"^MemTotal:\s+(\d+) kB$", meminfo, re.MULTILINE)
    if memory is None:
        room = {name: value for name, value in room.items() if name not in {"memory", "cpu"}}
    fields = package("portable.node_reserve").fields
    mebibytes = int(memory[1]) // 1024 if memory else 0
    found: dict[str, Any] = fields(mebibytes, int(cpus) * 1000, room, given)
    return found


class FilterModule:
    """The collection's filters of this file."""

    def filters(self) -> dict[str, Callable[..., dict[str, Any]]]:
        return {"kubelet_fields": kubelet_fields}
