"""The time that one operation of the engine may take."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


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
