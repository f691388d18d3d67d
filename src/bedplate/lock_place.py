"""Where a site's lock lies: for those who need no more of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

NAME = ".bedplate.lock.yml"


def lock_path(site: Path) -> Path:
    """Return where the lock of *site* is."""
    return site / NAME
