#!/usr/bin/python
"""Tell what a host has of Fabric Manager and its companions, and what is in the way."""

from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_state
short_description: Read Fabric Manager's packages and services
description:
  - Reads packages, services and whether the host is a cluster node, in one round trip.
extends_documentation_fragment: [bedplate.gpu.common.reads, bedplate.gpu.common.change_joined]
options:
  families:
    description: Names of its packages that have the driver's version, without the driver branch.
    type: list
    elements: str
    required: true
  packages:
    description: The requested version by package name. Empty on systems without NVSwitch.
    type: dict
    default: {}
  driver_version:
    description: The driver's version, which everything of it must have.
    type: str
    required: true
  services:
    description: The units that are to run.
    type: list
    elements: str
    default: []
  subnet_manager:
    description: The program that has to run before Fabric Manager; empty where there is none.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Read what there is of Fabric Manager
  bedplate.gpu.fabric_state:
    families: [nvidia-fabricmanager, libnvidia-nscq]
    driver_version: 580.95.05
"""

RETURN = r"""
system:
  description: The operating system, as V(debian-12).
  returned: always
  type: str
foreign:
  description: Packages with their versions that are not requested and that are not of the driver's
    version.
  returned: always
  type: list
  elements: str
superseded:
  description: Packages of another branch, which go when the requested ones come.
  returned: always
  type: list
  elements: str
family:
  description: The family of the system, V(Debian) or V(RedHat). It says how packages are installed.
  returned: always
  type: str
differing:
  description: Requested packages that are not at the requested version.
  returned: always
  type: list
  elements: str
outdated:
  description: Services that run since before their package was replaced, or without the subnet
    manager that has to run first.
  returned: always
  type: list
  elements: str
pending:
  description: What waits because the host is a cluster node.
  returned: always
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable import fabric, os_release
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "families": {"type": "list", "elements": "str", "required": True},
            "packages": {"type": "dict", "default": {}},
            "driver_version": {"type": "str", "required": True},
            "services": {"type": "list", "elements": "str", "default": []},
            "subnet_manager": {"type": "str", "default": ""},
            "change_joined": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    wish, host = module.params, Host()
    packages = wish["packages"]
    now = fabric.state(host, wish["families"], packages, wish["driver_version"])
    # A first installation disturbs nobody.
    there = bool(now.superseded) or any(name in now.installed for name in packages)
    keeps = host.joined and not wish["change_joined"] and there
    waits = [f"package {name}" for name in now.differing]
    waits += [f"removal of package {name}" for name in now.superseded]
    module.exit_json(
        changed=False,
        family=os_release.family(host),
        system=os_release.name(host),
        foreign=now.foreign,
        differing=now.differing,
        outdated=[
            name
            for name in wish["services"]
            if fabric.outdated(host, name, list(packages), wish["subnet_manager"])
        ],
        superseded=now.superseded,
        pending=waits if keeps else [],
    )


if __name__ == "__main__":
    main()
