#!/usr/bin/python
# Copyright the Bedplate authors
# SPDX-License-Identifier: Apache-2.0

"""Ansible module: release archives by digest, side by side by version."""

from __future__ import annotations

DOCUMENTATION = r"""
module: archives
short_description: Install release archives by digest, side by side by version
description:
  - Has every archive of a list unpacked in a folder of its own, in one round trip.
  - A folder appears complete or not at all, also when the run is killed. It carries a marker with
    the archive's digest and its files' size, time and mode, so that a second run needs no network
    and notices a changed program.
  - Proxies are taken from the environment (C(http_proxy), C(https_proxy), C(no_proxy)).
extends_documentation_fragment: [bedplate.gpu.common]
options:
  archives:
    description: The archives to have.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: The archive's name, for messages and the default of O(archives[].dest).
        type: str
        required: true
      version:
        description: Its version.
        type: str
        required: true
      url:
        description: Where it is fetched from (http, https or file).
        type: str
        required: true
      sha256:
        description: Its SHA-256, or the URL of a checksum file that names it.
        type: str
        required: true
      size:
        description: Its size in bytes, where it is known. A download that is longer is cut off.
        type: int
        default: 0
      layout:
        description:
          - A tar archive, a Debian package, or a file that is itself the program.
          - A Debian package (V(deb)) is unpacked on every system, without its scripts and without
            the system's package manager. Its content must be compressed with gzip, xz or bzip2, or
            not at all.
        type: str
        choices: [tar, deb, file]
        default: tar
      strip:
        description: How many leading folders of the archive are dropped.
        type: int
        default: 0
      members:
        description:
          - What is taken from the archive, after stripping. Empty takes everything.
          - With O(archives[].layout=file), the one name that the program gets.
        type: list
        elements: str
        default: []
      dest:
        description: The folder. The default is C(/opt/bedplate/<name>/<version>).
        type: path
      links:
        description:
          - Links to set, each a path and the file in O(archives[].dest) that it names.
          - A path that ends in a slash is a folder that gets a link to every executable in the
            named folder of O(archives[].dest).
          - A file or another link in a link's place is never replaced; the task fails and names it.
        type: dict
        default: {}
  hold_links_if_exists:
    description: If this file exists, links that name another version are left alone and reported
      in RV(pending), and so are complete folders of another archive. Links that are absent are
      set all the same.
    type: path
attributes:
  check_mode:
    description: Says what would change, without network and without writing.
  diff_mode:
    description: Shows each folder and link that changes.
"""

EXAMPLES = r"""
- name: Install crictl
  bedplate.gpu.archives:
    archives:
      - name: cri-tools
        version: 1.36.0
        url: http://192.0.2.1:5080/files/crictl-v1.36.0-linux-amd64.tar.gz
        sha256: "{{ crictl_sha256 }}"
        links: {/usr/local/bin/crictl: crictl}
"""

RETURN = r"""
changes:
  description: What was changed, or would be in check mode.
  returned: always
  type: list
  elements: str
  sample: ["/usr/local/bin/crictl: absent -> /opt/bedplate/cri-tools/1.36.0/crictl"]
pending:
  description: Links and folders that were left alone because of O(hold_links_if_exists).
  returned: always
  type: list
  elements: str
  sample: []
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.archives import Archive, ensure

SPEC: dict[str, Any] = {
    "name": {"type": "str", "required": True},
    "version": {"type": "str", "required": True},
    "url": {"type": "str", "required": True},
    "sha256": {"type": "str", "required": True},
    "size": {"type": "int", "default": 0},
    "layout": {"type": "str", "choices": ["tar", "deb", "file"], "default": "tar"},
    "strip": {"type": "int", "default": 0},
    "members": {"type": "list", "elements": "str", "default": []},
    "dest": {"type": "path"},
    "links": {"type": "dict", "default": {}},
}


def archive_of(wish: dict[str, Any]) -> Archive:
    """Return one element of the task's list as the portable code wants it."""
    dest = wish["dest"] or "/opt/bedplate/{}/{}".format(wish["name"], wish["version"])
    return Archive(
        name=wish["name"],
        version=wish["version"],
        url=wish["url"],
        sha256=wish["sha256"],
        size=wish["size"],
        dest=dest,
        layout=wish["layout"],
        strip=wish["strip"],
        members=tuple(wish["members"]),
        links=tuple(sorted(wish["links"].items())),
    )


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "archives": {"type": "list", "elements": "dict", "required": True, "options": SPEC},
            "hold_links_if_exists": {"type": "path"},
        },
        supports_check_mode=True,
    )
    for wish in module.params["archives"]:
        if wish["layout"] == "file" and len(wish["members"]) != 1:
            module.fail_json(
                msg="{}: layout file takes exactly one name in members, got {}".format(
                    wish["name"], len(wish["members"])
                )
            )
    hold = module.params["hold_links_if_exists"]
    outcome = ensure(
        [archive_of(wish) for wish in module.params["archives"]],
        check=module.check_mode,
        hold_links=bool(hold) and Path(hold).exists(),
    )
    result = {
        "changed": bool(outcome.changes),
        "changes": outcome.changes,
        "pending": outcome.pending,
        "diff": {"prepared": "".join(line + "\n" for line in outcome.changes)},
    }
    if outcome.problems:
        module.fail_json(msg="\n".join(outcome.problems), **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
