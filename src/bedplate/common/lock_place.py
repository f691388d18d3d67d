"""Where a site's lock and bill lie: for those who need no more of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

NAME = ".bedplate.lock.yml"
#: Below a site, and no inventory: facts over those of the catalogue.
FACTS = "facts"
BILL = ".bedplate.bill.yml"
PACKAGES = ".bedplate.packages.yml"


def lock_path(site: Path) -> Path:
    """Return where the lock of *site* is."""
    return site / NAME
