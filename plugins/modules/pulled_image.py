#!/usr/bin/python
# Copyright the Bedplate authors
# SPDX-License-Identifier: Apache-2.0

"""Ansible module: an image in the node's container runtime."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pulled_image
short_description: Have an image in the node's container runtime
description:
  - Pulls an image by C(crictl), as kubelet would, if the runtime doesn't have it.
options:
  image:
    description: The image's name, with a tag or a digest.
    type: str
    required: true
author:
  - The Bedplate authors
attributes:
  check_mode:
    description: Says whether it would be pulled.
    support: full
  diff_mode:
    description: There is nothing to show.
    support: none
"""

EXAMPLES = r"""
- name: Pull the device plugin ahead of the join
  bedplate.gpu.pulled_image:
    image: nvcr.io/nvidia/k8s-device-plugin:v0.19.1
"""

RETURN = r"""
digests:
  description: The repository digests under which the runtime knows the image.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.runtime.images import (
    ImageError,
    ensure_image,
)


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={"image": {"type": "str", "required": True}}, supports_check_mode=True
    )
    try:
        outcome = ensure_image(Host(), module.params["image"], check=module.check_mode)
    except ImageError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=outcome.changed, digests=outcome.digests)


if __name__ == "__main__":
    main()
