#!/usr/bin/python
# Copyright the Bedplate authors
# SPDX-License-Identifier: Apache-2.0

"""Ansible module: a file from an address, known by its digest."""

from __future__ import annotations

DOCUMENTATION = r"""
module: downloaded_file
short_description: Have a file from an address, known by its digest
description:
  - Fetches a file through the host's proxy, if it has one, unless the file of that digest is there.
  - The file appears whole and in one step, or not at all, also when the run is killed.
  - It belongs to the user that the task runs as, which is root on hosts.
extends_documentation_fragment: [bedplate.gpu.common]
options:
  url:
    description: Where it is fetched from (http, https or file).
    type: str
    required: true
  sha256:
    description: Its SHA-256.
    type: str
    required: true
  dest:
    description: Absolute path. Folders that are missing are made, with mode 0755.
    type: path
    required: true
  mode:
    description: The permissions, octal and quoted.
    type: str
    default: "0644"
attributes:
  check_mode:
    description: Says what would change, without network and without writing.
  diff_mode:
    description: Shows digest and permissions before and after.
"""

EXAMPLES = r"""
- name: Fetch the driver's installer
  bedplate.gpu.downloaded_file:
    url: https://mirror.example/NVIDIA-Linux-x86_64-580.95.05.run
    sha256: 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
    dest: /var/lib/bedplate/driver/580.95.05.run
    mode: "0600"
"""

RETURN = r"""
replaced:
  description: The SHA-256 of the file that was there before, or empty.
  returned: success
  type: str
"""

import re

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable import fetch
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.files import Change
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.message import problem

MODE = re.compile(r"^0?[0-7]{3}$")


def described(file: fetch.File) -> str:
    """One line of a file, or none where there is no file."""
    other = "" if file.mine else " of another user or group"
    return f"sha256:{file.sha256} mode {file.mode:04o}{other}\n" if file.sha256 else ""


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "sha256": {"type": "str", "required": True},
            "dest": {"type": "path", "required": True},
            "mode": {"type": "str", "default": "0644"},
        },
        supports_check_mode=True,
    )
    params = module.params
    path = params["dest"]
    if not MODE.match(params["mode"]):
        module.fail_json(
            msg=problem(
                "the permissions cannot be used",
                path,
                params["mode"],
                "octal digits in quotes, as '0644'",
                "Write them so.",
            )
        )
    wish = fetch.File(params["sha256"].lower(), int(params["mode"], 8))
    if not fetch.is_digest(wish.sha256):
        module.fail_json(
            msg=problem(
                "the digest cannot be used",
                path,
                params["sha256"] or "nothing",
                "a SHA-256 of 64 hexadecimal digits",
                "Give what sha256sum says of the right file.",
            )
        )
    before = fetch.found(path)
    if before != wish and not module.check_mode:
        try:
            fetch.ensure_file(params["url"], wish, path)
        except fetch.FetchError as error:
            module.fail_json(msg=str(error))
    module.exit_json(
        changed=before != wish,
        replaced=before.sha256,
        diff=Change(path, described(before), described(wish)).diff,
    )


if __name__ == "__main__":
    main()
