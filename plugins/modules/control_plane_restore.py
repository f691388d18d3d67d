#!/usr/bin/python
"""Make a host the first control plane of the cluster that a backup is of."""

from __future__ import annotations

DOCUMENTATION = r"""
module: control_plane_restore
short_description: Make a control plane of a backup
description:
  - Puts the authorities and etcd's data of a backup in place on a host without a cluster, and has
    kubeadm make a control plane on them. All other certificates are new.
  - A host that is a member of a cluster is refused, and so is another cluster's backup, or one of
    another version of Kubernetes.
  - A run that was cut off is begun again, or completed where the API server answers already.
extends_documentation_fragment: [bedplate.gpu.common]
options:
  archive:
    description: The decrypted backup on the host.
    type: path
    required: true
  name:
    description: The host's node.
    type: str
    required: true
  endpoint:
    description: The cluster's, as C(HOST:PORT). Another cluster's backup is refused.
    type: str
    required: true
  cri_socket:
    description: Where its container runtime listens, as C(unix:///run/containerd/containerd.sock).
    type: str
    required: true
  others:
    description: Nodes of the other control planes. They are removed from the cluster; kubeadm lets
      no host join under the name of a node that is ready, as they are in the backup.
    type: list
    elements: str
    default: []
  ignore_preflight:
    description: Checks of kubeadm that are not made.
    type: list
    elements: str
    default: []
  timeout:
    description: Seconds for the API server to be ready.
    type: int
    default: 300
attributes:
  check_mode:
    description: Says only that it would be restored.
  diff_mode:
    description: There is no text to show.
    support: none
"""

EXAMPLES = r"""
- name: Restore the cluster
  bedplate.gpu.control_plane_restore:
    archive: /root/backup.tar.gz
    name: cp1
    endpoint: k8s.example:6443
    cri_socket: unix:///run/containerd/containerd.sock
"""

RETURN = r"""
about:
  description: What the backup says of itself. Empty in check mode.
  returned: success
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable import backup, certificates
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.refusal import (
    ImpossibleError,
    refuse,
)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "archive": {"type": "path", "required": True},
            "name": {"type": "str", "required": True},
            "endpoint": {"type": "str", "required": True},
            "cri_socket": {"type": "str", "required": True},
            "others": {"type": "list", "elements": "str", "default": []},
            "ignore_preflight": {"type": "list", "elements": "str", "default": []},
            "timeout": {"type": "int", "default": 300},
        },
        supports_check_mode=True,
    )
    if module.check_mode:
        module.exit_json(changed=True, about={})
    asked = module.params
    host = Host()
    try:
        fields = ("archive", "name", "endpoint", "cri_socket", "ignore_preflight")
        said = backup.restore(host, backup.Wanted(*(asked[one] for one in fields)))
        if not certificates.await_answer(host, asked["timeout"]):
            refuse(
                module,
                "the restored API server is not ready",
                f"no 'ok' at /readyz, or a static pod is down, after {asked['timeout']} s",
                "an API server that is ready, and all static pods",
                "See 'crictl ps --all' and 'journalctl -u kubelet' there.",
            )
        backup.finish(host, asked["name"], said, asked["others"])
    except ImpossibleError as error:
        refuse(module, "the cluster was not restored", error.got, error.allowed, error.fix)
    module.exit_json(changed=True, about=said)


if __name__ == "__main__":
    main()
