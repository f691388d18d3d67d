#!/usr/bin/python
# Copyright the Bedplate authors
# SPDX-License-Identifier: Apache-2.0

"""Ansible module: slurmd and the links to the node's GPUs, in one round trip."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_node
short_description: Keep the links to a node's GPUs, and run slurmd with its files
description:
  - Writes the files that slurmd is started by, and leads the links of C(gres.conf) to the device
    files that the GPUs have now, slot by slot, each GPU by its UUID.
  - Restarts slurmd where it runs since before one of these last changed, also after a run that was
    ended in between. Running jobs go on.
extends_documentation_fragment: [bedplate.gpu.common]
options:
  files:
    description: The files to have, in the form of M(bedplate.gpu.files).
    type: list
    elements: dict
    required: true
    suboptions:
      path:
        description: Absolute path.
        type: path
        required: true
      content:
        description: The whole text.
        type: str
        required: true
      mode:
        description: The permissions, octal and quoted.
        type: str
        default: "0644"
  gpus:
    description: Whether the node has GPUs.
    type: bool
    default: true
  units:
    description: Units to enable. The last one is started, and restarted where it is not up to date.
    type: list
    elements: str
    required: true
attributes:
  diff_mode:
    description: Shows files and links before and after.
"""

EXAMPLES = r"""
- name: Run slurmd
  bedplate.gpu.slurm_node:
    files: []
    units: [slurmd.service]
"""

RETURN = r"""
slots:
  description: By slot, the UUID of its GPU.
  returned: success
  type: list
  elements: str
replaced:
  description: UUIDs that had a slot before, and have lost it to another GPU.
  returned: success
  type: list
  elements: str
restarted:
  description: Whether slurmd was started or restarted.
  returned: success
  type: bool
"""


from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable import owned, services
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.files import (
    OPTIONS,
    Change,
    Owner,
    asked,
    ensure_files,
    owner,
)
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.refusal import refuse
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.slurm import (
    config as slurm_config,
)
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.slurm import gpus as slurm_gpus


def refuse_foreign(module: AnsibleModule, host: Host) -> None:
    """Refuse a local slurm.conf: slurmd would not read it, but commands on this host would."""
    path = f"{slurm_config.FOLDER}/slurm.conf"
    if owner(host, path, owned.load(host)) in (Owner.USER, Owner.PACKAGE):
        refuse(
            module,
            "the host has a Slurm configuration of its own",
            path,
            "none: nodes fetch it from the controller",
            "Move your settings into local.conf on the controller, and the file away.",
        )


def gpu_links(module: AnsibleModule, host: Host) -> slurm_gpus.Links:
    """What the links are to be. In check mode a driver that is not there yet shows no cards."""
    answer = host.run(list(slurm_gpus.QUERY), timeout=120)
    told = answer.out if answer.code == 0 else answer.said
    try:
        found = slurm_gpus.reported(answer.code, told, lambda path: host.read(path) or "")
        return slurm_gpus.compare(host.root, found)
    except slurm_gpus.UnknownGpusError as error:
        if not module.check_mode:
            refuse(
                module,
                "the GPUs of this node are not known",
                str(error),
                "an answer of the driver",
                "Fix the driver first.",
            )
        return slurm_gpus.Links([], {}, [], [])


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "files": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": OPTIONS,
            },
            "gpus": {"type": "bool", "default": True},
            "units": {"type": "list", "elements": "str", "required": True},
        },
        supports_check_mode=True,
    )
    host, check = Host(), module.check_mode
    units = module.params["units"]
    daemon = units[-1]
    refuse_foreign(module, host)
    files = [asked(file) for file in module.params["files"]]
    outcome = ensure_files(host, files, check=check)
    diff = [change.diff for change in outcome.changes]
    links = slurm_gpus.Links([], {}, [], [])
    if module.params["gpus"]:
        links = gpu_links(module, host)
        relinked = bool(links.wrong) or links.slots != links.recorded
        if relinked and not check:
            slurm_gpus.apply(host.root, links)
        if relinked:
            before, after = ("\n".join(slots) + "\n" for slots in (links.recorded, links.slots))
            diff.append(Change(slurm_gpus.RECORD, before, after).diff)

    states = {unit: services.state(host, unit) for unit in units}
    disabled = [u for u, now in states.items() if now.get("UnitFileState") != "enabled"]
    watched = [f.path for f in files] + [f"{slurm_gpus.LINKS}/{name}" for name in links.wanted]
    down = not services.running(states[daemon])
    restart = down or services.older_than(host, states[daemon], watched)
    # In check mode nothing is written, so what would be tells of the restart too.
    restart = restart or bool(diff)
    if disabled:
        diff.append({"before": "", "after": "".join(f"{unit} enabled\n" for unit in disabled)})
    if restart:
        told = f"{daemon} {'not running' if down else 'running with old files'}\n"
        diff.append({"before": told, "after": f"{daemon} restarted\n"})
    if not check:
        if outcome.changes or any(s.get("NeedDaemonReload") == "yes" for s in states.values()):
            host.run(["systemctl", "daemon-reload"])
        if disabled:
            host.run(["systemctl", "enable", *disabled])
        if restart:
            host.run(["systemctl", "restart", daemon], timeout=180)
            if not services.running(services.settled(host, daemon, 60)):
                refuse(
                    module,
                    f"{daemon} does not run",
                    services.last_words(host, daemon),
                    "active",
                    f"See 'journalctl --unit {daemon}' on the host.",
                )
    module.exit_json(
        changed=bool(diff),
        diff=diff,
        slots=links.slots,
        replaced=[name for name in links.recorded if name not in links.slots],
        restarted=restart,
    )


if __name__ == "__main__":
    main()
