#!/usr/bin/python
"""What the driver's module is built with: the running kernel's headers, and DKMS."""

from __future__ import annotations

DOCUMENTATION = r"""
module: driver_build_needs
short_description: Install the running kernel's headers, and what brings those of its updates
description:
  - Installs the running kernel's headers where they are absent, and on Debian's family the packages
    that follow the kernels which are installed (C(linux-headers-amd64) with
    C(linux-image-amd64)). None of them is held.
  - Leaves out what no source offers, and says so in RV(missing). A kernel that is not packaged has
    its headers elsewhere, or the module comes built.
extends_documentation_fragment: [bedplate.gpu.common]
options:
  dkms:
    description:
      - Whether C(dkms) is wanted alone. Where no source has it, the module fails (on Red Hat's
        family it lies in EPEL).
    type: bool
    default: false
  refresh:
    description: Whether apt's index is fetched where it does not know one of the packages.
    type: bool
    default: true
attributes:
  check_mode:
    description: Says what would be installed, as far as the host's index knows it.
  diff_mode:
    description: Shows the packages.
"""

EXAMPLES = r"""
- name: Have what the driver's module is built with
  bedplate.gpu.driver_build_needs:
    dkms: true
"""

RETURN = r"""
installed:
  description: Packages that were installed.
  returned: success
  type: list
  elements: str
missing:
  description: Packages that are wanted and offered by no source.
  returned: success
  type: list
  elements: str
  sample: [linux-headers-6.18.1-own]
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.driver import build_needs
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.packages.transaction import (
    TransactionError,
)
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.refusal import refuse


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "dkms": {"type": "bool", "default": False},
            "refresh": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    host, params = Host(), module.params
    try:
        names = build_needs.wanted(host, os.uname().release, params["dkms"])
        found = build_needs.needs(host, names, params["refresh"] and not module.check_mode)
        if not module.check_mode:
            build_needs.refuse_without_dkms(found)
            if found.install and build_needs.mended(host):
                build_needs.install(host, found.install, module.tmpdir)
    except TransactionError as error:
        refuse(module, *error.parts)
    module.exit_json(
        changed=bool(found.install),
        installed=found.install,
        missing=found.missing,
        diff={"before": "", "after": "".join(f"{name}\n" for name in found.install)},
    )


if __name__ == "__main__":
    main()
