#!/usr/bin/python
"""Take a node of the cluster out of service, give it back, or wait until it can carry workload."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_node
short_description: Drain a node, uncordon it, or wait until it is ready
description:
  - Runs kubectl on a control plane host.
  - A node that it closes carries an annotation with the reason. Only such a node is opened again,
    so that one which the user cordoned stays so.
  - A name that the cluster does not know is refused where workload would be disturbed, and
    otherwise left alone.
extends_documentation_fragment: [bedplate.gpu.common]
options:
  name:
    description: The node's name.
    type: str
    required: true
  state:
    description:
      - V(drained) keeps new pods away and evicts those that are there.
      - V(closed) only keeps new pods away.
      - V(open) lets pods in again.
      - V(ready) waits until the node is Ready and offers what it is to offer.
    type: str
    choices: [drained, closed, open, ready]
    required: true
  reason:
    description: Why the node is out of service, for people who find it so.
    type: str
    default: taken out of service by bedplate.gpu.upgrade
  kubelet_version:
    description:
      - The version that the kubelet has, or is to get. With O(state=ready) the node has to report
        it. With O(state=drained) the node stays as it is while an API server is older.
    type: str
    default: ""
  steady:
    description: Seconds for which a ready node has to stay so, and the API has to answer. Some 40
      where the kubelet of a control plane has got another minor version, which starts its API
      server again.
    type: int
    default: 0
  expects:
    description: Number by resource that a ready node offers.
    type: dict
    default: {}
  timeout:
    description: Seconds for the eviction, or until the node is ready.
    type: int
    default: 600
  delete_emptydir_data:
    description:
      - Whether pods may go that lose data in an emptyDir volume with it.
      - Where all such pods are the cluster's own (kube-system, Kueue, JobSet, Volcano,
        C(bedplate-*)), they go in any case.
    type: bool
    default: false
  delete_bare_pods:
    description: Whether pods may go that nothing makes again elsewhere.
    type: bool
    default: false
attributes:
  check_mode:
    description: Says what would change, by what the API says now. It does not wait.
  diff_mode:
    description: Shows whether the node takes pods, before and after.
"""

EXAMPLES = r"""
- name: Take the node out of service
  bedplate.gpu.cluster_node:
    name: "{{ inventory_hostname }}"
    state: drained
  delegate_to: "{{ groups['control_plane'] | first }}"
"""

RETURN = r"""
known:
  description: Whether the cluster has a node of that name.
  returned: success
  type: bool
"""

from typing import TYPE_CHECKING

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable import cluster_node
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.message import problem

if TYPE_CHECKING:
    from typing import Any


def refuse(module: AnsibleModule, what: str, got: str, allowed: str, fix: str) -> None:
    module.fail_json(msg=problem(what, module.params["name"], got, allowed, fix))


def drained(module: AnsibleModule, host: Host, node: cluster_node.Node) -> bool:
    """Close the node and empty it; whether it was open before."""
    wish = module.params
    if module.check_mode:
        return not node.closed
    if wish["state"] == "drained" and wish["kubelet_version"]:
        behind = cluster_node.behind(host, wish["kubelet_version"])
        if behind:
            refuse(
                module,
                "the node is not drained for a kubelet that is newer than an API server",
                ", ".join(behind),
                f"{wish['kubelet_version']} on all control planes",
                "Run bedplate.gpu.upgrade for the control planes first: without --limit, or with"
                " all of them in it.",
            )
    cluster_node.close(host, wish["name"], node, wish["reason"])
    if wish["state"] == "closed":
        return not node.closed
    flags = [cluster_node.EMPTYDIR] if wish["delete_emptydir_data"] else []
    flags += ["--force"] if wish["delete_bare_pods"] else []
    stays = cluster_node.drain(host, wish["name"], wish["timeout"], flags)
    if stays is not None:
        refuse(
            module,
            "the node cannot be drained",
            stays,
            f"every pod is evicted within {wish['timeout']} s",
            "Move those pods, or allow what kubectl asks for, and run the play again;"
            " until then the node takes no new pods.",
        )
    return not node.closed


def main() -> None:
    spec: dict[str, Any] = {
        "name": {"type": "str", "required": True},
        "state": {
            "type": "str",
            "choices": ["drained", "closed", "open", "ready"],
            "required": True,
        },
        "reason": {"type": "str", "default": "taken out of service by bedplate.gpu.upgrade"},
        "kubelet_version": {"type": "str", "default": ""},
        "steady": {"type": "int", "default": 0},
        "expects": {"type": "dict", "default": {}},
        "timeout": {"type": "int", "default": 600},
        "delete_emptydir_data": {"type": "bool", "default": False},
        "delete_bare_pods": {"type": "bool", "default": False},
    }
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    wish, host = module.params, Host()
    name, state = wish["name"], wish["state"]
    changed = False
    node = None
    lacks = []
    # Before it is asked anything: while an API server starts again there is no answer.
    if state == "ready" and not module.check_mode:
        lacks = cluster_node.await_ready(
            host,
            name,
            wish["expects"],
            wish["timeout"],
            kubelet=wish["kubelet_version"],
            steady=wish["steady"],
        )
    try:
        node = cluster_node.find(host, name)
        if node is None and state in ("drained", "ready"):
            refuse(
                module,
                "the cluster does not know the node",
                "no node of that name",
                "the name of a cluster node",
                "Name the host in the inventory as its node is called, and run the play again.",
            )
        if node is not None and state in ("drained", "closed"):
            changed = drained(module, host, node)
        elif node is not None and state == "open":
            changed = node.reason is not None
            if not module.check_mode:
                cluster_node.reopen(host, name, node)
    except cluster_node.UnansweredError as error:
        refuse(
            module,
            "the cluster cannot be asked about the node",
            str(error),
            "an answer of the API",
            "See whether the control plane is up, and run the play again.",
        )
    if lacks:
        refuse(
            module,
            "the node does not come back",
            "; ".join(lacks),
            f"Ready with all it is to offer within {wish['timeout']} s",
            f"See 'kubectl describe node {name}' and the device plugin's log.",
        )
    before = "closed" if node is not None and node.closed else "open"
    after = {"open": "open", "ready": before}.get(state, "closed") if changed else before
    module.exit_json(
        changed=changed,
        known=node is not None,
        diff={"before": f"{name}: {before}\n", "after": f"{name}: {after}\n"},
    )


if __name__ == "__main__":
    main()
