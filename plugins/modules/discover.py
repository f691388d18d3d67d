#!/usr/bin/python
"""Read what a host is and what runs on it, in one round trip."""

from __future__ import annotations

DOCUMENTATION = r"""
module: discover
short_description: Read a host's hardware and GPU software, changing nothing
description:
  - Reads GPUs and other accelerators, switches, NVLink, Secure Boot, IOMMU groups, kernel, system,
    disks, network, firmware, the GPU stack's packages with their owners, driver, container runtime
    and kubelet.
  - The action plugin of the same name adds the host's groups and the settings that say what it is,
    with their places. A host that cannot be reached or read is an answer too, so that the play goes
    on; M(bedplate.gpu.discover_report) makes it a failure in the end.
extends_documentation_fragment: [bedplate.gpu.common.reads]
options: {}
"""

EXAMPLES = r"""
- name: Read the host
  bedplate.gpu.discover:
  register: __bedplate_discovered
"""

RETURN = r"""
facts:
  description: What was read. Absent where the host could not be read.
  returned: when the host answered
  type: dict
reason:
  description: Why the host could not be read.
  returned: when it could not be read
  type: str
groups:
  description: The groups of the inventory that the host is in.
  returned: always
  type: list
  elements: str
wishes:
  description: The settings that say what the host is.
  returned: always
  type: dict
unreadable:
  description: By setting, why it cannot be evaluated.
  returned: always
  type: dict
places:
  description: Where the settings are written, each as key path, file, line and column.
  returned: always
  type: list
  elements: list
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.discovery import (
    reading as discovery,
)
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    module.exit_json(changed=False, facts=discovery.collect(Host()))


if __name__ == "__main__":
    main()
