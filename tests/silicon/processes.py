"""Programs on a GPU, MPS' control daemon, and what nvidia-smi says of the memory that they take."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

#: JAX takes three quarters of a GPU at once unless it is told not to.
QUIET = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_CPP_MIN_LOG_LEVEL": "3"}
CLIENT = Path(__file__).with_name("client.py")
#: Where the device plugin's daemon has its pipe, and our evidence asks it.
MPS = Path("/run/nvidia/mps/nvidia.com/gpu")
#: Who an unprivileged pod runs as.
NOBODY = 65534
SILENT = "no answer"


def as_user(user: int) -> list[str]:
    """Return what runs the words after it as another user."""
    if user == 0:
        return []
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]


def smi(*words: str) -> str:
    """Return what nvidia-smi says."""
    done = subprocess.run(
        ["nvidia-smi", *words], capture_output=True, text=True, check=False, timeout=60
    )
    return (done.stdout or done.stderr).strip()


def used() -> int:
    """Return how many MiB of the first GPU are in use."""
    return int(smi("--query-gpu=memory.used", "--format=csv,noheader,nounits").splitlines()[0])


def used_by(pid: int) -> int | None:
    """Return how many MiB nvidia-smi says that a process has; nothing where it knows none."""
    rows = smi("--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits")
    for row in rows.splitlines():
        number, _, size = row.partition(",")
        if number.strip() == str(pid) and size.strip().isdigit():
            return int(size)
    return None


class Client:
    """A program of `client.py`; it ends on leaving."""

    def __init__(self, environment: Mapping[str, str] | None = None, user: int = 0) -> None:
        self.process = subprocess.Popen(
            [*as_user(user), sys.executable, "-c", CLIENT.read_text()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **QUIET, **(environment or {})},
            text=True,
            bufsize=1,
            cwd="/tmp",
        )
        self.lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True).start()

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self.lines.put(line)

    def say(self, question: str) -> None:
        """Ask without awaiting an answer."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(question + "\n")
            self.process.stdin.flush()
        except OSError:
            return  # it has ended: its answer will be none

    def heard(self, timeout: float) -> dict[str, Any]:
        """Return the next answer, or that there is none in time."""
        until = time.monotonic() + timeout
        while (left := until - time.monotonic()) > 0:
            try:
                line = self.lines.get(timeout=min(left, 1))
            except queue.Empty:
                if self.process.poll() is not None and self.lines.empty():
                    return {"error": f"ended with {self.process.returncode}"}
                continue
            if line.startswith("{"):
                found: dict[str, Any] = json.loads(line)
                return found
        return {"error": SILENT}

    def ask(self, question: str, timeout: float = 60) -> dict[str, Any]:
        """Ask, and return the answer."""
        self.say(question)
        return self.heard(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()


class Daemon:
    """MPS' control daemon, with its pipe where the device plugin has it; it ends on leaving.

    The compute mode of the GPUs stays as it is: the device plugin's own daemon would change it.
    """

    def __init__(self, program: str = "nvidia-cuda-mps-control", *options: str) -> None:
        self.program, self.options = program, options
        self.folders = {
            "CUDA_MPS_PIPE_DIRECTORY": str(MPS / "pipe"),
            "CUDA_MPS_LOG_DIRECTORY": str(MPS / "log"),
        }

    def __enter__(self) -> Self:
        for folder in self.folders.values():
            Path(folder).mkdir(parents=True, exist_ok=True)
        self.process = subprocess.Popen(
            [self.program, "-f", *self.options],
            env={**os.environ, **self.folders},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(50):
            if self.ask("get_default_active_thread_percentage").startswith("100"):
                break
            time.sleep(0.1)
        return self

    def __exit__(self, *_: object) -> None:
        self.ask("quit -t 5")
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def ask(self, question: str, user: int = 0) -> str:
        """Say something to the daemon as a user; return what it answers, or why nothing does."""
        try:
            done = subprocess.run(
                [*as_user(user), self.program],
                input=question + "\n",
                env={**os.environ, **self.folders},
                capture_output=True,
                text=True,
                check=False,
                timeout=20,
            )
        except subprocess.TimeoutExpired:
            return SILENT
        return (done.stdout.strip() or done.stderr.strip())[:400]

    def limit(self, memory: int, threads: int) -> None:
        """Set limits by the commands that the device plugin's daemon gives."""
        self.ask(f"set_default_device_pinned_mem_limit 0 {memory}M")
        self.ask(f"set_default_active_thread_percentage {threads}")

    def limits(self) -> dict[str, str]:
        """Return the limits that the daemon says."""
        return {
            "memory": self.ask("get_default_device_pinned_mem_limit 0"),
            "threads": self.ask("get_default_active_thread_percentage"),
        }

    def client(self, user: int = 0, **environment: str) -> Client:
        """Start a program that is the daemon's client."""
        return Client({**self.folders, **environment}, user)
