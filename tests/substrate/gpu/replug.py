"""Change the cards of a running host: ``python -m tests.substrate.gpu.replug CONTAINER …``.

``--model M --count N`` puts other cards in (they count at once, a loaded driver sees them);
``--pull SLOT`` takes one out; ``--fault SLOT XID`` makes a card report an XID error.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from tests.substrate.gpu import SLOTS
from tests.substrate.gpu.models import SimulationError, minor_of, slots, without_slot

REFRESH = "/usr/lib/substrate/gpu/simulated-gpus"
FAULTS = "/run/substrate/gpu/faults"


def replug(container: str, text: str) -> None:
    """Give a running host the cards that a slots' text describes.

    Raises `SimulationError` when the container isn't a running host with the simulation.
    """
    _in(container, ["tee", f"/{SLOTS}"], text)
    _in(container, [REFRESH, "refresh"])


def plugged(container: str) -> str:
    """Return the slots' text of a host."""
    return _in(container, ["cat", f"/{SLOTS}"])


def fault(container: str, slot: int, xid: int) -> None:
    """Make the card in a slot report an XID error to whoever waits for events, until a reboot."""
    line = f"{minor_of(plugged(container), slot)} {xid}\n"
    _in(container, ["tee", "--append", FAULTS], line)
    _in(container, [REFRESH, "libraries"])


def _in(container: str, command: list[str], stdin: str = "") -> str:
    done = subprocess.run(
        ["podman", "exec", "--interactive", container, *command],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SimulationError(
            f"the host's cards can't be changed — {container} — "
            f"got {done.stderr.strip() or done.returncode} / "
            "allowed a running host made from an image with the simulation — "
            "see 'podman ps', and start it"
        )
    return done.stdout


def main(arguments: list[str]) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.substrate.gpu.replug")
    parser.add_argument("container")
    parser.add_argument("--model")
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--pull", type=int, metavar="SLOT")
    parser.add_argument("--fault", type=int, nargs=2, metavar=("SLOT", "XID"))
    wish = parser.parse_args(arguments)
    if (wish.model, wish.pull, wish.fault) == (None, None, None):
        parser.error("nothing to do: give --model, --pull or --fault")
    if wish.model:
        replug(wish.container, slots(wish.model, wish.count))
    if wish.pull is not None:
        replug(wish.container, without_slot(plugged(wish.container), wish.pull))
    if wish.fault:
        fault(wish.container, *wish.fault)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except SimulationError as error:
        sys.exit(str(error))
