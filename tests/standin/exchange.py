"""One transaction of dnf on a stand-in system, as module dnf_packages makes it.

    python -m tests.standin.exchange FOLDER rocky-9 595.91.07 open

A process of its own, so that a test can kill it with all that it has started.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bedplate.portable.packages import dnf, rpm
from bedplate.portable.packages.dnf import Change, Wish
from bedplate.portable.packages.transaction import await_turn
from tests.substrate.standin.packages import pins
from tests.substrate.standin.system import host

if TYPE_CHECKING:
    from bedplate.portable.host import Host

WORK = "/tmp/transaction"
#: How long what is left of a killed transaction may still be at work, in seconds.
PATIENCE_S = 60


def exchange(on: Host, wish: Wish) -> tuple[bool, Change]:
    """Repair, change and lock; whether anything was repaired, and what was changed."""
    await_turn(lambda: rpm.busy(on), PATIENCE_S)
    repaired = dnf.repair(on)
    done = dnf.carry_out(on, wish, WORK)
    if dnf.unlocked(on, wish.packages):
        dnf.lock(on, wish)
    return repaired, done


if __name__ == "__main__":
    folder, system, version, flavour = sys.argv[1:]
    exchange(host(Path(folder)), Wish(pins(system, version, flavour)))
