#!/usr/bin/python
# Copyright the Bedplate authors
# SPDX-License-Identifier: Apache-2.0

"""Ansible module: the CDI specification of a host's GPUs, kept true."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cdi_spec
short_description: Keep what container runtimes know of a host's GPUs true
description:
  - Has a link in C(/dev/char) for each device node of NVIDIA's, without which running containers
    lose their GPUs when systemd reads its units again.
  - Removes an additional CDI specification that the unit of NVIDIA's packages has written.
  - Asks C(nvidia-ctk cdi generate) what it would write now, and writes it if it differs from what
    is there. So a change of driver, GPUs or MIG layout is noticed, and an edited file is fixed.
extends_documentation_fragment: [bedplate.gpu.common]
options:
  path:
    description: The specification.
    type: path
    default: /etc/cdi/nvidia.yaml
  hook:
    description: The nvidia-cdi-hook that containers are to use, as a path that survives upgrades.
    type: path
    default: /usr/local/bin/nvidia-cdi-hook
attributes:
  diff_mode:
    description: Shows the specification before and after.
"""

EXAMPLES = r"""
- name: Describe the GPUs to container runtimes
  bedplate.gpu.cdi_spec:
"""

RETURN = r"""
links:
  description: What was wrong with the links in C(/dev/char).
  returned: success
  type: list
  elements: str
  sample: ["/dev/char/195:0 to /dev/nvidia0 is missing"]
removed:
  description: CDI specifications that NVIDIA's packages had written.
  returned: success
  type: list
  elements: str
  sample: ["/var/run/cdi/nvidia.yaml"]
python:
  description: The interpreter that runs this module, for what runs at boot.
  returned: success
  type: str
  sample: /usr/bin/python3
devices:
  description: The devices that the specification names.
  returned: success
  type: list
  elements: str
  sample: ["0", "1", "all"]
"""

import sys

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable import device_links
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.files import Change
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.runtime.cdi import (
    CdiError,
    refresh,
    remove_packages,
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
    host, path = Host(), module.params["path"]
    # First: a container that starts meanwhile keeps its GPUs.
    links = device_links.ensure(host.root, check=module.check_mode)
    try:
        outcome = refresh(host, path, module.params["hook"], check=module.check_mode)
    except CdiError as error:
        module.fail_json(msg=str(error))
    removed = remove_packages(host, path, check=module.check_mode)
    module.exit_json(
        changed=outcome.changed or bool(links or removed),
        links=links,
        removed=removed,
        python=sys.executable,
        devices=outcome.devices,
        diff=Change(path, outcome.before, outcome.after).diff,
    )


if __name__ == "__main__":
    main()
