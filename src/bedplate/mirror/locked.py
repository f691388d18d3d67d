"""A site's lock as verbs of `bedplate mirror` take it: planning is imported where it is asked."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from bedplate.common.errors import BedplateError
from bedplate.lock import load_lock

if TYPE_CHECKING:
    from pathlib import Path

    from bedplate.lock import Lock


def checked(site: Path) -> Lock:
    """Return a site's lock. Raises BedplateError if it is not up to date or cannot be compared."""
    from bedplate.resolver.plan import checked_lock

    return checked_lock(site)


def compared(site: Path, *, reads: bool = False) -> Lock:
    """Return a site's lock, compared with the settings as far as this machine can read them.

    A mirror's machine may lack the vault's password: that is warned of. So is a lock that is not up
    to date, for verbs that only compare what is there (`reads`).

    Raises:
        BedplateError: the lock is not up to date, or is missing.
    """
    try:
        return checked(site)
    except BedplateError as error:
        from bedplate.site.positions import UNLOCKS

        lock, problem = load_lock(site), error.problems[0]
        secret = all(one.fix == UNLOCKS for one in error.problems)
        if not (reads or secret):
            raise
        why = f"lock is not compared with the settings: {problem.place}: {problem.what}"
        print(f"warning: {why if secret else problem}", file=sys.stderr, flush=True)
        return lock
