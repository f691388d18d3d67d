#!/usr/bin/python
"""What RDMA and NCCL are told by files, in one round trip."""

from __future__ import annotations

DOCUMENTATION = r"""
module: rdma_settings
short_description: Keep the files that RoCE and NCCL read
description:
  - Keeps C(/etc/nccl.conf), the same variables for shells, the settings and the unit that mark RoCE
    traffic, and NCCL's topology file.
  - Refuses settings that do not go together before anything is written.
extends_documentation_fragment: [bedplate.gpu.common, bedplate.gpu.common.host]
options:
  stack:
    description: The RDMA stack.
    type: str
    choices: [inbox, doca]
    required: true
  method:
    description: How network cards reach GPU memory.
    type: str
    choices: [dma-buf, peermem]
    required: true
  repository:
    description: The repository of the stack V(doca).
    type: dict
    default: {}
  devices:
    description: The RDMA devices that are used. Empty takes all.
    type: list
    elements: str
    default: []
  roce:
    description: Marking of RoCE traffic with C(interfaces), C(priority), C(dscp) and C(gid_index).
    type: dict
    default: {}
  nccl:
    description: NCCL's variables. They win over those that follow from the rest.
    type: dict
    default: {}
  topology:
    description: Functions below one switch, each group with C(node) and C(functions).
    type: list
    elements: dict
    default: []
  topology_file:
    description: Where the topology is kept.
    type: path
    default: /etc/bedplate/nccl-topology.xml
  hold:
    description:
      - Whether the host carries jobs. Where marking of RoCE traffic would change, or the unit that
        does it would start, nothing is written, and that is reported in RV(pending).
    type: bool
    default: false
  validate_only:
    description: Refuse or accept, and write nothing.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Mark RoCE traffic with DSCP 26 on a lossless priority 3
  bedplate.gpu.rdma_settings:
    host: "{{ inventory_hostname }}"
    stack: inbox
    method: dma-buf
    devices: [mlx5_0]
    roce: {interfaces: [ens1f0np0], priority: 3, dscp: 26, gid_index: 3}
"""

RETURN = r"""
nccl:
  description: NCCL's variables as they are to be.
  returned: success
  type: dict
found:
  description: The RDMA devices that the host has, of those that are used.
  returned: always
  type: list
  elements: str
pending:
  description: What O(hold) has left as it is.
  returned: always
  type: list
  elements: str
marked:
  description: Whether RoCE traffic is marked as the files say now, or is not to be marked.
  returned: where files are written
  type: bool
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable import owned
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.files import ensure_files
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.rdma import devices as rdma
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.rdma import (
    settings as rdma_settings,
)


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "required": True},
            "stack": {"type": "str", "choices": ["inbox", "doca"], "required": True},
            "method": {"type": "str", "choices": ["dma-buf", "peermem"], "required": True},
            "repository": {"type": "dict", "default": {}},
            "devices": {"type": "list", "elements": "str", "default": []},
            "roce": {"type": "dict", "default": {}},
            "nccl": {"type": "dict", "default": {}},
            "topology": {"type": "list", "elements": "dict", "default": []},
            "topology_file": {"type": "path", "default": "/etc/bedplate/nccl-topology.xml"},
            "hold": {"type": "bool", "default": False},
            "validate_only": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    host = Host()
    wish = rdma_settings.Wish(*(module.params[name] for name in rdma_settings.Wish._fields))
    found = [device["name"] for device in rdma.devices(host, list(wish.devices))]
    result = {"changed": False, "nccl": {}, "found": found, "pending": []}
    problems = rdma_settings.wrong(host, wish, module.params["host"])
    if problems:
        module.fail_json(msg="\n".join(problems), **result)
    result["nccl"] = rdma_settings.nccl(wish)
    if module.params["validate_only"]:
        module.exit_json(**result)
    result["pending"] = rdma_settings.disturbing(host, wish) if module.params["hold"] else []
    if result["pending"]:
        module.exit_json(marked=False, **result)
    outcome = ensure_files(host, rdma_settings.files(host, wish), module.check_mode)
    gone = rdma_settings.gone(host, wish)
    diff = [change.diff for change in outcome.changes]
    for path in gone:
        diff.append({"before_header": path, "before": host.read(path) or "", "after": ""})
        if not module.check_mode and not outcome.problems:
            owned.forget(host, [path])
            host.remove(path)
    marked = not wish.roce or rdma_settings.marked(host)
    result.update(changed=bool(diff), diff=diff, marked=marked)
    if outcome.problems:
        module.fail_json(msg="\n".join(outcome.problems), **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
