"""A guest's cards, as every platform counts them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def slots(guest: Mapping[str, Any]) -> list[str]:
    """Return the cards of a guest, each an address without its function, sorted."""
    return sorted({str(device).rpartition(".")[0] for device in guest.get("devices") or ()})


def address_space_gb(cards: int, memory_gib: int) -> int:
    """Return the address space for cards of a memory size, in GB: a power of two.

    Large cards map all of their memory. The next power of two above twice their sum has room for
    ranges that are aligned to their size, and is not below any figure that the makers give.
    """
    return 1 << (2 * cards * memory_gib).bit_length()
