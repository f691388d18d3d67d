#!/usr/bin/python
# Copyright the Bedplate authors
# SPDX-License-Identifier: Apache-2.0

"""Ansible module: containerd's main configuration, which imports the drop-ins."""

from __future__ import annotations

DOCUMENTATION = r"""
module: containerd_config
short_description: Have containerd's configuration import drop-ins
description:
  - Where containerd is not configured (no file, or a package's unchanged one), the file is
    O(content).
  - A user's file stays the user's. Its C(imports) get one more entry, every other byte stays, as
    do its mode and owner. What it was before is kept next to it with the suffix
    C(.before-bedplate), readable for the same.
  - Fails, writing nothing, where the user's file cannot serve. It may switch off the interface that
    kubelet talks to, be of a version that containerd no longer reads, or have another way to
    registries than O(config_path).
extends_documentation_fragment: [bedplate.gpu.common]
options:
  path:
    description: The main configuration.
    type: path
    default: /etc/containerd/config.toml
  content:
    description: The whole text where there is no user's file. It must import O(imports).
    type: str
    required: true
  imports:
    description: The pattern of the drop-ins.
    type: str
    default: /etc/containerd/conf.d/*.toml
  instead_of:
    description: An earlier O(imports). Where a user's file got it from this module, O(imports)
      comes in its place.
    type: str
    default: ""
  merged:
    description: Whether containerd merges the tables of several files, as from 2.0 on. Before, a
      user's file with settings of Kubernetes' interface, or with imports of its own, is refused.
    type: bool
    default: true
  config_path:
    description: Where the imported settings have containerd look for registries; empty means that
      they do not say. With it containerd serves Kubernetes only where no file has mirrors or
      certificates of registries, so a user's file that has them, or another such folder, is
      refused.
    type: str
    default: ""
  hold_if_exists:
    description: If this file exists, a configuration that would change is left alone and reported
      in RV(pending).
    type: path
attributes:
  diff_mode:
    description: Shows the text before and after; of a user's file, the lines that change.
"""

EXAMPLES = r"""
- name: Import the drop-ins
  bedplate.gpu.containerd_config:
    content: |
      # Managed by Bedplate (role container_runtime).
      version = 3
      imports = ["/etc/containerd/conf.d/*.toml"]
"""

RETURN = r"""
adopted:
  description: Whether the file is a user's.
  returned: success
  type: bool
pending:
  description: What was left alone because of O(hold_if_exists).
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.files import Change
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.runtime.containerd import ensure


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "default": "/etc/containerd/config.toml"},
            "content": {"type": "str", "required": True},
            "imports": {"type": "str", "default": "/etc/containerd/conf.d/*.toml"},
            "instead_of": {"type": "str", "default": ""},
            "merged": {"type": "bool", "default": True},
            "config_path": {"type": "str", "default": ""},
            "hold_if_exists": {"type": "path"},
        },
        supports_check_mode=True,
    )
    wish, host = module.params, Host()
    content = wish["content"] if wish["content"].endswith("\n") else wish["content"] + "\n"
    hold = bool(wish["hold_if_exists"]) and host.exists(wish["hold_if_exists"])
    outcome = ensure(
        host,
        wish["path"],
        content,
        wish["imports"],
        module.check_mode,
        hold,
        wish["instead_of"],
        wish["merged"],
        wish["config_path"],
    )
    if outcome.problems:
        module.fail_json(msg="\n".join(outcome.problems))
    change = outcome.change
    module.exit_json(
        changed=change is not None,
        adopted=outcome.adopted,
        pending=outcome.pending,
        diff=(change or Change(wish["path"], "", "")).diff,
    )


if __name__ == "__main__":
    main()
