#!/usr/bin/python
# Copyright the Bedplate authors
# SPDX-License-Identifier: Apache-2.0

"""Ansible module: the configuration files of one owner, in one round trip."""

from __future__ import annotations

DOCUMENTATION = r"""
module: files
short_description: Write a role's configuration files, and have units follow, in one round trip
description:
  - Has every file of a list with its content and mode; each is replaced atomically.
  - Has systemd read units that changed, and units enabled and running as requested. What a run that
    was ended in between has left undone is made up for.
  - Files can be held on a node that carries workload, and unmanaged files are refused.
  - What is written is recorded in C(/var/lib/bedplate/owned.json), for drift and reset.
extends_documentation_fragment: [bedplate.gpu.common]
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
  alone_below:
    description: Folders in which, of what this module has written, nothing but O(files) is to be.
      Any other recorded file with the mark of Bedplate goes, and what was there before comes back.
      O(hold_if_exists) does not keep it.
    type: list
    elements: path
    default: []
  hold_if_exists:
    description: If this file exists, files that differ are left alone and reported in RV(pending).
      Files that are absent are written all the same.
    type: path
  units:
    description:
      - Units by name, each with what it is to be. V(loaded), systemd knows its files as they are;
        V(enabled), at boot too; V(started), it also runs, since after O(files) and O(reads) last
        changed. V(current) leaves alone whether it is there, comes at boot and runs. Where it runs,
        it does so since after O(files) and O(reads) last changed. V(reloaded) does the same for one
        that takes them without a restart; that disturbs nothing, and is not held.
      - Where the file O(hold_if_exists) is there, no unit that runs is restarted. Those that should
        be are reported in RV(pending).
    type: dict
    default: {}
  reads:
    description: Further files that the units read, of a folder all in it, also those of others.
    type: list
    elements: path
    default: []
  spare:
    description: Units that are not restarted now, for reasons of their own. Those that should be
      are reported in RV(spared).
    type: list
    elements: str
    default: []
  secrets:
    description: What no answer is to show, whatever it contains, as a password that O(files) carry.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Configure crictl where the runtime listens
  bedplate.gpu.files:
    files:
      - path: /etc/crictl.yaml
        content: "runtime-endpoint: unix:///run/containerd/containerd.sock"

- name: Watch the driver, now and at boot
  bedplate.gpu.files:
    files:
      - path: /etc/systemd/system/watch.path
        content: "{{ lookup('ansible.builtin.template', 'watch.path.j2') }}"
    units: {watch.path: started}
"""

RETURN = r"""
changes:
  description: The files that were changed or rolled back, or would be in check mode.
  returned: always
  type: list
  elements: str
  sample: [/etc/crictl.yaml]
pending:
  description: The files and running units that were left alone because of O(hold_if_exists).
  returned: always
  type: list
  elements: str
  sample: []
spared:
  description: The units of O(spare) that run since before O(files) last changed.
  returned: always
  type: list
  elements: str
  sample: [docker.service]
units:
  description: What was done for systemd and its units, or would be in check mode.
  returned: always
  type: list
  elements: str
  sample: ["systemd: reads its units again", "watch.path: enabled", "watch.path: started"]
"""


from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable import services
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.files import (
    OPTIONS,
    asked,
    ensure_files,
    take_back,
)
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.refusal import refuse


def refuse_other_wishes(module: AnsibleModule, units: dict[str, str]) -> None:
    """Fail on a wish that is not in `services.WISHES`."""
    for unit, wish in units.items():
        if wish not in services.WISHES:
            module.fail_json(msg=f"{unit}: units takes {', '.join(services.WISHES)}, got {wish}")


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "files": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    **OPTIONS,
                    "refuse_foreign": {"type": "bool", "default": False},
                    "record": {"type": "bool", "default": True},
                },
            },
            "alone_below": {"type": "list", "elements": "path", "default": []},
            "hold_if_exists": {"type": "path"},
            "units": {"type": "dict", "default": {}},
            "reads": {"type": "list", "elements": "path", "default": []},
            "spare": {"type": "list", "elements": "str", "default": []},
            "secrets": {"type": "list", "elements": "str", "default": [], "no_log": True},
        },
        supports_check_mode=True,
    )
    units = module.params["units"]
    refuse_other_wishes(module, units)
    files = [
        asked(wish)._replace(refuse_foreign=wish["refuse_foreign"], record=wish["record"])
        for wish in module.params["files"]
    ]
    host = Host()
    waits = module.params["hold_if_exists"]
    hold = bool(waits) and host.exists(waits)
    outcome = ensure_files(host, files, check=module.check_mode, hold=hold)
    if not outcome.problems:
        below = module.params["alone_below"]
        outcome.changes.extend(take_back(host, below, files, check=module.check_mode))
    changed = [change.path for change in outcome.changes]
    lacks = services.Owed(False, [], [], [], [])
    if not outcome.problems:
        read = [file.path for file in files] + module.params["reads"]
        lacks = services.owed(host, units, read, changed)
    lacks, spared = services.spare(lacks, module.params["spare"])
    lacks, held = services.spare(lacks, lacks.restart if hold else [])
    result = {
        "changed": bool(changed or lacks.told),
        "changes": changed,
        "pending": outcome.pending + [f"{unit}: runs since before its files" for unit in held],
        "spared": spared,
        "units": lacks.told,
        "diff": [change.diff for change in outcome.changes]
        + ([{"prepared": "".join(line + "\n" for line in lacks.told)}] if lacks.told else []),
    }
    if outcome.problems:
        module.fail_json(msg="\n".join(outcome.problems), **result)
    refused = "" if module.check_mode else services.settle(host, lacks)
    if refused:
        refuse(
            module,
            "systemd does not do what the files are for",
            refused,
            ", ".join(f"{unit} {wish}" for unit, wish in sorted(units.items())),
            "See 'journalctl --boot' of the unit on the host, and run the play again.",
            **result,
        )
    module.exit_json(**result)


if __name__ == "__main__":
    main()
