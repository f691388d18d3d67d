#!/usr/bin/python
# Copyright the Bedplate authors
# SPDX-License-Identifier: Apache-2.0

"""Ansible module: the site's mirror as the one source of a host's packages."""

from __future__ import annotations

DOCUMENTATION = r"""
module: mirror_sources
short_description: Have apt or dnf take packages from the site's mirror alone
description:
  - Writes a source of packages with its key, and has apt or dnf read no other. The host's own
    sources stay as they are, and are read again once these files are gone.
  - Fetches no index. M(bedplate.gpu.debian_packages) and M(bedplate.gpu.dnf_packages) do, and
    M(bedplate.gpu.package_repository) and M(bedplate.gpu.apt_components) leave sources alone.
  - What is written is recorded in C(/var/lib/bedplate/owned.json), for drift and reset.
extends_documentation_fragment: [bedplate.gpu.common]
options:
  url:
    description: The repository of the host's system.
    type: str
    required: true
  key:
    description: The public key that signs it, with armour.
    type: str
    required: true
  ca:
    description: A file of the host with the certificates of the authorities to trust for it.
    type: path
    default: ""
  login:
    description: User and password for it, with a colon between them.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Take packages from the mirror alone
  bedplate.gpu.mirror_sources:
    url: http://mirror.example/files/packages.bedplate.internal/d3c513c98b9cd2d9/debian-12/
    key: "{{ lookup('ansible.builtin.file', 'mirror.asc') }}"
"""

RETURN = r"""
changes:
  description: Files that changed.
  returned: always
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable import mirror_sources as mirror
from ansible_collections.bedplate.gpu.plugins.module_utils.portable import os_release
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "key": {"type": "str", "required": True, "no_log": False},
            "ca": {"type": "path", "default": ""},
            "login": {"type": "str", "default": "", "no_log": True},
        },
        supports_check_mode=True,
    )
    host = Host()
    wish = mirror.Mirror(**{name: module.params[name] for name in mirror.Mirror._fields})
    done = mirror.use(host, os_release.family(host), wish, check=module.check_mode)
    result = {
        "changed": bool(done.changes),
        "changes": [change.path for change in done.changes],
        "diff": [change.diff for change in done.changes],
    }
    if done.problems:
        module.fail_json(msg="\n".join(done.problems), **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
