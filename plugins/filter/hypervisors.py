"""Guests for hypervisors of other kinds, and pools from guests that are there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible_collections.bedplate.gpu.plugins.plugin_utils.package import package
from ansible_collections.bedplate.gpu.plugins.plugin_utils.plain import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

DOCUMENTATION = r"""
name: hypervisors
short_description: Guests for vSphere and Proxmox VE, and pools from guests that are there
description:
  - C(vsphere_guest) and C(proxmox_guest) turn a guest, as C(bedplate_guests) has it, into the lines
    that the platform keeps of a virtual machine.
  - C(guest_pools) turns what M(bedplate.gpu.libvirt_domains) found on hypervisors into files of an
    inventory.
  - C(vgpu_profiles) says which shares of GPUs the lock gives to a host, as the guest that it is.
positional: _input
options:
  _input:
    description: A guest, for C(guest_pools) guests by hypervisor, for C(vgpu_profiles) the lock.
    type: dict
    required: true
  name:
    description: The guest's name, which is that of a host.
    type: str
  model:
    description: The model of its GPUs in the catalogue.
    type: str
  rdma:
    description: Whether its GPUs and network cards may reach each other directly.
    type: bool
    default: false
  page_size:
    description: The huge pages of its memory.
    type: str
    default: ""
  mapping:
    description: The cluster's resource mapping that its GPUs are of.
    type: str
    default: ""
  system:
    description: The operating system of the guests.
    type: str
  site:
    description: The site's directory, usually C(inventory_dir), whose facts of GPUs count too.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Show a guest's settings
  ansible.builtin.debug:
    msg: "{{ guest | bedplate.gpu.vsphere_guest('train01', 'a100-pcie-80gb') }}"
"""

RETURN = r"""
_value:
  description: Text, for C(guest_pools) texts by path, for C(vgpu_profiles) a list.
  type: raw
"""


def _catalogue(site: str) -> Any:
    """Return the catalogue with a site's facts. Raises AnsibleFilterError if they are wrong."""
    from ansible.errors import AnsibleFilterError

    try:
        # A list of hosts on the command line has no directory, and so no facts.
        return package("catalogue").catalogue_of(Path(site) if site else Path(os.devnull))
    except package("common.errors").BedplateError as error:
        raise AnsibleFilterError(str(error)) from None


def vsphere_guest(
    guest: Mapping[str, Any], name: str, model: str, rdma: bool = False, site: str = ""
) -> str:
    """Lines of a .vmx file."""
    from ansible.errors import AnsibleFilterError

    vsphere = package("evidence.hypervisors.vsphere")
    fact = _catalogue(site).gpu_models.get(model)
    memory = fact.value.memory_gib if fact else None
    if memory is None and guest.get("devices"):
        raise AnsibleFilterError(
            package("portable.message").problem(
                "how much memory the GPUs map is not known",
                f"guest {name}",
                model,
                "a model of the catalogue with memory_gib",
                "Add the model's fact.",
            )
        )
    return vsphere.render(name, guest, memory or 0, rdma=rdma)


def proxmox_guest(
    guest: Mapping[str, Any], name: str, page_size: str = "", mapping: str = ""
) -> str:
    """Lines of a virtual machine's configuration file."""
    from ansible.errors import AnsibleFilterError

    proxmox = package("evidence.hypervisors.proxmox")
    try:
        return proxmox.render(name, guest, page_size, mapping)
    except ValueError as error:
        raise AnsibleFilterError(str(error)) from None


def guest_pools(
    domains: Mapping[str, Sequence[Mapping[str, Any]]], system: str, site: str = ""
) -> dict[str, str]:
    """Files of an inventory by path."""
    catalogue = _catalogue(site)
    return package("evidence.hypervisors.pools").fragment(plain(domains), plain(system), catalogue)


def vgpu_profiles(lock: Mapping[str, Any], name: str) -> list[str]:
    """The profiles of a host's shares of cards; empty where it is no guest, or has whole cards."""
    # No two hypervisors have a guest of one name: the plan refuses that.
    guests = (host.get("guests") or {} for host in lock["hosts"].values())
    return [profile for mine in guests for profile in mine.get(name, {}).get("vgpu") or []]


class FilterModule:
    """The collection's filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "vsphere_guest": vsphere_guest,
            "proxmox_guest": proxmox_guest,
            "guest_pools": guest_pools,
            "vgpu_profiles": vgpu_profiles,
        }
