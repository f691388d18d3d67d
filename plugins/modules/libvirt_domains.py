#!/usr/bin/python
"""The domains of a hypervisor with the PCI functions that they are given."""

from __future__ import annotations

DOCUMENTATION = r"""
module: libvirt_domains
short_description: Read libvirt's domains and the PCI functions that they are given
description:
  - Reads, and changes nothing. The filter C(bedplate.gpu.guest_pools) makes pools of what it finds.
extends_documentation_fragment: [bedplate.gpu.common.reads]
options:
  connection:
    description: Where libvirt is.
    type: str
    default: qemu:///system
"""

EXAMPLES = r"""
- name: See which guests there are
  bedplate.gpu.libvirt_domains:
  register: guests
"""

RETURN = r"""
domains:
  description: Domains by name, each with C(ours) and C(functions).
  returned: success
  type: list
  elements: dict
  sample: [{name: train01, ours: true, functions: [{address: "0000:17:00.0", id: "10de:1eb8"}]}]
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable import pci
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.message import problem
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.passthrough import (
    libvirt_domain,
    libvirt_guests,
)


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={"connection": {"type": "str", "default": "qemu:///system"}},
        supports_check_mode=True,
    )
    host, connection = Host(), module.params["connection"]
    settings = libvirt_guests.Settings(os.uname().nodename, connection, "kvm", "", [])
    domains, reason = libvirt_guests.Libvirt(host, settings).domains()
    if reason is not None:
        fix = "See 'systemctl status libvirtd' on the host."
        where, allowed = settings.where, f"virsh -c {connection} answers"
        module.fail_json(msg=problem("libvirt does not answer", where, reason, allowed, fix))
    bus = {device.address: device for device in pci.scan(host)}
    found = []
    for name, text in sorted(domains.items()):
        given = [
            bus[address]
            for address in libvirt_domain.host_devices(text)
            # A virtual function is a share of a card.
            if address in bus and not host.exists(f"{pci.DEVICES}/{address}/physfn")
        ]
        functions = [
            {
                "address": device.address,
                "id": device.identifier,
                "subsystem": device.subsystem,
                "class": device.pci_class[:4],
            }
            for device in given
        ]
        found.append({"name": name, "ours": libvirt_domain.ours(text), "functions": functions})
    module.exit_json(changed=False, domains=found)


if __name__ == "__main__":
    main()
