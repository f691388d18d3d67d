#!/usr/bin/python
"""Bring the static pods of a control plane to another version of Kubernetes."""

from __future__ import annotations

DOCUMENTATION = r"""
module: control_plane_upgrade
short_description: Bring a control plane to another version of Kubernetes
description:
  - Has C(kubeadm upgrade) replace API server, controller manager, scheduler and etcd of this
    control plane. The kubelet stays as it is. The last control plane has CoreDNS and kube-proxy
    moved too.
  - Before the first control plane of a cluster is changed, etcd's data are saved to
    C(/var/lib/bedplate/etcd-before-upgrade.db), which root alone can read.
  - An older version is refused, and one that leaves out a minor version.
  - A host that is no control plane yet is left alone.
extends_documentation_fragment: [bedplate.gpu.common]
options:
  version:
    description: The version of Kubernetes, without a leading V(v).
    type: str
    required: true
  kubeadm:
    description: kubeadm of that version, which is not the one that is on the path yet.
    type: path
    required: true
  etcd_image_tag:
    description: The tag of etcd's image.
    type: str
    required: true
  dns_image_tag:
    description: The tag of CoreDNS' image.
    type: str
    required: true
  ignore_preflight:
    description: Checks of kubeadm that are not made.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    description: Says what would change, and refuses what cannot be done.
  diff_mode:
    description: Shows the version of each part that changes.
"""

EXAMPLES = r"""
- name: Upgrade the control plane
  bedplate.gpu.control_plane_upgrade:
    version: 1.36.3
    kubeadm: /opt/bedplate/kubernetes-node/1.36.3/kubeadm
    etcd_image_tag: 3.6.8-0
    dns_image_tag: v1.14.2
"""

RETURN = r"""
changes:
  description: Parts of the control plane, and of the cluster's, that were of another version.
  returned: success
  type: list
  elements: str
  sample: ["kube-apiserver: v1.35.6 -> v1.36.3"]
control_plane:
  description: Whether the host is a control plane.
  returned: success
  type: bool
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable import (
    cluster_node,
    control_plane_upgrade,
)
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.refusal import (
    ImpossibleError,
    refuse,
)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "version": {"type": "str", "required": True},
            "kubeadm": {"type": "path", "required": True},
            "etcd_image_tag": {"type": "str", "required": True},
            "dns_image_tag": {"type": "str", "required": True},
            "ignore_preflight": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    wish, host = module.params, Host()
    wanted = control_plane_upgrade.Wanted(
        version=wish["version"],
        etcd=wish["etcd_image_tag"],
        dns=wish["dns_image_tag"],
        kubeadm=wish["kubeadm"],
        ignored=wish["ignore_preflight"],
    )
    changes = []
    # While kubeadm replaces a manifest, it is not there.
    there = host.exists(cluster_node.ADMIN)
    try:
        if there:
            found = control_plane_upgrade.find(host, wanted)
            control_plane_upgrade.check(found, wanted)
            changes = control_plane_upgrade.lacks(found, wanted)
            if changes and not module.check_mode:
                control_plane_upgrade.upgrade(host, wanted, found)
    except ImpossibleError as error:
        refuse(module, "the control plane is not upgraded", error.got, error.allowed, error.fix)
    lines = [change.replace(" -> ", ": ").split(": ") for change in changes]
    module.exit_json(
        changed=bool(changes),
        changes=changes,
        control_plane=there,
        diff={
            "before": "".join(f"{name}: {old}\n" for name, old, _ in lines),
            "after": "".join(f"{name}: {new}\n" for name, _, new in lines),
        },
    )


if __name__ == "__main__":
    main()
