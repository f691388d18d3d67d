#!/usr/bin/python
# Copyright the Bedplate authors
# SPDX-License-Identifier: Apache-2.0

"""Ansible module: rpm packages in one transaction; versionlock holds those of an exact version."""

from __future__ import annotations

DOCUMENTATION = r"""
module: dnf_packages
short_description: Install packages in one dnf transaction, and hold those of an exact version
description:
  - Finishes what an interrupted transaction of this module left undone, waiting for a package
    manager that still runs.
  - Fetches the index again only when it does not know a requested version, or a package.
  - Installs, upgrades, downgrades and removes in one dnf transaction, and refuses one that would
    remove anything beyond O(remove).
  - Holds packages with dnf's versionlock plugin, and installs that where it is missing.
extends_documentation_fragment: [bedplate.gpu.common, bedplate.gpu.common.lock_timeout]
options:
  packages:
    description: Version by package name, as C(epoch:version-release).
    type: dict
    default: {}
  present:
    description: Packages that are there in any version. They are not held.
    type: list
    elements: str
    default: []
  files:
    description:
      - Package files on the host that are installed as they are, as if their versions were named in
        O(packages). Compare their digests before, because signatures of theirs are not looked at.
    type: list
    elements: path
    default: []
  remove:
    description: Packages that go in the same transaction.
    type: list
    elements: str
    default: []
  hold:
    description: Whether O(packages) and those of O(files) are held.
    type: bool
    default: true
  versionlock_package:
    description: The package that brings the versionlock plugin.
    type: str
    default: python3-dnf-plugin-versionlock
attributes:
  check_mode:
    description: Says what would change, by what is installed. dnf itself is not asked.
  diff_mode:
    description: Shows versions and holds before and after.
"""

EXAMPLES = r"""
- name: Change the flavour of the kernel module
  bedplate.gpu.dnf_packages:
    packages: {kmod-nvidia-open-dkms: "3:580.178.04-1.el9"}
    remove: [kmod-nvidia-latest-dkms]

- name: Install what the runtime needs
  bedplate.gpu.dnf_packages:
    present: [conntrack-tools, socat]
"""

RETURN = r"""
installed:
  description: Packages that were installed or changed.
  returned: always
  type: list
  elements: str
removed:
  description: Packages that were removed.
  returned: always
  type: list
  elements: str
repaired:
  description: Whether an interrupted transaction was finished.
  returned: always
  type: bool
"""


from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.packages import (
    dnf,
    rpm,
)
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.packages.dnf import (
    Change,
    Wish,
)
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.packages.transaction import (
    TransactionError,
    await_turn,
)
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.refusal import refuse

WHATEVER = "in the version that the repositories have"


def apply(module: AnsibleModule, host: Host, wish: Wish) -> tuple[bool, Change]:
    """Carry the wish out; whether anything was repaired, and what was changed."""
    params = module.params
    await_turn(lambda: rpm.busy(host), params["lock_timeout"])
    repaired = dnf.repair(host)
    if params["hold"] and wish.packages:
        dnf.have_versionlock(host, params["versionlock_package"])
    done = dnf.carry_out(host, wish, module.tmpdir)
    if params["hold"] and dnf.unlocked(host, wish.packages):
        dnf.lock(host, wish)
    return repaired, done


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "packages": {"type": "dict", "default": {}},
            "present": {"type": "list", "elements": "str", "default": []},
            "files": {"type": "list", "elements": "path", "default": []},
            "remove": {"type": "list", "elements": "str", "default": []},
            "hold": {"type": "bool", "default": True},
            "versionlock_package": {"type": "str", "default": dnf.VERSIONLOCK_PACKAGE},
            "lock_timeout": {"type": "int", "default": 600},
        },
        supports_check_mode=True,
    )
    params, host = module.params, Host()
    hold = params["hold"]
    try:
        brought = dnf.of_files(host, params["files"])
        wish = Wish(
            {**params["packages"], **brought.packages},
            params["remove"],
            params["present"],
            brought.files,
        )
        names = sorted({*wish.packages, *wish.remove, *wish.present})
        before = rpm.versions(rpm.query(host, names))
        unheld = dnf.unlocked(host, wish.packages)
        held = {name: name in wish.packages and name not in unheld for name in names}
        repaired, todo = rpm.journal(host) is not None, dnf.change(host, wish)
        waits = bool(repaired or todo.install or todo.remove or (hold and unheld))
        # Where nothing is to be done, nobody else's transaction is waited for.
        if waits and not module.check_mode:
            repaired, todo = apply(module, host, wish)
    except TransactionError as failure:
        refuse(module, *failure.parts)
    now = before if module.check_mode else rpm.versions(rpm.query(host, wish.present))
    after = {name: [WHATEVER] for name in wish.present if name in todo.install} | now
    after.update({name: [rpm.normal(evr)] for name, evr in wish.packages.items()})
    module.exit_json(
        changed=bool(repaired or todo.install or todo.remove or (hold and unheld)),
        repaired=repaired,
        installed=todo.install,
        removed=todo.remove,
        diff={
            "before": dnf.described(before, held),
            "after": dnf.described(
                after, {n: n in wish.packages and (hold or held[n]) for n in names}
            ),
        },
    )


if __name__ == "__main__":
    main()
