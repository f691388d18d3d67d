#!/usr/bin/python
# Copyright the Bedplate authors
# SPDX-License-Identifier: Apache-2.0

"""Ansible module: take away what a role brought to a host, by the host's own records."""

from __future__ import annotations

DOCUMENTATION = r"""
module: removal
short_description: Take away what roles brought to a host, and nothing of the user's
description:
  - Goes by what the host itself records (C(/var/lib/bedplate/owned.json)), so that neither lock nor
    variables are needed.
  - A file that was edited since stays and is named in RV(kept). A file that was there
    before Bedplate wrote it gets its text of then. Out of a user's file that got an import, keys or
    lines, and that the user has edited since, these alone are taken.
  - Of the programs go those that an archive brought. What else is next to them stays and is named.
  - Units among the files are stopped and disabled first.
  - Packages that were held for the roles are upgraded with the others again. Who held one of which
    nothing is recorded is not known, so it stays held, and RV(kept) names it in the end.
extends_documentation_fragment: [bedplate.gpu.common]
options:
  roles:
    description: Roles whose files and holds of packages go.
    type: list
    elements: str
    default: []
  archives:
    description: Names of release archives whose programs go, with the links to them.
    type: list
    elements: str
    default: []
  driver_packages:
    description: Whether the packages of the NVIDIA driver go, and their own dependencies.
    type: bool
    default: false
  everything:
    description: Whether all files, all archives, arguments of the kernel's command line and the
      records themselves go.
    type: bool
    default: false
attributes:
  check_mode:
    description: Says what would go, without changing anything.
  diff_mode:
    description: Shows what goes, a line each.
"""

EXAMPLES = r"""
- name: Take the container toolkit away
  bedplate.gpu.removal:
    roles: [nvidia_container_toolkit]
    archives: [nvidia-container-toolkit]
"""

RETURN = r"""
changes:
  description: What went, or would go in check mode.
  returned: always
  type: list
  elements: str
  sample: ["/etc/crictl.yaml: removed"]
kept:
  description: What stays, and why.
  returned: always
  type: list
  elements: str
  sample: ["/etc/containerd/config.toml: edited since"]
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable import removal
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.refusal import refuse


def remove(host: Host, wish: dict[str, Any], check: bool) -> removal.Outcome:
    """Take away what is asked for, in the reverse order of its coming."""
    outcomes = []
    if wish["driver_packages"]:
        removal.driver_packages(host, check=True)  # what is refused is refused before anything goes
    if wish["everything"]:
        outcomes.append(removal.boot_arguments(host, check))
    if wish["roles"] or wish["everything"]:
        outcomes.append(removal.files(host, wish["roles"], check))
        outcomes.append(removal.locks(host, wish["roles"], check))
    if wish["archives"] or wish["everything"]:
        outcomes.append(removal.archives(host, wish["archives"], check))
    if wish["driver_packages"]:
        outcomes.append(removal.driver_packages(host, check))
    if wish["everything"]:
        outcomes.append(removal.records(host, check))
    changes = [line for outcome in outcomes for line in outcome.changes]
    return removal.Outcome(changes, [line for outcome in outcomes for line in outcome.kept])


def main() -> None:
    """Run the module."""
    names = {"type": "list", "elements": "str", "default": []}
    module = AnsibleModule(
        argument_spec={
            "roles": names,
            "archives": names,
            "driver_packages": {"type": "bool", "default": False},
            "everything": {"type": "bool", "default": False},
        },
        mutually_exclusive=[["roles", "everything"], ["archives", "everything"]],
        supports_check_mode=True,
    )
    try:
        outcome = remove(Host(), module.params, module.check_mode)
    except (removal.RemovalError, OSError) as error:
        refuse(
            module,
            "not everything could be taken away",
            str(error),
            "every command ends well",
            "Fix what it says and run bedplate.gpu.reset again: it goes on where it ended.",
        )
    module.exit_json(
        changed=bool(outcome.changes),
        changes=outcome.changes,
        kept=outcome.kept,
        diff={"prepared": "".join(line + "\n" for line in outcome.changes)},
    )


if __name__ == "__main__":
    main()
