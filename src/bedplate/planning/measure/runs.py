"""Runs a program on a GPU of this machine and reads what it takes, through nvidia-smi."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import re
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bedplate.common import programs
from bedplate.common.errors import BedplateError, Problem
from bedplate.courses.fractions import FRACTION
from bedplate.planning.measure.proposal import Run

if TYPE_CHECKING:
    from collections.abc import Sequence

#: A part of the GPU, for a program that limits itself.
PART: Final = "BEDPLATE_PART"
#: Without these JAX and TensorFlow take most of the GPU at once: what they need cannot be seen.
GROWS: Final = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
CARD: Final = "index,uuid,name,memory.total,memory.used,mig.mode.current"
PROGRAMS: Final = "pid,used_memory"
#: For an answer of nvidia-smi, and between two readings; seconds.
PATIENCE, PAUSE = 30.0, 0.2
#: Characters of a program's last line that are shown.
SHOWN: Final = 120


class MeasureError(BedplateError):
    """Nothing can be measured here."""


def problem(what: str, where: str, got: str, allowed: str, fix: str) -> MeasureError:
    """Return the error of one mistake."""
    return MeasureError([Problem(what, where, got=got, allowed=allowed, fix=fix, rule="measure")])


@dataclass(frozen=True)
class Gpu:
    """A GPU as nvidia-smi lists it; memory in MiB."""

    uuid: str
    name: str
    memory: int


def gpu(index: int) -> Gpu:
    """Return a GPU of this machine. Raises MeasureError."""
    rows = _asked("--query-gpu=" + CARD, 6)
    for row in rows:
        if row[0] == str(index):
            if row[5] == "Enabled":
                fix = "measure on a GPU without MIG; a course there takes a profile with the memory"
                raise problem("the GPU is divided by MIG", f"GPU {index}", row[2], "a whole", fix)
            return Gpu(row[1], row[2], _mib(row[3]) or 0)
    there = ", ".join(row[0] for row in rows) or "none"
    raise problem("no such GPU", "--gpu", str(index), there, "name one that nvidia-smi -L lists")


def _asked(what: str, columns: int, *more: str) -> list[list[str]]:
    """Return rows of nvidia-smi's answer. Raises MeasureError."""
    try:
        words = ["nvidia-smi", what, "--format=csv,noheader,nounits", *more]
        done = programs.run(words, PATIENCE, check=False)
        # What is wrong it prints as its answer.
        got = next(iter((done.errors or done.text).splitlines()), f"exit status {done.status}")
        failed = done.status != 0
    except programs.ProgramError as error:
        got, failed = error.got, True
    if failed:
        what, allowed = "nvidia-smi does not answer", "its list of GPUs"
        fix = "run it on a machine with an NVIDIA GPU whose driver works"
        raise problem(what, "nvidia-smi", got, allowed, fix)
    rows = list(csv.reader(io.StringIO(done.text), skipinitialspace=True))
    return [row for row in rows if len(row) == columns]


def _mib(text: str) -> int | None:
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else None


class Readings:
    """The most memory that was seen of a session of processes on a GPU."""

    def __init__(self, card: Gpu) -> None:
        self._card = card
        self._before = self._in_use()
        self.own = 0
        self.grown = 0

    def _in_use(self) -> int:
        return sum(_mib(row[4]) or 0 for row in _asked("--query-gpu=" + CARD, 6, self._of))

    @property
    def _of(self) -> str:
        return f"--id={self._card.uuid}"

    def read(self, session: int) -> None:
        """Look once."""
        rows = _asked("--query-compute-apps=" + PROGRAMS, 2, self._of)
        own = [_mib(memory) or 0 for pid, memory in rows if _is_of(pid, session)]
        self.own = max(self.own, sum(own))
        self.grown = max(self.grown, self._in_use() - self._before)


def _is_of(pid: str, session: int) -> bool:
    """Tell whether a process belongs to a session. In a container the driver's numbers differ."""
    with contextlib.suppress(OSError, ValueError):
        return os.getsid(int(pid)) == session
    return False


def run(
    card: Gpu, size: float, limit: tuple[float, int], command: Sequence[str], seconds: int
) -> tuple[Run, bool]:
    """Run a program once at a size.

    Args:
        card: the only GPU that it sees.
        size: of the share.
        limit: the part of the GPU's memory that a framework's allocator may have, and the MiB that
            the program may have where MPS runs.
        command: the program.
        seconds: how long it may take.

    Returns:
        what it took, and whether the driver listed its own memory.

    Raises:
        MeasureError: nvidia-smi or the program cannot be started.
    """
    part, mib = limit
    own = {
        **GROWS,
        **dict.fromkeys([*FRACTION.values(), PART], f"{part:g}"),
        "CUDA_VISIBLE_DEVICES": card.uuid,
        # Only clients of MPS read these.
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={mib}M",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": f"{size * 100:g}",
    }
    readings = Readings(card)
    with tempfile.TemporaryFile() as said:
        started = time.monotonic()
        process = _started(command, own, said)
        try:
            failure = _watched(process, readings, started + seconds)
            took = time.monotonic() - started
        finally:
            programs.end(process)
        if process.returncode and not failure:
            said.seek(0)
            lines = said.read().decode("utf-8", "replace").strip().splitlines()
            last = lines[-1].strip()[:SHOWN] if lines else "it printed nothing"
            status = process.returncode
            how = f"exit status {status}" if status > 0 else f"ended by signal {-status}"
            failure = f"{how}, {last}"
        elif failure:
            failure = f"no end after {seconds} s"
    return Run(size, readings.own or max(readings.grown, 0), took, failure), readings.own > 0


def _started(command: Sequence[str], own: dict[str, str], said: Any) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command,
            env={**os.environ, **own},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        got = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        fix = "name a program that this machine has"
        name = Path(command[0]).name or "COMMAND"
        raise problem("the program cannot be started", name, got, "a program", fix) from error


def _watched(process: subprocess.Popen[bytes], readings: Readings, until: float) -> str:
    """Read until a program has ended; a text where it has not in time."""
    while True:
        readings.read(process.pid)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(PAUSE)
            return ""
        if time.monotonic() > until:
            return "late"
