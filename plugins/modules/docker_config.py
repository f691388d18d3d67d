#!/usr/bin/python
# Copyright the Bedplate authors
# SPDX-License-Identifier: Apache-2.0

"""Ansible module: keys of ours in Docker's daemon.json."""

from __future__ import annotations

DOCUMENTATION = r"""
module: docker_config
short_description: Merge keys into Docker's daemon.json
description:
  - The file is the user's. Keys of O(settings) are merged into it, objects key by key, and nothing
    else is touched, nor mode and owner. What it was before is kept next to it with the suffix
    C(.before-bedplate), readable for the same.
  - What an earlier call has added, and this one does not name, is taken out again.
  - Fails, writing nothing, where the file is not JSON.
extends_documentation_fragment: [bedplate.gpu.common]
options:
  settings:
    description: The keys to have.
    type: dict
    required: true
  otherwise:
    description:
      - By key of the file's first level, the value that takes the place of one that is taken out,
        where the file had none before. A Docker that runs keeps to what it knew of such a key.
    type: dict
    default: {}
  hold_if_exists:
    description: If this file exists, keys that differ are left alone and reported in RV(pending).
    type: path
attributes:
  diff_mode:
    description: Shows the keys of O(settings), and those taken out, before and after; no others.
"""

EXAMPLES = r"""
- name: Offer NVIDIA's runtime to Docker
  bedplate.gpu.docker_config:
    settings:
      runtimes: {nvidia: {path: /usr/local/bin/nvidia-container-runtime, args: []}}
"""

RETURN = r"""
pending:
  description: What was left alone because of O(hold_if_exists).
  returned: success
  type: list
  elements: str
now:
  description: What the file says, in the end, of the keys of O(settings) and O(otherwise).
  returned: success
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.runtime.docker import ensure


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "settings": {"type": "dict", "required": True},
            "otherwise": {"type": "dict", "default": {}},
            "hold_if_exists": {"type": "path"},
        },
        supports_check_mode=True,
    )
    wish, host = module.params, Host()
    hold = bool(wish["hold_if_exists"]) and host.exists(wish["hold_if_exists"])
    outcome = ensure(host, wish["settings"], module.check_mode, hold, wish["otherwise"])
    if outcome.problems:
        module.fail_json(msg="\n".join(outcome.problems))
    module.exit_json(
        changed=bool(outcome.changes),
        pending=outcome.pending,
        now=outcome.now,
        diff=[change.diff for change in outcome.changes],
    )


if __name__ == "__main__":
    main()
