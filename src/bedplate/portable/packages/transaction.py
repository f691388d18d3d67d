"""What every package manager's transaction has in common: how it fails, and how it waits."""

import time
from typing import Callable, Tuple

from ..message import problem


class TransactionError(Exception):
    """A transaction that could not be made; what `message.problem` wants beside the host."""

    def __init__(self, what: str, got: str, allowed: str, fix: str) -> None:
        super().__init__(problem(what, "", got, allowed, fix))
        self.what, self.got, self.allowed, self.fix = what, got, allowed, fix

    @property
    def parts(self) -> Tuple[str, str, str, str]:
        """What, got, allowed and how to fix it."""
        return self.what, self.got, self.allowed, self.fix


def await_turn(busy: Callable[[], bool], seconds: float) -> None:
    """Wait until no other package manager works: one of a killed run may still be at it.

    dpkg and rpm themselves do not wait, unlike apt and dnf, and an unfinished state is no damage
    while it is made.
    """
    deadline = time.monotonic() + seconds
    while busy():
        if time.monotonic() > deadline:
            raise TransactionError(
                "another package manager is running",
                f"still at work after {seconds:.0f} s",
                "none, so that this one can work",
                "Wait for it, or end it, and run the play again.",
            )
        time.sleep(1)
