#!/usr/bin/python
"""Offer more components of the distribution from the package sources that the host already has."""

from __future__ import annotations

DOCUMENTATION = r"""
module: apt_components
short_description: Extend existing apt sources by components
description:
  - Adds components such as V(non-free) to those entries of the running release that offer V(main),
    in one-line lists and deb822 files.
  - Writes no repository address, so a mirror that the user chose stays the mirror.
  - Changes nothing where packages come from the site's mirror (M(bedplate.gpu.mirror_sources)).
  - Does not fetch the index. M(bedplate.gpu.debian_packages) does, when it needs to.
extends_documentation_fragment: [bedplate.gpu.common]
options:
  components:
    description: Components that must be offered.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Offer the driver's components
  bedplate.gpu.apt_components:
    components: [contrib, non-free, non-free-firmware]
"""

RETURN = r"""
files:
  description: Files that changed.
  returned: always
  type: list
  elements: str
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable import (
    mirror_sources,
    os_release,
    owned,
)
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.files import Change
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host, shown
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.packages import debian


def main() -> None:
    module = AnsibleModule(
        argument_spec={"components": {"type": "list", "elements": "str", "required": True}},
        supports_check_mode=True,
    )
    host = Host()
    codename = os_release.keys(host).get("VERSION_CODENAME", "")
    # Where packages come from the site's mirror, the host's own sources are not read.
    more = [] if mirror_sources.in_force(host) else module.params["components"]
    changes = debian.extend_sources(host, codename, more)
    diff = []
    for path, (before, after) in sorted(changes.items()):
        diff.append(Change(path, shown(before), shown(after)).diff)
        if module.check_mode:
            continue
        # The user's file, which only a reset puts back, and only as long as nobody has edited it.
        mode = Path(path).stat().st_mode & 0o7777
        owned.keep(host, [owned.Writing(path, after, mode, before, False, "nvidia_driver")])
        host.write(path, after, mode)
    module.exit_json(changed=bool(changes), files=sorted(changes), diff=diff)


if __name__ == "__main__":
    main()
