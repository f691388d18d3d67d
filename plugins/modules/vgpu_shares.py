#!/usr/bin/python
"""Shares of a hypervisor's cards by NVIDIA vGPU, made for the guests that wish for them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vgpu_shares
short_description: Make shares of GPUs for guests, now and at every boot
description:
  - Gives GPUs their virtual functions by the vGPU manager's own program, places each guest's
    shares on GPUs and functions that offer the profile, and makes them, as mediated devices or by
    the type of a virtual function, whichever the manager shows.
  - Keeps a share where it is as long as its guest asks for it, and takes those away that no guest
    requests. One that a running guest has is left, and the module fails.
  - Records them for a unit that makes them again at boot, before libvirt starts guests.
extends_documentation_fragment: [bedplate.gpu.common]
options:
  host:
    description: The host's name in messages, and in the identities of mediated devices.
    type: str
    required: true
  cards:
    description:
      - Addresses of the GPUs that are shared. With none, shares, virtual functions and unit go.
    type: list
    elements: str
    required: true
  guests:
    description: Guests by name, with C(vgpu), the profiles of their shares, where they have some.
    type: dict
    required: true
  connection:
    description: Where libvirt is, which is asked what runs with a share before that is taken away.
    type: str
    default: qemu:///system
attributes:
  check_mode:
    description: Says what would change. Nothing is placed before the manager offers profiles.
  diff_mode:
    description: Shows files, GPUs and shares before and after.
"""

EXAMPLES = r"""
- name: Give each of two guests a quarter of a GPU
  bedplate.gpu.vgpu_shares:
    host: "{{ inventory_hostname }}"
    cards: ["0000:41:00.0"]
    guests:
      desk01: {vgpu: [nvidia_l40s-12q]}
      desk02: {vgpu: [nvidia_l40s-12q]}
"""

RETURN = r"""
shares:
  description: The shares that are recorded, with the function that each is on.
  returned: success
  type: list
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.passthrough import vgpu_apply


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "required": True},
            "cards": {"type": "list", "elements": "str", "required": True},
            "guests": {"type": "dict", "required": True},
            "connection": {"type": "str", "default": "qemu:///system"},
        },
        supports_check_mode=True,
    )
    wish = module.params
    work = vgpu_apply.Work(
        Host(), wish["cards"], wish["host"], module.check_mode, wish["connection"]
    )
    outcome = work.run(wish["guests"])
    result = {
        "changed": bool(outcome.diff),
        "diff": outcome.diff,
        "shares": [share._asdict() for share in outcome.shares],
    }
    if outcome.problems:
        module.fail_json(msg="\n".join(outcome.problems), **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
