"""Huge pages for guests' memory: how many each NUMA node has, now and from every boot on.

A guest takes memory of the nodes that its devices are on, and does not start where pages are on
others. What the kernel's command line asks for is spread evenly over all nodes; nodes can be named
there from Linux 5.16 on, and older kernels take another number of such a line
(Documentation/admin-guide/kernel-parameters.txt). So the command line asks for the total on every
kernel, while memory is in one piece, and a unit of ours moves pages to where guests need them
before anything else has the memory.
"""

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ..host import Host
from ..kernel.settings import HEADER
from . import functions as passthrough
from . import kernel, libvirt_guests, vgpu

NODES = libvirt_guests.NODES
PLACES = "/etc/bedplate/huge-pages"
PLACER = "/usr/libexec/bedplate/huge-pages"
UNIT = "bedplate-huge-pages.service"
UNIT_FILE = "/etc/systemd/system/" + UNIT
#: KiB in a GiB, which sizes of pages are written in.
GIB = 2**20

SCRIPT = f"""#!/bin/sh
# Managed by Bedplate (role {kernel.ROLE}): changes here are lost.
# Gives each NUMA node the huge pages that are listed in {PLACES}: node, size in KiB, number.
# The kernel has spread them evenly.
set -u
status=0
while read -r node size pages; do
    case $node in ''|'#'*) continue ;; esac
    file={NODES}/node$node/hugepages/hugepages-${{size}}kB/nr_hugepages
    echo "$pages" > "$file" || status=1
    has=$(cat "$file") || has=0
    if [ "$has" -lt "$pages" ]; then
        echo "node $node has $has huge pages of $size KiB instead of $pages" >&2
        status=1
    fi
done < {PLACES}
exit $status
"""

SERVICE = f"""# Managed by Bedplate (role {kernel.ROLE}): changes here are lost.
[Unit]
Description=Place huge pages on the NUMA nodes of guests' devices
DefaultDependencies=no
ConditionPathExists={PLACES}
# While memory is free in one piece, and before an owner's own settings add to them.
Before=systemd-sysctl.service sysinit.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={PLACER}

[Install]
WantedBy=sysinit.target
"""


class Guests(NamedTuple):
    """Whose memory pages are for; ``cards`` are those that shares will be made of."""

    guests: Mapping[str, Mapping[str, Any]]
    cards: Sequence[str] = ()


def nodes(host: Host) -> List[int]:
    """The NUMA nodes that have memory; empty where the kernel knows of none."""
    return libvirt_guests.processors(host.read(f"{NODES}/has_memory") or "")


def _evenly(pages: int, over: Sequence[int]) -> Dict[int, int]:
    """The first ones get one more where it does not come out even, as the kernel does it."""
    each, more = divmod(pages, len(over))
    return {node: each + (number < more) for number, node in enumerate(over)}


def _needs(host: Host, page_size: str, of: Guests, known: Sequence[int]) -> Dict[int, int]:
    """Pages by node that all guests together need."""
    present, made = passthrough.functions(host), vgpu.of_guests(host)
    found = dict.fromkeys(known, 0)
    for name, wish in of.guests.items():
        shares = made.get(name, []) if wish.get("vgpu") else []
        placed = libvirt_guests.nodes(present, wish, shares)
        if wish.get("vgpu") and not shares:
            there = [card for card in (c.lower() for c in of.cards) if card in present]
            placed = passthrough.nodes(present, there)
        pages = int(wish["memory_gib"]) * GIB // kernel.PAGE_SIZES[page_size]
        # A guest whose firmware tells no node takes memory of any.
        for node, count in _evenly(pages, placed or known).items():
            found[node] = found.get(node, 0) + count
    return found


def places(host: Host, page_size: str, pages: int, of: Guests) -> kernel.Places:
    """How many pages each node is to have, ``pages`` in all; empty where there is one node.

    More than the guests need are spread evenly. Fewer, where not all guests run at a time, are
    shared out as the needs are.
    """
    known = nodes(host)
    if not page_size or not pages or not known or (len(known) < 2 and not host.exists(PLACES)):
        return ()
    found = _needs(host, page_size, of, known)
    needed = sum(found.values())
    if needed <= pages:
        for node, count in _evenly(pages - needed, known).items():
            found[node] += count
    else:
        exact = {node: count * pages for node, count in found.items()}
        found = {node: count // needed for node, count in exact.items()}
        by_rest = sorted(exact, key=lambda node: (-(exact[node] % needed), node))
        for node in by_rest[: pages - sum(found.values())]:
            found[node] += 1
    return tuple(sorted(found.items()))


def files(host: Host, wish: kernel.Wish) -> Dict[str, Tuple[str, int]]:
    """Files by path: text and mode. None where there is one node, and there was never another."""
    if not wish.places and not host.exists(PLACES):
        return {}
    lines = [f"{node} {kernel.PAGE_SIZES[wish.page_size]} {n}\n" for node, n in wish.places]
    return {
        PLACES: (HEADER.format(kernel.ROLE) + "".join(lines), 0o644),
        PLACER: (SCRIPT, 0o755),
        UNIT_FILE: (SERVICE, 0o644),
    }


def wished(wish: kernel.Wish) -> Dict[Optional[int], int]:
    """Pages by node; of the host, under None, where it has one."""
    by_node: Dict[Optional[int], int] = dict(wish.places)
    return by_node or {None: wish.pages}


def counted(host: Host, wish: kernel.Wish) -> Dict[Optional[int], Optional[int]]:
    """The same of the running kernel; None where it has not the size."""
    return {node: kernel.pages_now(host, wish.page_size, node) for node in wished(wish)}
