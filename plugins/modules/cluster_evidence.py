#!/usr/bin/python
"""Collect evidence of the cluster from a control plane host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_evidence
short_description: Check the cluster against the lock, and write evidence
description:
  - Asks the API server with the control plane's own kubectl and administrator's configuration.
  - Where there is no cluster yet, its one check is skipped with that reason.
  - The action plugin of the same name writes C(cluster.json) on the control side and fails with all
    failed checks. Evidence never counts as a change.
extends_documentation_fragment: [bedplate.gpu.common.reads, bedplate.gpu.common.lock_digest]
options:
  name:
    description: The cluster's name in messages and evidence.
    type: str
    required: true
  expects:
    description: By node name, its Kubernetes version and, for GPU nodes, resource and count.
    type: dict
    required: true
  evidence_dir:
    description: Folder on the control side that takes the evidence. Empty writes none.
    type: str
    default: ""
  settle_seconds:
    description: How long a check that fails is looked at again before it counts as failed.
    type: int
    default: 0
attributes:
  check_mode:
    description: It only reads, and writes no evidence in check mode.
"""

EXAMPLES = r"""
- name: See whether the cluster offers its GPUs
  bedplate.gpu.cluster_evidence:
    name: demo
    expects:
      gpu-a: {kubernetes: 1.36.3, resource: nvidia.com/gpu, count: 8}
"""

RETURN = r"""
evidence:
  description: The evidence, as it is written.
  returned: success
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.evidence import (
    cluster as cluster_evidence,
)
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "expects": {"type": "dict", "required": True},
            "evidence_dir": {"type": "str", "default": ""},
            "settle_seconds": {"type": "int", "default": 0},
            "lock_digest": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    collected = cluster_evidence.collect_settled(
        Host(), module.params["expects"], module.params["settle_seconds"]
    )
    module.exit_json(changed=False, collected=collected)


if __name__ == "__main__":
    main()
