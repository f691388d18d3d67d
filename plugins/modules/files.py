#!/usr/bin/python
# Copyright the Bedplate authors
# SPDX-License-Identifier: Apache-2.0

"""Ansible module: the configuration files of one owner, in one round trip."""

from __future__ import annotations

DOCUMENTATION = r"""
module: files
short_description: Write a role's configuration files in one round trip
description:
  - Has every file of a list with its content and mode; each is replaced atomically.
  - Files can be held on a node that carries workload, and foreign files are refused.
  - What is written is recorded in C(/var/lib/bedplate/owned.json), for drift and reset.
options:
  files:
    description: The files to have.
    type: list
    elements: dict
    required: true
    suboptions:
      path:
        description: Absolute path. Folders that are missing are made, with mode 0755.
        type: path
        required: true
      content:
        description: The whole text. A newline is added at the end if there is none.
        type: str
        required: true
      mode:
        description: The permissions, octal and quoted.
        type: str
        default: "0644"
      refuse_foreign:
        description: Fail, writing nothing, if the file is there and neither says in its first two
          lines that Bedplate manages it, nor is a package's unchanged configuration file.
        type: bool
        default: false
      record:
        description: Whether the file is recorded. One that others take away is not to be.
        type: bool
        default: true
  hold_if_exists:
    description: If this file exists, files that differ are left alone and reported in RV(pending).
      Files that are absent are written all the same.
    type: path
author:
  - The Bedplate authors
attributes:
  check_mode:
    description: Says what would change, without writing.
    support: full
  diff_mode:
    description: Shows the text of each file that changes.
    support: full
"""

EXAMPLES = r"""
- name: Tell crictl where the runtime listens
  bedplate.gpu.files:
    files:
      - path: /etc/crictl.yaml
        content: "runtime-endpoint: unix:///run/containerd/containerd.sock"
"""

RETURN = r"""
changes:
  description: The files that were changed, or would be in check mode.
  returned: always
  type: list
  elements: str
  sample: [/etc/crictl.yaml]
pending:
  description: The files that were left alone because of O(hold_if_exists).
  returned: always
  type: list
  elements: str
  sample: []
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.files import (
    File,
    ensure_files,
)
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "files": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "path": {"type": "path", "required": True},
                    "content": {"type": "str", "required": True},
                    "mode": {"type": "str", "default": "0644"},
                    "refuse_foreign": {"type": "bool", "default": False},
                    "record": {"type": "bool", "default": True},
                },
            },
            "hold_if_exists": {"type": "path"},
        },
        supports_check_mode=True,
    )
    files = [
        File(
            path=wish["path"],
            content=wish["content"] if wish["content"].endswith("\n") else wish["content"] + "\n",
            mode=int(wish["mode"], 8),
            refuse_foreign=wish["refuse_foreign"],
            record=wish["record"],
        )
        for wish in module.params["files"]
    ]
    host = Host()
    waits = module.params["hold_if_exists"]
    outcome = ensure_files(
        host, files, check=module.check_mode, hold=bool(waits) and host.exists(waits)
    )
    result = {
        "changed": bool(outcome.changes),
        "changes": [change.path for change in outcome.changes],
        "pending": outcome.pending,
        "diff": [
            {
                "before": change.before or "",
                "after": change.after,
                "before_header": change.path,
                "after_header": change.path,
            }
            for change in outcome.changes
        ],
    }
    if outcome.problems:
        module.fail_json(msg="\n".join(outcome.problems), **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
