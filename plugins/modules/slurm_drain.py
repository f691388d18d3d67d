#!/usr/bin/python
# Copyright the Bedplate authors
# SPDX-License-Identifier: Apache-2.0

"""Ansible module: take a Slurm node out of service until its jobs have ended, and give it back."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_drain
short_description: Take a node out of Slurm's service, or return it
description:
  - Drains with a reason that begins with C(bedplate). Only a node that was drained so is returned
    to service; one that the user drained stays out.
  - A name that Slurm does not know is no node, and nothing is done.
extends_documentation_fragment: [bedplate.gpu.common]
options:
  name:
    description: The node's name in Slurm.
    type: str
    required: true
  state:
    description: V(drained) lets the node take no more jobs and waits until it has none. V(resumed)
      returns it to service, if Bedplate drained it and it does not wait for a change that its jobs
      hold up; role slurm returns such a node with the change.
    type: str
    choices: [drained, resumed]
    required: true
  reason:
    description: Why the node is out of service, for people who find it so.
    type: str
    default: taken out of service for a change
  timeout:
    description: Seconds that jobs have to end. None is ended by force.
    type: int
    default: 3600
attributes:
  check_mode:
    description: Says what would change, by what the controller says now. It does not wait.
  diff_mode:
    description: Shows the node's state before and after.
"""

EXAMPLES = r"""
- name: Let the jobs of this node end
  bedplate.gpu.slurm_drain:
    name: batch1
    state: drained
"""

RETURN = r"""
known:
  description: Whether Slurm has a node of that name.
  returned: success
  type: bool
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.message import problem
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.slurm import (
    state as slurm_state,
)

#: The controller asks its nodes every 100 seconds where SlurmdTimeout is Slurm's own.
RESPONSE_SECONDS = 120


def refuse(module: AnsibleModule, what: str, got: str, allowed: str, fix: str) -> None:
    module.fail_json(msg=problem(what, module.params["name"], got, allowed, fix))


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["drained", "resumed"], "required": True},
            "reason": {"type": "str", "default": "taken out of service for a change"},
            "timeout": {"type": "int", "default": 3600},
        },
        supports_check_mode=True,
    )
    wish, host, check = module.params, Host(), module.check_mode
    name = wish["name"]
    diff = {}
    node = None
    try:
        node = slurm_state.node(host, name)
        if node is None:
            module.exit_json(changed=False, known=False)
        changed = node.returnable if wish["state"] == "resumed" else "DRAIN" not in node.flags
        diff = {"before": f"{node.told}\n", "after": f"{wish['state'] if changed else node.told}\n"}
        if changed and not check and wish["state"] == "resumed":
            slurm_state.resume(host, name)
            if not slurm_state.await_response(host, name, RESPONSE_SECONDS):
                refuse(
                    module,
                    "Slurm's controller does not hear of the node",
                    f"not responding, {RESPONSE_SECONDS} s after it was returned",
                    "an answer of slurmd",
                    "See 'systemctl status slurmd' on the node, and whether the two reach each"
                    " other.",
                )
        if changed and not check and wish["state"] == "drained":
            slurm_state.drain(host, name, wish["reason"])
        if wish["state"] == "drained" and not check:
            node = slurm_state.await_idle(host, name, wish["timeout"])
    except slurm_state.UnansweredError as error:
        refuse(
            module,
            "Slurm cannot be asked about the node",
            str(error),
            "an answer of slurmctld",
            "See whether the controller is up, and run the play again.",
        )
    if wish["state"] == "drained" and not check and node is not None and node.busy:
        refuse(
            module,
            "jobs still run on the node",
            f"{node.told} after {wish['timeout']} s",
            "no job",
            "Wait for them or end them ('squeue --nodelist="
            f"{name}'), and run the play again; until then the node takes no new ones.",
        )
    module.exit_json(changed=changed, known=True, diff=diff)


if __name__ == "__main__":
    main()
