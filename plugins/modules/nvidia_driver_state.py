#!/usr/bin/python
"""Tell what NVIDIA driver a host has, and what must wait because it has joined a cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_driver_state
short_description: Read the driver's packages and loaded module
description:
  - Reads packages, the loaded module and whether the host has joined a cluster, in one round trip.
author: [The Bedplate authors]
options:
  version:
    description: The driver version that is wished.
    type: str
    required: true
  packages:
    description: The wished version by package name.
    type: dict
    required: true
  change_joined:
    description: Whether a host that has joined a cluster may be changed.
    type: bool
    default: false
attributes:
  check_mode:
    description: It only reads.
    support: full
"""

EXAMPLES = r"""
- name: Read the driver
  bedplate.gpu.nvidia_driver_state:
    version: 535.261.03
    packages: {nvidia-smi: 535.261.03-1~deb12u1}
"""

RETURN = r"""
system:
  description: The operating system, as V(debian-12).
  returned: always
  type: str
family:
  description: The family of the system, V(Debian) or V(RedHat). It says how packages are installed.
  returned: always
  type: str
joined:
  description: Whether the host has joined a cluster.
  returned: always
  type: bool
loaded:
  description: The loaded module's version, or empty.
  returned: always
  type: str
differing:
  description: Packages that are not at the wished version.
  returned: always
  type: list
  elements: str
pending:
  description: Differences that are left alone on a host that has joined.
  returned: always
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable import driver, requirements
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "version": {"type": "str", "required": True},
            "packages": {"type": "dict", "required": True},
            "change_joined": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    wish = module.params
    host = Host()
    now = driver.state(host, wish["packages"])
    module.exit_json(
        changed=False,
        system=requirements.system_name(host),
        family=driver.family(host),
        joined=now.joined,
        loaded=now.loaded.version if now.loaded else "",
        differing=now.differing,
        pending=driver.pending(now, wish["version"], wish["change_joined"]),
    )


if __name__ == "__main__":
    main()
