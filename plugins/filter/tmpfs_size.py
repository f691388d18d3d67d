"""Whether a tmpfs that is mounted has another size than wished."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

DOCUMENTATION = r"""
name: tmpfs_size
short_description: Whether a tmpfs that is mounted has another size than requested
description:
  - Compares with what the host has mounted, so that it does not matter which run wrote the setting
    down, and whether that run came to its end.
positional: _input, mountpoint, size, meminfo
options:
  _input:
    description: The text of C(/proc/mounts).
    type: str
    required: true
  mountpoint:
    description: Where the tmpfs is mounted.
    type: str
    required: true
  size:
    description: The requested size, as tmpfs takes it.
    type: str
    required: true
  meminfo:
    description: The text of C(/proc/meminfo). A size may be a part of the memory.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Show whether the tmpfs is to be mounted with another size
  ansible.builtin.debug:
    msg: "{{ found.mounts | bedplate.gpu.tmpfs_size('/run/shared', '64m', found.meminfo) }}"
"""

RETURN = r"""
_value:
  description: True where a tmpfs of another size is mounted; false also where none is.
  type: bool
"""

#: The kernel counts a tmpfs in pages; a host is x86_64.
PAGE_KIB = 4
SIZE = re.compile(r"(0x[0-9a-f]+|[0-9]+)([kmgtpe]?)(%?)", re.IGNORECASE)
UNITS = "kmgtpe"


def wished_kib(size: str, memory_kib: int) -> int | None:
    """What the kernel makes of option ``size`` of tmpfs(5), in KiB; None of what it refuses."""
    found = SIZE.fullmatch(size.strip())
    if found is None:
        return None
    number, unit, percent = found.groups()
    # A leading zero makes it octal, as in C.
    base = 16 if number[:2].lower() == "0x" else 8 if number.startswith("0") else 10
    try:
        count = int(number, base)
    except ValueError:
        return None
    count *= 1024 ** (UNITS.index(unit.lower()) + 1) if unit else 1
    if percent:
        count = count * memory_kib * 1024 // 100
    return -(-count // (PAGE_KIB * 1024)) * PAGE_KIB


def mounted_kib(mounts: str, mountpoint: str, memory_kib: int) -> int | None:
    """The size in KiB of the tmpfs that is mounted there; None where none is."""
    found = None
    for line in mounts.splitlines():
        fields = line.split()
        if fields[1:3] != [mountpoint, "tmpfs"]:
            continue
        options = dict(option.partition("=")[::2] for option in fields[3].split(","))
        # The kernel does not name the size that it gives by itself: half of the memory.
        default = memory_kib // PAGE_KIB // 2 * PAGE_KIB
        # Of several, one over the other, the last is seen.
        found = int(options["size"].rstrip("k")) if "size" in options else default
    return found


def tmpfs_size(mounts: str, mountpoint: str, size: str, meminfo: str) -> bool:
    """Whether what is mounted has another size than wished; also where the wish is no size."""
    memory = re.search(r"^MemTotal:\s+(\d+) kB$", meminfo, re.MULTILINE)
    memory_kib = int(memory.group(1)) if memory else 0
    mounted = mounted_kib(mounts, mountpoint, memory_kib)
    return mounted is not None and mounted != wished_kib(str(size), memory_kib)


class FilterModule:
    """The collection's filters of this file."""

    def filters(self) -> dict[str, Callable[..., bool]]:
        return {"tmpfs_size": tmpfs_size}
