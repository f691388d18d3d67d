#!/usr/bin/python
"""Refuse hosts that cannot become what the site declares, before anything is changed on them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_requirements
short_description: Check rights, system, CPU, Secure Boot, disk space, ports and GPUs of a host
description:
  - Reads everything in one round trip and reports all problems together.
  - Changes nothing, so it runs in check mode as well.
  - Refuses to be run by another user than root, because the roles need root.
extends_documentation_fragment: [bedplate.gpu.common.reads, bedplate.gpu.common.host]
options:
  systems:
    description: Supported operating systems, as V(debian-12). Empty skips this check.
    type: list
    elements: str
    default: []
  system:
    description: The operating system that the site declares. Empty accepts any supported one.
    type: str
    default: ""
  machines:
    description:
      - CPUs that packages and archives are for, as C(uname -m) prints them.
      - Empty skips this check.
    type: list
    elements: str
    default: []
  secure_boot:
    description: Whether the site declares Secure Boot. Left out, it is not looked at.
    type: bool
  disks:
    description:
      - Folders and the free space that they need.
      - Not checked on a cluster node, whose images and workload fill them.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: The folder. It need not exist yet.
        type: path
        required: true
      free_mib:
        description: Free space needed in MiB.
        type: int
        required: true
  ports:
    description:
      - TCP ports that must be free.
      - Not checked on a cluster node, whose kubelet holds them.
    type: list
    elements: int
    default: []
  firewall_ports:
    description:
      - Ports that an active firewalld or ufw must let in, as V(6443/tcp).
      - Not checked on a cluster node.
    type: list
    elements: str
    default: []
  kubernetes:
    description:
      - Whether the host is to be a node, which another Kubernetes on it forbids, a network
        configuration of others, or the links of a former pod network.
      - Not checked on a cluster node.
    type: bool
    default: false
  gpus:
    description: GPUs that the site declares. Empty skips this check.
    type: list
    elements: dict
    default: []
    suboptions:
      model:
        description: The model's name, for messages.
        type: str
        required: true
      pci:
        description: PCI identifiers of this model, as V(10de:1eb8).
        type: list
        elements: str
        required: true
      subsystem:
        description: PCI subsystem identifier, where the device identifier alone does not name the
          GPU.
        type: str
      count:
        description: How many the host has.
        type: int
        required: true
"""

EXAMPLES = r"""
- name: Refuse a host without its GPUs
  bedplate.gpu.host_requirements:
    host: "{{ inventory_hostname }}"
    gpus: [{model: t4-16gb, pci: ["10de:1eb8"], count: 4}]
"""

RETURN = r"""
system:
  description: The operating system found.
  returned: always
  type: str
joined:
  description: Whether the host is a cluster node.
  returned: always
  type: bool
gpus:
  description: PCI identifiers of the GPUs found, one per GPU, by address.
  returned: always
  type: dict
problems:
  description: All problems, each saying what, where, got, allowed and how to fix.
  returned: always
  type: list
  elements: str
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable import (
    firewall,
    node_conflicts,
    os_release,
    pci,
    requirements,
)
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.message import problem


def main() -> None:
    disk = {
        "path": {"type": "path", "required": True},
        "free_mib": {"type": "int", "required": True},
    }
    gpu = {
        "model": {"type": "str", "required": True},
        "pci": {"type": "list", "elements": "str", "required": True},
        "subsystem": {"type": "str"},
        "count": {"type": "int", "required": True},
    }
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "required": True},
            "systems": {"type": "list", "elements": "str", "default": []},
            "system": {"type": "str", "default": ""},
            "machines": {"type": "list", "elements": "str", "default": []},
            "secure_boot": {"type": "bool"},
            "disks": {"type": "list", "elements": "dict", "default": [], "options": disk},
            "ports": {"type": "list", "elements": "int", "default": []},
            "firewall_ports": {"type": "list", "elements": "str", "default": []},
            "kubernetes": {"type": "bool", "default": False},
            "gpus": {"type": "list", "elements": "dict", "default": [], "options": gpu},
        },
        supports_check_mode=True,
    )
    wish, host = module.params, Host()
    where = wish["host"]
    present = pci.gpus(pci.scan(host))
    problems = []
    if os.geteuid() != 0:
        problems.append(
            problem(
                "the host is not worked on as root",
                where,
                f"user id {os.geteuid()}",
                "root",
                "Set ansible_become: true for this host, or ansible_user: root.",
            )
        )
    if wish["systems"]:
        problems += requirements.check_system(host, wish["systems"], wish["system"], where)
    if wish["machines"]:
        problems += requirements.check_machine(host, wish["machines"], where)
    if wish["secure_boot"] is False:
        problems += requirements.check_secure_boot(host, where)
    if not host.joined:
        problems += requirements.check_disks(host, wish["disks"], where)
        problems += requirements.check_ports(host, wish["ports"], where)
        problems += firewall.check(host, wish["firewall_ports"], where)
        problems += node_conflicts.check(host, where) if wish["kubernetes"] else []
    if wish["gpus"]:
        problems += pci.compare(present, wish["gpus"], where)
    result = {
        "changed": False,
        "system": os_release.name(host),
        "joined": host.joined,
        "gpus": {device.address: device.identifier for device in present},
        "problems": problems,
    }
    if problems:
        module.fail_json(msg="\n".join(problems), **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
