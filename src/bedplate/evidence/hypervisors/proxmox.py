"""A guest for Proxmox VE: lines of a virtual machine's configuration, as `qm set` takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bedplate.evidence.hypervisors.cards import slots

if TYPE_CHECKING:
    from collections.abc import Mapping

MIB_PER_GIB = 1024
#: Sizes of huge pages in MiB.
PAGES = {"2M": "2", "1G": "1024"}


def settings(
    name: str, guest: Mapping[str, Any], page_size: str = "", mapping: str = ""
) -> dict[str, str]:
    """Return a guest's options by name.

    A card is given whole, by its address; with `mapping` by the cluster's resource mapping of that
    name, which also finds it on another node. Raises ValueError for shares of cards: their names
    on a host are its driver's.
    """
    if guest.get("vgpu"):
        raise ValueError(f"guest {name}: vGPU profiles are written out for vSphere only")
    found = {
        "name": name,
        "machine": "q35",
        "bios": "ovmf",
        "cpu": "host",
        "cores": str(guest["cpus"]),
        "memory": str(guest["memory_gib"] * MIB_PER_GIB),
        "balloon": "0",
        "numa": "1",
    }
    if page_size:
        found["hugepages"] = PAGES[page_size]
    for number, slot in enumerate(slots(guest)):
        card = f"mapping={mapping}" if mapping else f"host={slot}"
        found[f"hostpci{number}"] = f"{card},pcie=1"
    return found


def render(name: str, guest: Mapping[str, Any], page_size: str = "", mapping: str = "") -> str:
    """Return a guest's options as lines of its configuration file."""
    found = settings(name, guest, page_size, mapping)
    return "".join(f"{key}: {value}\n" for key, value in found.items())
