#!/usr/bin/python
"""A hypervisor's IOMMU, vfio-pci and huge pages, in one round trip."""

from __future__ import annotations

DOCUMENTATION = r"""
module: passthrough_host
short_description: Make PCI functions of a hypervisor ready to be given to guests
description:
  - Refuses functions that cannot be given away, with their whole IOMMU group named, before
    anything is changed.
  - Keeps the kernel's command line through GRUB's drop-in folder or grubby, vfio-pci in modprobe.d,
    modules-load.d and the initramfs, and a unit that binds by address before udev does.
  - Gives functions that no driver has to vfio-pci at once where the IOMMU is on. A driver that
    holds one is never disturbed, that waits for a reboot, and RV(reasons) says so.
extends_documentation_fragment: [bedplate.gpu.common, bedplate.gpu.common.host]
options:
  devices:
    description: Addresses of the functions.
    type: list
    elements: str
    required: true
  iommu_groups:
    description: The groups that they were in when the site was planned. Empty compares none.
    type: list
    elements: list
    default: []
  binding:
    description: V(auto) claims an identifier where all functions with it are given, V(address)
      none.
    type: str
    choices: [auto, address]
    default: auto
  page_size:
    description: The size of huge pages. Empty reserves none.
    type: str
    choices: ["", 2M, 1G]
    default: ""
  pages:
    description: How many of them.
    type: int
    default: 0
  guests:
    description: Guests by name, each with C(devices) or C(vgpu), and C(memory_gib). On a host with
      several NUMA nodes each node gets the huge pages of the guests that are placed on it.
    type: dict
    default: {}
  vgpu_cards:
    description: Addresses of the GPUs that guests' shares will be made of.
    type: list
    elements: str
    default: []
  boot_loader:
    description: V(none) leaves the command line to other tools.
    type: str
    choices: [auto, none]
    default: auto
  validate_only:
    description: Refuse or accept the functions, and change nothing.
    type: bool
    default: false
attributes:
  diff_mode:
    description: Shows files, steps and bindings before and after.
"""

EXAMPLES = r"""
- name: Keep one GPU with its audio function for guests
  bedplate.gpu.passthrough_host:
    host: "{{ inventory_hostname }}"
    devices: ["0000:17:00.0", "0000:17:00.1"]
    page_size: 1G
    pages: 64
    guests:
      vm1: {devices: ["0000:17:00.0", "0000:17:00.1"], memory_gib: 64}
"""

RETURN = r"""
reboot_required:
  description: Whether something waits for a reboot.
  returned: success
  type: bool
reasons:
  description: What waits, and why.
  returned: success
  type: list
  elements: str
ids:
  description: Identifiers that vfio-pci claims.
  returned: success
  type: list
  elements: str
functions:
  description: The functions with their group, NUMA node and 64-bit memory.
  returned: success
  type: list
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.passthrough import (
    apply as passthrough_apply,
)
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.passthrough import (
    functions as passthrough,
)
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.passthrough import (
    kernel as passthrough_kernel,
)
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.passthrough import (
    pages as passthrough_pages,
)


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "required": True},
            "devices": {"type": "list", "elements": "str", "required": True},
            "iommu_groups": {"type": "list", "elements": "list", "default": []},
            "binding": {"type": "str", "choices": ["auto", "address"], "default": "auto"},
            "page_size": {"type": "str", "choices": ["", "2M", "1G"], "default": ""},
            "pages": {"type": "int", "default": 0},
            "guests": {"type": "dict", "default": {}},
            "vgpu_cards": {"type": "list", "elements": "str", "default": []},
            "boot_loader": {"type": "str", "choices": ["auto", "none"], "default": "auto"},
            "validate_only": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    wish, host = module.params, Host()
    devices = [str(address).lower() for address in wish["devices"]]
    present = passthrough.functions(host)
    problems = passthrough.problems(present, devices, wish["iommu_groups"], wish["host"])
    if problems:
        module.fail_json(msg="\n".join(problems))
    binding = passthrough.binding(present, devices, wish["binding"])
    result = {
        "changed": False,
        "reboot_required": False,
        "reasons": [],
        "ids": binding.ids,
        "functions": [present[address]._asdict() for address in devices],
    }
    if wish["validate_only"]:
        module.exit_json(**result)
    guests = passthrough_pages.Guests(wish["guests"], wish["vgpu_cards"])
    places = passthrough_pages.places(host, wish["page_size"], wish["pages"], guests)
    kernel = passthrough_kernel.Wish(binding, wish["page_size"], wish["pages"], places)
    work = passthrough_apply.Work(host, kernel, wish["host"], module.check_mode)
    outcome = work.run(keep_boot_loader=wish["boot_loader"] == "none")
    result.update(
        changed=bool(outcome.diff),
        diff=outcome.diff,
        reasons=outcome.reasons,
        reboot_required=bool(outcome.reasons),
    )
    if outcome.problems:
        module.fail_json(msg="\n".join(outcome.problems), **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
