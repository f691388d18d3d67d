"""How far a run is: what is done, what is left and at what rate, for people who wait."""

from __future__ import annotations

import os
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bedplate.common import terminal
from bedplate.common.harmless import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from concurrent.futures import Future
    from typing import Self

    from rich.progress import Progress as Bar

#: How often what runs is shown while threads are waited for, in seconds.
LOOK = 0.25
#: Where no terminal is, a line is added so often, in seconds.
LOG_SECONDS = 15.0
MINUTE, HOUR = 60, 3600


@dataclass
class Progress:
    """Counts of all threads of a run.

    Attributes:
        total: bytes, or things of *unit*, that are to be there in the end.
        done: how much is there.
        fetched: how much came in this run.
        unit: what has happened to what is counted; empty where bytes are.
        now: what is being done.
    """

    total: int = 0
    done: int = 0
    fetched: int = 0
    unit: str = ""
    now: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _started: float = field(default_factory=time.monotonic)
    _shown: float = field(default_factory=time.monotonic)
    _bar: Bar | None = None

    def add(self, size: int, *, fetched: bool) -> None:
        """Count what came, or what was there."""
        with self._lock:
            self.done += size
            self.fetched += size if fetched else 0

    def show(self) -> None:
        """Write how far the run is to standard error: a bar, or a line when it is time for one."""
        if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
            if self._bar is None:
                self._bar = _bar(self.unit)  # known before it starts: an interrupt has to end it
                self._bar.start()
            what = printable(self.now)
            self._bar.update(
                self._bar.task_ids[0], total=self.total, completed=self.done, what=what
            )
        elif (now := time.monotonic()) - self._shown >= LOG_SECONDS:
            self._shown = now
            print(self.line(now), file=sys.stderr, flush=True)

    def waited[T](self, asked: Iterable[Future[T]]) -> Iterator[Future[T]]:
        """Yield what threads do as it ends, and show how far the run is meanwhile."""
        from concurrent.futures import FIRST_COMPLETED, wait

        left = set(asked)
        while left:
            done, left = wait(left, LOOK, FIRST_COMPLETED)
            yield from done
            self.show()

    def __enter__(self) -> Self:
        """Return itself: nothing is shown yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove a terminal's bar, and give the terminal its cursor back."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def line(self, now: float) -> str:
        """Return how far the run is: how much of all, its mean rate, time left, what it does."""
        with self._lock:
            rate = self.fetched / max(now - self._started, 0.001)
            left = self.total - self.done
        if self.unit:
            text = f"{self.done} of {self.total} {self.unit}"
        else:
            text = f"{sized(self.done)} of {sized(self.total)}, {sized(rate)}/s"
        text += f", {lasting(left / rate)} left" if rate > 0 else ""
        return f"{text}: {self.now}" if self.now else text


def _bar(unit: str) -> Bar:
    """Return a bar that counts what *unit* names, bytes where that is empty."""
    from rich import progress

    counted = (
        (progress.MofNCompleteColumn(), progress.TextColumn(unit))
        if unit
        else (progress.DownloadColumn(), progress.TransferSpeedColumn())
    )
    bar = progress.Progress(
        progress.BarColumn(),
        *counted,
        progress.TimeRemainingColumn(compact=True),
        progress.TextColumn("{task.fields[what]}", markup=False),
        console=terminal.console(error=True),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    bar.add_task("", what="")
    return bar


def sized(size: float) -> str:
    """Return bytes as people read them."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"


def lasting(seconds: float) -> str:
    """Return a time as people read it."""
    whole = round(seconds)
    if whole >= HOUR:
        return f"{whole // HOUR} h {whole % HOUR // MINUTE} min"
    return f"{whole // MINUTE} min {whole % MINUTE} s" if whole >= MINUTE else f"{whole} s"
