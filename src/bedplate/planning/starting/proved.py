"""What of a new site the tests of this project have installed on real hosts, and what not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bedplate.resolver.installable import described
from bedplate.resolver.locking import not_run

if TYPE_CHECKING:
    from bedplate.catalogue import Catalogue
    from bedplate.planning.starting.start import Start

#: What a new site decides, by the catalogue's dimension: the option or setting that changes it.
CHOSEN = {"os": "--os", "sources": "bedplate_sources.mode:"}


def lines(start: Start, catalogue: Catalogue) -> list[str]:
    """Return for what of a site the user would be the first, and what tests have installed.

    It is what `bedplate plan` reports of the same choices, from the same facts.
    """
    decided = [("os", start.system), ("sources", start.sources)]
    for pool in start.pools:
        board = catalogue.gpu_models[pool.model].value if pool.model else None
        if board and board.fabric_from is not None and pool.count >= board.fabric_from:
            decided.append(("part", "nvidia_fabric"))
    new = not_run(decided, catalogue)
    if not new:
        return []
    first = ", ".join(described(one).removeprefix("os ") for one in new)
    changed = {one.partition(" ")[0] for one in new}
    ways = [
        f"{way} {' or '.join(catalogue.installable[dimension].value.values)}"
        for dimension, way in CHOSEN.items()
        if dimension in changed
    ]
    return [
        f"No test of this project has installed on real hosts: {first}. You would be the first.",
        *([f"Its tests have, with simulated GPUs: {'; '.join(ways)}."] if ways else []),
    ]
