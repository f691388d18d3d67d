#!/usr/bin/python
# Copyright the Bedplate authors
# SPDX-License-Identifier: Apache-2.0

"""Ansible module: the CDI specification of a host's GPUs, kept true."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cdi_spec
short_description: Keep the CDI specification of a host's GPUs true
description:
  - Asks C(nvidia-ctk cdi generate) what it would write now, and writes it if it differs from what
    is there. So a change of driver, GPUs or MIG layout is noticed, and an edited file is fixed.
options:
  path:
    description: The specification.
    type: path
    default: /etc/cdi/nvidia.yaml
  hook:
    description: The nvidia-cdi-hook that containers are to use, as a path that survives upgrades.
    type: path
    default: /usr/local/bin/nvidia-cdi-hook
author:
  - The Bedplate authors
attributes:
  check_mode:
    description: Says what would change, without writing.
    support: full
  diff_mode:
    description: Shows the specification before and after.
    support: full
"""

EXAMPLES = r"""
- name: Describe the GPUs to container runtimes
  bedplate.gpu.cdi_spec:
"""

RETURN = r"""
devices:
  description: The devices that the specification names.
  returned: success
  type: list
  elements: str
  sample: ["0", "1", "all"]
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.files import Change
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.runtime.cdi import (
    CdiError,
    refresh,
)


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "default": "/etc/cdi/nvidia.yaml"},
            "hook": {"type": "path", "default": "/usr/local/bin/nvidia-cdi-hook"},
        },
        supports_check_mode=True,
    )
    path = module.params["path"]
    try:
        outcome = refresh(Host(), path, module.params["hook"], check=module.check_mode)
    except CdiError as error:
        module.fail_json(msg=str(error))
    module.exit_json(
        changed=outcome.changed,
        devices=outcome.devices,
        diff=Change(path, outcome.before, outcome.after).diff,
    )


if __name__ == "__main__":
    main()
