"""How a pool's GPUs are shared, in one line: the words that plan, report and pages use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bedplate.lock.offers import offers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bedplate.lock.model import Pool


def sharing_line(pool: Pool, hosts: int) -> str:
    """Return `time-slicing, 40 shares of t4-16gb, memory counted, compute counted`.

    *hosts* is how many the pool has: everything is counted for all of them. Empty for a pool
    that has no GPUs of its own to share.
    """
    if not pool.gpu or pool.expects is None:
        return ""
    sharing, models = pool.sharing, " and ".join(dict.fromkeys(gpu.model for gpu in pool.gpu))
    counts = {name: number * hosts for name, number in offers(pool).items()}
    if sharing.layout:
        devices = [
            f"{number} of {name.rpartition('/mig-')[2]}"
            if "/mig-" in name
            else f"{number} whole {_plural('GPU', number)}"
            for name, number in counts.items()
        ]
        what = f"{', '.join(devices)} on {models}"
    else:
        total = sum(counts.values())
        unit = {"none": "GPU", "mig": f"instance of {sharing.profile}"}.get(sharing.mode, "share")
        whole = "whole " * (sharing.mode == "none")
        what = f"{total} {whole}{_plural(unit, total)} of {models}"
        if sharing.mode == "dra":
            size = f", {sharing.share_memory} where a claim names none" * bool(sharing.share_memory)
            what = f"shares of any size of {total} {models}{size}"
    words = [("memory", sharing.memory), ("compute", sharing.compute)]
    told = [f"{kind} {word}" for kind, word in words if word is not None]
    return ", ".join([sharing.mode, what, *told])


def layout_text(layout: Sequence[Mapping[str, Any]]) -> str:
    """Return a lock's layout in words: `GPU 0, 1: 7 of 1g.10gb; GPU 3: whole`."""
    told = []
    for one in layout:
        cut = ", ".join(f"{count} of {name}" for name, count in one.get("profiles", {}).items())
        told.append(f"GPU {', '.join(map(str, one['cards']))}: {cut or 'whole'}")
    return "; ".join(told)


def _plural(unit: str, count: int) -> str:
    first, *rest = unit.split(" ")
    return " ".join([first + "s" * (count != 1), *rest])
