#!/usr/bin/python
# Copyright the Bedplate authors
# SPDX-License-Identifier: Apache-2.0

"""Ansible module: everything that a role's decision or verification reads, in one round trip."""

from __future__ import annotations

DOCUMENTATION = r"""
module: probe
short_description: Read files and run read-only commands, in one round trip
description:
  - Never changes anything on its own, and therefore runs in check mode too. The commands must be
    read-only.
  - A command that fails or is not there is an answer, not an error. The caller decides.
  - Once the host's Python is known, it is asked without a module's usual wrapping, which takes a
    tenth of the time.
extends_documentation_fragment: [bedplate.gpu.common]
options:
  commands:
    description: Named commands, each a list of arguments; there is no shell.
    type: dict
    default: {}
  files:
    description: Named paths of text files to read.
    type: dict
    default: {}
  exists:
    description: Named paths to look for.
    type: dict
    default: {}
attributes:
  check_mode:
    description: Nothing is changed in any mode.
  diff_mode:
    description: There is nothing to show.
    support: none
"""

EXAMPLES = r"""
- name: Ask for the active versions
  bedplate.gpu.probe:
    commands:
      kubelet: [kubelet, --version]
    files:
      swaps: /proc/swaps
  register: __kubernetes_node_found
"""

RETURN = r"""
commands:
  description: By name, the exit status (127 if there is no such program, 124 on time-out), what was
    written to standard output and standard error, and the last line of it all.
  returned: always
  type: dict
  sample: {kubelet: {code: 0, out: "Kubernetes v1.36.3", err: "", said: "Kubernetes v1.36.3"}}
files:
  description: By name, the text, or null where there is no such readable file.
  returned: always
  type: dict
  sample: {swaps: "Filename Type Size Used Priority"}
exists:
  description: By name, whether the path is there.
  returned: always
  type: dict
  sample: {joined: false}
system:
  description: The operating system as a site names it.
  returned: always
  type: str
  sample: debian-12
family:
  description: The family of the system, V(Debian) or V(RedHat), which says how packages are
    installed. Empty for any other.
  returned: always
  type: str
  sample: Debian
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable import probe
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "commands": {"type": "dict", "default": {}},
            "files": {"type": "dict", "default": {}},
            "exists": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    module.exit_json(**probe.answers(Host(), **module.params))


if __name__ == "__main__":
    main()
