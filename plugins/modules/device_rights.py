#!/usr/bin/python
# Copyright the Bedplate authors
# SPDX-License-Identifier: Apache-2.0

"""Ansible module: containers keep their GPUs when systemd reads its units again."""

from __future__ import annotations

DOCUMENTATION = r"""
module: device_rights
short_description: Have containers keep their GPUs when systemd reads its units again
description:
  - Has a link in C(/dev/char) for each device node of NVIDIA's, for containers to come.
  - Lets systemd know of the NVIDIA devices of containers that run, where it does not. They were
    started without the links, and would lose their GPUs, or have lost them already. They go on
    running, and have what their runtime gave them.
extends_documentation_fragment: [bedplate.gpu.common]
options: {}
attributes:
  diff_mode:
    description: There is no text to show.
    support: none
"""

EXAMPLES = r"""
- name: Have containers keep their GPUs, before anything has systemd read its units again
  bedplate.gpu.device_rights:
"""

RETURN = r"""
changes:
  description: What was wrong.
  returned: success
  type: list
  elements: str
  sample:
    - /dev/char/195:0 to /dev/nvidia0 is missing
    - "cri-containerd-0a1b.scope: /dev/nvidia0, /dev/nvidiactl"
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.device_rights import (
    RightsError,
    settle,
)
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    try:
        changes = settle(Host(), check=module.check_mode)
    except RightsError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=bool(changes), changes=changes)


if __name__ == "__main__":
    main()
