#!/usr/bin/python
# Copyright the Bedplate authors
# SPDX-License-Identifier: Apache-2.0

"""Ansible module: images in the node's container runtime, by digest."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pulled_images
short_description: Have images in the node's container runtime, by digest
description:
  - Pulls what the runtime lacks by C(crictl), as kubelet would, by digest.
  - An image that is known by its digest then gets its tag in containerd, so that one who asks for
    the tag alone, as kubeadm does, gets these bytes and no others.
extends_documentation_fragment: [bedplate.gpu.common]
options:
  images:
    description:
      - The digest (C(sha256:…)) of each image by its name with a tag. Without a digest the tag is
        pulled.
    type: dict
    required: true
  hold_if_exists:
    description: Do nothing where this file exists, such as kubelet's configuration of a node.
    type: path
attributes:
  check_mode:
    description: Reports what would be pulled.
  diff_mode:
    description: There is nothing to show.
    support: none
"""

EXAMPLES = r"""
- name: Pull what kubeadm starts, by digest
  bedplate.gpu.pulled_images:
    images:
      registry.k8s.io/pause:3.10.2: sha256:00000000000000000000000000000000000000000000000000000000
    hold_if_exists: /etc/kubernetes/kubelet.conf
"""

RETURN = r"""
pulled:
  description: The images that were pulled, or would be in check mode.
  returned: success
  type: list
  elements: str
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.runtime.images import (
    ImageError,
    ensure_images,
)


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "images": {"type": "dict", "required": True},
            "hold_if_exists": {"type": "path"},
        },
        supports_check_mode=True,
    )
    hold = module.params["hold_if_exists"]
    if hold and Path(hold).exists():
        module.exit_json(changed=False, pulled=[])
    try:
        pulled = ensure_images(Host(), module.params["images"], check=module.check_mode)
    except ImageError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=bool(pulled), pulled=pulled)


if __name__ == "__main__":
    main()
