"""A guest for VMware vSphere: the advanced settings of a virtual machine, as a .vmx file has them.

Which physical card it gets cannot be written here: vSphere knows cards by the host's own identity.
They are added in vSphere ("PCI device", DirectPath I/O); shares of cards are named by profile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bedplate.evidence.hypervisors.cards import address_space_gb, slots

if TYPE_CHECKING:
    from collections.abc import Mapping

MIB_PER_GIB = 1024


def settings(
    name: str, guest: Mapping[str, Any], memory_gib: int, *, rdma: bool = False
) -> dict[str, str]:
    """Return the settings of a guest; `memory_gib` is the memory of one card.

    With `rdma` its cards and network cards may reach each other directly.
    """
    memory = str(guest["memory_gib"] * MIB_PER_GIB)
    found = {
        "displayName": name,
        "firmware": "efi",
        "numvcpus": str(guest["cpus"]),
        "memSize": memory,
        # Devices reach the guest's memory by themselves: none of it may be swapped or moved.
        "sched.mem.min": memory,
        "sched.mem.pin": "TRUE",
    }
    cards = slots(guest)
    if cards:
        found["pciPassthru.use64bitMMIO"] = "TRUE"
        space = address_space_gb(len(cards), memory_gib)
        found["pciPassthru.64bitMMIOSizeGB"] = str(space)
    if cards and rdma:
        found["pciPassthru.allowP2P"] = "TRUE"
        found["pciPassthru.RelaxACSforP2P"] = "TRUE"
    for number, profile in enumerate(guest.get("vgpu") or ()):
        found[f"pciPassthru{number}.present"] = "TRUE"
        found[f"pciPassthru{number}.virtualDev"] = "vmiop"
        found[f"pciPassthru{number}.vgpu"] = profile
    return found


def render(name: str, guest: Mapping[str, Any], memory_gib: int, *, rdma: bool = False) -> str:
    """Return a guest's settings as lines of a .vmx file."""
    found = settings(name, guest, memory_gib, rdma=rdma)
    return "".join(f'{key} = "{value}"\n' for key, value in found.items())
