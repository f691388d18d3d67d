#!/usr/bin/python
# Copyright the Bedplate authors
# SPDX-License-Identifier: Apache-2.0

"""Ansible module: Slurm's configuration and its controller, in one round trip."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_controller
short_description: Write Slurm's configuration, and run the controller with it
description:
  - Writes C(slurm.conf), C(gres.conf) and C(cgroup.conf) for all nodes, from what the site declares
    and what C(slurmd -C) reported on each of them. What a node reported is recorded, so that a run
    that is limited to some nodes keeps the others.
  - Restarts the controller where it runs with an older configuration, and lets the nodes fetch the
    new one, also after a run that was ended in between. Running jobs go on.
  - A node whose GPUs change, or that is taken out, while jobs run on it is drained instead, and
    keeps its old lines until a later run finds it empty.
extends_documentation_fragment: [bedplate.gpu.common]
options:
  cluster:
    description: The cluster's name.
    type: str
    required: true
  address:
    description: The address at which the nodes reach the controller.
    type: str
    required: true
  nodes:
    description: The nodes.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: The node's name in Slurm.
        type: str
        required: true
      address:
        description: The address at which the controller reaches it.
        type: str
        required: true
      partition:
        description: The partition that it is in.
        type: str
        required: true
      gpu:
        description: The model, or the MIG profile, of its GPUs.
        type: str
        default: ""
      count:
        description: How many GPUs, or MIG devices, it has.
        type: int
        default: 0
      cards:
        description: How many GPUs MIG devices are on, equally many on each.
        type: int
        default: 1
      mode:
        description: How jobs share a GPU.
        type: str
        choices: [none, time-slicing, mps, mig]
        default: none
      shares:
        description: How many shares a GPU has.
        type: int
        default: 0
  hardware:
    description: By node, what C(slurmd -C) printed on it. Nodes may be missing.
    type: dict
    default: {}
  reserved_mib:
    description: Memory of each node that jobs do not get, in MiB.
    type: int
    default: 1024
  settings:
    description: Keys of C(slurm.conf) that replace or extend the role's own.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Run the controller
  bedplate.gpu.slurm_controller:
    cluster: bedplate
    address: 192.0.2.10
    nodes: [{name: batch1, address: 192.0.2.11, partition: batch, gpu: t4-16gb, count: 4}]
    hardware: {batch1: "{{ __hardware.commands.hardware.out }}"}
"""

RETURN = r"""
unknown:
  description: Nodes that are left out, because they have never reported what they have.
  returned: success
  type: list
  elements: str
pending:
  description: Nodes that keep their old lines until their jobs have ended.
  returned: success
  type: list
  elements: str
"""

import hashlib
import json
import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable import (
    documents,
    owned,
    services,
)
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.files import (
    Change,
    File,
    ensure_files,
)
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.refusal import refuse
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.slurm import (
    config as slurm_config,
)
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.slurm import (
    state as slurm_state,
)

UNIT = "slurmctld.service"
RECORD = "/etc/bedplate/slurm-nodes.json"
#: Digest of the configuration that the nodes were last told to fetch.
PUSHED = "/etc/bedplate/slurm-pushed"


class Plan:
    """The nodes as they are to be written, and what is recorded of them."""

    def __init__(self, wish: dict[str, object], record: dict[str, object]) -> None:
        self.nodes = {n.name: n for n in map(slurm_config.node_of, wish["nodes"])}
        self.known = slurm_config.read_known(json.dumps(record.get("hardware", {})))
        self.before = slurm_config.read_nodes(record.get("nodes"))
        for name, text in dict(wish["hardware"]).items():
            found = slurm_config.hardware(str(text or ""))
            if found:
                self.known[name] = found
        self.pending: list[str] = []

    def hold(self, name: str) -> None:
        """Keep the lines that the node has now."""
        self.nodes[name] = self.before[name]
        self.pending.append(name)

    def differing(self) -> list[str]:
        """Nodes whose GPUs change, and nodes that go."""
        return [
            name
            for name, old in sorted(self.before.items())
            if name not in self.nodes
            or slurm_config.gres(self.nodes[name]) != slurm_config.gres(old)
            or self.nodes[name].mode != old.mode
        ]

    @property
    def unknown(self) -> list[str]:
        """Nodes that never said what they have."""
        return sorted(name for name in self.nodes if not self.known.get(name))

    def record(self) -> str:
        """What the next run is to know."""
        there = {name: n for name, n in self.nodes.items() if self.known.get(name)}
        kept = {
            "nodes": {name: n._asdict() for name, n in there.items()},
            "hardware": {name: self.known[name] for name in there},
        }
        return json.dumps(kept, indent=2, sort_keys=True) + "\n"


def read_record(host: Host) -> dict[str, object]:
    return documents.table(host.read(RECORD))


def hold_busy(module: AnsibleModule, host: Host, plan: Plan) -> None:
    """Drain busy nodes whose GPUs change: Slurm ends the jobs of a node that loses its devices."""
    differing = plan.differing()
    if not differing or not services.running(services.state(host, UNIT)):
        return
    try:
        states = {state.name: state for state in slurm_state.nodes(host)}
        for name in differing:
            state = states.get(name)
            if state is None or not state.busy:
                continue
            if state.usable and not module.check_mode:
                slurm_state.drain(host, name, slurm_state.WAITS)
            plan.hold(name)
    except slurm_state.UnansweredError as error:
        refuse(
            module,
            "it is unknown whether jobs run on nodes that change",
            str(error),
            "an answer of slurmctld",
            "Fix the controller first: see 'journalctl --unit slurmctld'.",
        )


