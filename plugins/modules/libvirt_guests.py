#!/usr/bin/python
"""Guests with passed-through devices as libvirt domains, in one round trip."""

from __future__ import annotations

DOCUMENTATION = r"""
module: libvirt_guests
short_description: Define libvirt domains that are given PCI functions of the host
description:
  - Defines each guest as a Q35 machine with a root port for each GPU, on the processors and the
    memory of the NUMA nodes that its GPUs are on, and has libvirt's own schema check it.
  - Compares what matters of a domain that is there, and defines it again where that differs.
  - Never touches a domain that it did not define, never starts, stops or removes one. A running
    guest keeps its settings until it is started again, see RV(restart).
extends_documentation_fragment: [bedplate.gpu.common, bedplate.gpu.common.host]
options:
  guests:
    description:
      - Guests by name, each with C(devices), C(cpus), C(memory_gib), C(disk), C(network) (the
        host's bridge) and, where requested, C(mac).
    type: dict
    required: true
  devices:
    description: All functions that the host gives away.
    type: list
    elements: str
    required: true
  page_size:
    description: The huge pages that the guests' memory is made of. Empty takes small ones.
    type: str
    choices: ["", 2M, 1G]
    default: ""
  connection:
    description: Where libvirt is.
    type: str
    default: qemu:///system
  shares:
    description:
      - Whether shares of GPUs are made before guests are defined. In check mode they are not there
        yet.
    type: bool
    default: false
  kind:
    description: The hypervisor. V(qemu) is emulation, for hosts without virtualisation.
    type: str
    choices: [kvm, qemu]
    default: kvm
attributes:
  check_mode:
    description: Says what would be defined.
  diff_mode:
    description: Shows the XML of a new domain, and what differs of one that is there.
"""

EXAMPLES = r"""
- name: Give one GPU to a guest
  bedplate.gpu.libvirt_guests:
    host: "{{ inventory_hostname }}"
    devices: ["0000:17:00.0", "0000:65:00.0"]
    guests:
      train01:
        devices: ["0000:17:00.0"]
        cpus: 16
        memory_gib: 128
        disk: /var/lib/libvirt/images/train01.qcow2
        network: br0
"""

RETURN = r"""
restart:
  description: Running guests that take their new settings only when they are started again.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.passthrough import (
    libvirt_guests,
)


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "required": True},
            "guests": {"type": "dict", "required": True},
            "devices": {"type": "list", "elements": "str", "required": True},
            "page_size": {"type": "str", "choices": ["", "2M", "1G"], "default": ""},
            "connection": {"type": "str", "default": "qemu:///system"},
            "kind": {"type": "str", "choices": ["kvm", "qemu"], "default": "kvm"},
            "shares": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    wish = module.params
    settings = libvirt_guests.Settings(
        wish["host"],
        wish["connection"],
        wish["kind"],
        wish["page_size"],
        wish["devices"],
        wish["shares"],
    )
    outcome = libvirt_guests.ensure(Host(), wish["guests"], settings, module.check_mode)
    result = {"changed": bool(outcome.diff), "diff": outcome.diff, "restart": outcome.restart}
    if outcome.problems:
        module.fail_json(msg="\n".join(outcome.problems), **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
