"""Programs that a test starts, and that end with it whatever happens to the test."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import random
import signal
import socket
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

PR_SET_PDEATHSIG = 1
#: Ports that tests share out among themselves: as many before those of the kernel.
PORTS, LEAST = 8000, 10_000
GIVEN_BY_THE_KERNEL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_own: set[int] = set()
LIBC = ctypes.CDLL(None, use_errno=True)


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port that nobody listens on, and that no other test of this machine is given.

    It is this process' until that ends, and lies below those that the kernel gives to whoever asks
    for any: between now and the start of the program that is to listen there nobody takes it.
    """
    first = max(int(GIVEN_BY_THE_KERNEL.read_text().split()[0]) - PORTS, LEAST)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in random.sample(range(first, first + PORTS), PORTS):
        with contextlib.suppress(OSError), socket.socket(family) as probe:
            if port not in _own:  # who locks a byte again has it already
                fcntl.lockf(_marks(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
                _own.add(port)
                probe.bind((host, port))
                return port
    raise RuntimeError(f"none of {PORTS} ports from {first} on is free")


@cache
def _marks() -> IO[bytes]:
    """Open the file whose bytes are locked by those who have the ports of these numbers."""
    return Path(tempfile.gettempdir(), f"bedplate-tests-ports-{os.getuid()}").open("ab")


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

    def until(self, ready: Callable[[], bool], patience: float = 300) -> None:
        """Wait until it is ready. Raises RuntimeError with the log's end if it ends or is late."""
        deadline = time.monotonic() + patience
        while not ready():
            if not self.running or time.monotonic() > deadline:
                said = self.log.read_text(errors="replace")[-3000:]
                state = "not ready" if self.running else "ended"
                raise RuntimeError(f"{self.command[0]} {state} after {patience} s:\n{said}")
            time.sleep(0.05)
