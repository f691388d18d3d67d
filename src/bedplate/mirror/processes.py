"""Processes that outlive the command that started them, and are stopped by identity, not by name.

A process is known by its id, its start time and the boot it lives in: an id that the kernel has
given to somebody else since is never taken for ours.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bedplate.common import reading, writing

if TYPE_CHECKING:
    from collections.abc import Mapping

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
GRACE_SECONDS = 5.0


@dataclass(frozen=True)
class Identity:
    """What makes a process itself: its id, its start in clock ticks after boot, and the boot."""

    pid: int
    started: int
    boot: str


def identity(pid: int) -> Identity | None:
    """Return the identity of a live process; None if there is none or only its zombie."""
    try:
        stat = Path("/proc", str(pid), "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The program's name, in parentheses, may hold spaces; what follows is fields 3 and on.
    fields = stat.rpartition(")")[2].split()
    if fields[0] in {"Z", "X"}:
        return None
    return Identity(pid, int(fields[19]), BOOT_ID.read_text().strip())


def start(record: Path, command: list[str], log: Path, environment: Mapping[str, str]) -> Identity:
    """Start a program in a session of its own, its output in *log*, and record its identity."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd="/",
            env=os.environ | environment,
        )
    # Not reaped yet, so the id is still this process's even if it has ended.
    found = identity(process.pid) or Identity(process.pid, 0, "")
    writing.replace(record, f"{json.dumps(asdict(found))}\n".encode())
    return found


def running(record: Path) -> Identity | None:
    """Return the recorded process if that very process still runs."""
    try:
        wanted = Identity(**reading.document(record))
    except (OSError, ValueError, TypeError):
        return None
    return wanted if identity(wanted.pid) == wanted else None


def stop(record: Path) -> bool:
    """End the recorded process and its children, and forget it; return whether one ran.

    A recorded id that belongs to another process now is left alone.
    """
    found = running(record)
    if found:
        with suppress(ProcessLookupError):
            os.kill(found.pid, signal.SIGTERM)
        deadline = time.monotonic() + GRACE_SECONDS
        while identity(found.pid) == found:
            if time.monotonic() > deadline:
                with suppress(ProcessLookupError):
                    os.killpg(found.pid, signal.SIGKILL)  # its session: its own children only
                break
            time.sleep(0.05)
    record.unlink(missing_ok=True)
    return found is not None
