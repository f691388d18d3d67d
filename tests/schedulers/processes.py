"""Programs that a test starts, and that end with it whatever happens to the test."""

from __future__ import annotations

import ctypes
import signal
import socket
import subprocess
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)


def free_port() -> int:
    """Return a port of loopback that nobody listens on now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _ends_with_parent() -> None:
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Process:
    """A program with its output in a file; it is killed when the test process ends."""

    def __init__(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.command, self.log = list(command), log
        self._environment = dict(environment) if environment else None
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; its output is appended to the log."""
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._environment,
                preexec_fn=_ends_with_parent,
            )

    @property
    def running(self) -> bool:
        """Tell whether it runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Return its process ID."""
        assert self._process is not None
        return self._process.pid

    def stop(self, how: signal.Signals = signal.SIGTERM, patience: float = 10) -> None:
        """Send the signal and wait; after `patience` seconds it is killed."""
        if self._process is None:
            return
        if self.running:
            self._process.send_signal(how)
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def kill(self) -> None:
        """Kill it as a crash would, without any chance to tidy up."""
        self.stop(signal.SIGKILL)

    def until(self, ready: Callable[[], bool], patience: float = 180) -> None:
        """Wait until it is ready. Raises RuntimeError with the log's end if it ends or is late."""
        deadline = time.monotonic() + patience
        while not ready():
            if not self.running or time.monotonic() > deadline:
                said = self.log.read_text(errors="replace")[-3000:]
                state = "not ready" if self.running else "ended"
                raise RuntimeError(f"{self.command[0]} {state} after {patience} s:\n{said}")
            time.sleep(0.05)
