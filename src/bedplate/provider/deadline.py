"""The time that one operation of the engine may take."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Coroutine


@dataclass(frozen=True)
class Deadline:
    """Ends `seconds` after it was made; `what` names the operation for messages."""

    what: str
    seconds: float
    started: float = field(default_factory=time.monotonic)

    def left(self) -> float:
        """Return the seconds that are left, never less than a tenth."""
        return max(0.1, self.started + self.seconds - time.monotonic())

    def over(self) -> bool:
        """Say whether the time is up."""
        return time.monotonic() >= self.started + self.seconds


async def to_the_end(work: Coroutine[None, None, None]) -> None:
    """Carry out what nobody would do later: a cancellation meanwhile is dropped.

    The caller ends afterwards, with what has brought it here.
    """
    task = asyncio.ensure_future(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait({task})
    task.result()