def resume_changed(module: AnsibleModule, host: Host, plan: Plan) -> list[str]:
    """Give nodes back that an earlier run drained for a change that is made now."""
    states = slurm_state.nodes(host)
    back = [s.name for s in states if s.waits and s.name not in plan.pending]
    for name in back if not module.check_mode else []:
        slurm_state.resume(host, name)
    return back


def start(module: AnsibleModule, host: Host, restart: bool) -> None:
    host.run(["systemctl", "enable", UNIT])
    if restart:
        host.run(["systemctl", "restart", UNIT], timeout=180)
    if not services.running(services.settled(host, UNIT, 60)):
        refuse(
            module,
            "slurmctld does not run",
            services.last_words(host, UNIT),
            "active",
            "See 'journalctl --unit slurmctld' on the host.",
        )
    silence = slurm_state.answers(host, 60)
    if silence:
        refuse(
            module,
            "slurmctld does not answer",
            silence,
            "'Slurmctld(primary) … is UP' from 'scontrol ping'",
            "See /var/log/slurm/slurmctld.log on the host.",
        )


def ensure_local(host: Host, path: str, check: bool) -> list[Change]:
    """Have a file for the user's settings. It is recorded, so that a reset takes it while nobody
    has written into it, else our line alone; and what they write is no drift."""
    wished = File(path, slurm_config.LOCAL_TEXT, added={"lines": [slurm_config.LOCAL_TEXT.strip()]})
    if not host.exists(path):
        return ensure_files(host, [wished], check=check, watched=False).changes
    if not check and path in owned.load(host):
        writing = owned.Writing(path, wished.content, wished.mode, None, watched=False)
        owned.keep(host, [writing._replace(added=wished.added)])
    return []


def main() -> None:
    """Run the module."""
    text = {"type": "str", "required": True}
    node = {
        "name": text,
        "address": text,
        "partition": text,
        "gpu": {"type": "str", "default": ""},
        "count": {"type": "int", "default": 0},
        "cards": {"type": "int", "default": 1},
        "mode": {
            "type": "str",
            "choices": ["none", "time-slicing", "mps", "mig"],
            "default": "none",
        },
        "shares": {"type": "int", "default": 0},
    }
    module = AnsibleModule(
        argument_spec={
            "cluster": text,
            "address": text,
            "nodes": {"type": "list", "elements": "dict", "required": True, "options": node},
            "hardware": {"type": "dict", "default": {}},
            "reserved_mib": {"type": "int", "default": 1024},
            "settings": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    wish, host, check = module.params, Host(), module.check_mode
    plan = Plan(wish, read_record(host))
    hold_busy(module, host, plan)

    layout = slurm_config.Layout(
        wish["cluster"],
        os.uname().nodename.split(".")[0],
        wish["address"],
        wish["reserved_mib"],
        {str(key): str(value) for key, value in wish["settings"].items()},
    )
    nodes = list(plan.nodes.values())
    folder = slurm_config.FOLDER
    local = f"{folder}/{slurm_config.LOCAL}"
    files = [
        File(
            f"{folder}/slurm.conf", slurm_config.slurm_conf(layout, nodes, plan.known), 0o644, True
        ),
        File(f"{folder}/gres.conf", slurm_config.gres_conf(nodes, plan.known), 0o644, True),
        File(f"{folder}/cgroup.conf", slurm_config.cgroup_conf(), 0o644, True),
    ]
    outcome = ensure_files(host, files, check=check)
    if outcome.problems:
        module.fail_json(msg="\n".join(outcome.problems))
    more = ensure_files(host, [File(RECORD, plan.record())], check=check)
    theirs = ensure_local(host, local, check)
    diff = [change.diff for change in outcome.changes + more.changes + theirs]

    texts = [f.content for f in files] + [host.read(local) or ""]
    digest = hashlib.sha256("\0".join(texts).encode()).hexdigest() + "\n"
    now = services.state(host, UNIT)
    paths = [f.path for f in files] + [local]
    restart = not services.running(now) or services.older_than(host, now, paths)
    enabled = now.get("UnitFileState") == "enabled"
    push = host.read(PUSHED) != digest
    if restart or push or not enabled or diff:
        told = f"{UNIT} runs with its files, and nodes were asked to fetch them\n"
        diff.append({"before": "", "after": told})
        if not check:
            start(module, host, restart)
            # Not alone: a node that is away fetches everything when it comes back.
            host.run(["scontrol", "reconfigure"], timeout=120)
            host.write(PUSHED, digest)
    back = []
    if services.running(services.state(host, UNIT)):
        back = resume_changed(module, host, plan)
    diff += [{"before": f"{name} drained\n", "after": f"{name} in service\n"} for name in back]
    module.exit_json(
        changed=bool(diff), diff=diff, unknown=plan.unknown, pending=sorted(plan.pending)
    )


if __name__ == "__main__":
    main()
