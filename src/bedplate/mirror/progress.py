"""How far a run is: bytes, rate and the time that is left, for people who wait."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from dataclasses import dataclass, field

#: The rate is that of the last seconds.
WINDOW = 20.0
#: A terminal's line is written again so often; elsewhere a line is added.
TERMINAL_SECONDS, LOG_SECONDS = 0.5, 15.0
MINUTE, HOUR = 60, 3600


@dataclass
class Progress:
    """Counts of all threads of a run.

    Attributes:
        total: bytes that are to be there in the end.
        done: bytes that are there.
        fetched: bytes that came in this run.
    """

    total: int = 0
    done: int = 0
    fetched: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _started: float = field(default_factory=time.monotonic)
    _seen: deque[tuple[float, int]] = field(default_factory=deque)
    _shown: float = field(default_factory=time.monotonic)
    _width: int = 0

    def add(self, size: int, *, fetched: bool) -> None:
        """Count bytes that came, or that were there."""
        with self._lock:
            self.done += size
            self.fetched += size if fetched else 0

    def show(self) -> None:
        """Write how far the run is to the standard error, when it is time to."""
        now = time.monotonic()
        terminal = sys.stderr.isatty()
        if now - self._shown < (TERMINAL_SECONDS if terminal else LOG_SECONDS):
            return
        self._shown = now
        text = self.line(now)
        if terminal:
            sys.stderr.write(f"\r{text:<{self._width}}")
            self._width = len(text)
        else:
            sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    def end(self) -> None:
        """Remove a terminal's line."""
        if self._width:
            sys.stderr.write(f"\r{'':<{self._width}}\r")
            self._width = 0

    def line(self, now: float) -> str:
        """Return how far the run is: bytes of all, rate, time left."""
        with self._lock:
            self._seen.append((now, self.fetched))
            while now - self._seen[0][0] > WINDOW:
                self._seen.popleft()
            since, before = self._seen[0] if len(self._seen) > 1 else (self._started, 0)
            rate = (self.fetched - before) / max(now - since, 0.001)
            left = self.total - self.done
        text = f"{sized(self.done)} of {sized(self.total)}, {sized(rate)}/s"
        return f"{text}, {lasting(left / rate)} left" if rate > 0 else text


def sized(size: float) -> str:
    """Return bytes as people read them."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"


def lasting(seconds: float) -> str:
    """Return a time as people read it."""
    whole = round(seconds)
    if whole >= HOUR:
        return f"{whole // HOUR} h {whole % HOUR // MINUTE} min"
    return f"{whole // MINUTE} min {whole % MINUTE} s" if whole >= MINUTE else f"{whole} s"
