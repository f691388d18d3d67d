"""Guests that are there, as pools of a site: the way back from hypervisors to the inventory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from bedplate.evidence.discovery.identify import gpu_wish, hardware

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bedplate.catalogue import Catalogue

HEADER = "# Written from the guests of {}: put it into the site, and run `bedplate plan`.\n"


def fragment(
    domains: Mapping[str, Sequence[Mapping[str, Any]]], system: str, catalogue: Catalogue
) -> dict[str, str]:
    """Return files of an inventory for guests, by path; none where no guest has a GPU.

    `domains` are the guests by hypervisor, as module libvirt_domains returns them. Guests that are
    alike form a pool. `system` is what runs in them: a hypervisor does not know.
    """
    pools: dict[str, tuple[Any, list[str]]] = {}
    for _, found in sorted(domains.items()):
        for domain in found:
            boards = hardware({"accelerators": domain["functions"]}, catalogue).boards
            if not boards:
                continue
            label = "_".join(sorted({board.label for board in boards}))
            safe = "".join(one if one.isalnum() else "_" for one in label)
            name = f"pool_guests_{safe}_x{len(boards)}"
            pools.setdefault(name, (gpu_wish(boards), []))[1].append(str(domain["name"]))
    if not pools:
        return {}
    header = HEADER.format(", ".join(sorted(domains)))
    children: dict[str, Any] = {
        pool: {"hosts": {guest: {} for guest in sorted(guests)}}
        for pool, (_, guests) in sorted(pools.items())
    }
    files = {"guests.yml": header + _yaml({"gpu_pools": {"children": children}})}
    for pool, (wish, _) in sorted(pools.items()):
        host = {"os": system, "kind": "passthrough"}
        files[f"group_vars/{pool}.yml"] = header + _yaml(
            {"bedplate_gpu": wish, "bedplate_host": host}
        )
    return files


def _yaml(content: Any) -> str:
    return str(yaml.safe_dump(content, sort_keys=False, default_flow_style=False))
