"""The memory of what the commands of a site run on the control side, program by program."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.substrate.commands import SiteCommands

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator, Sequence

PROC = Path("/proc")
#: Seconds between two looks. The kernel keeps each process's own peak, so a few looks do.
PERIOD = 0.5
#: What takes less (ssh, shells) is left out.
WORTH_MIB = 20.0


@dataclass
class Peaks:
    """The largest process of each program that was seen below this one, in MiB."""

    mib: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Look again and again while the block lasts, at what was started in it."""
        before = set(_processes())
        ended = threading.Event()
        watcher = threading.Thread(target=self._watch, args=[ended, before])
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()

    def _watch(self, ended: threading.Event, before: set[int]) -> None:
        while not ended.wait(PERIOD):
            self.look(before)

    def look(self, before: set[int]) -> None:
        """Take the peaks of all processes below this one but those of `before`."""
        status = _processes()
        _, own = status[os.getpid()]
        for pid, (values, command) in status.items():
            # One that is just being started still looks like us.
            if pid in before or command == own or "VmHWM" not in values:
                continue
            if os.getpid() in _ancestors(pid, status):
                name, mib = program(command), int(values["VmHWM"].split()[0]) / 1024
                self.mib[name] = max(self.mib.get(name, 0.0), mib)

    def figures(self) -> dict[str, float]:
        """Return what is worth printing, the largest first."""
        order = sorted(self.mib.items(), key=lambda item: -item[1])
        return {f"largest {name}, MiB": mib for name, mib in order if mib >= WORTH_MIB}


def _processes() -> dict[int, tuple[dict[str, str], list[str]]]:
    """Return status and command line of all processes."""
    found = {}
    for path in PROC.glob("[0-9]*"):
        try:
            command = (path / "cmdline").read_bytes()
            lines = (path / "status").read_text().splitlines()
            # A process that has just become another program would have its peak told of both.
            if (path / "cmdline").read_bytes() != command:
                continue
        except OSError:
            continue  # it has ended while we looked
        words = command.decode(errors="replace").split("\0")
        found[int(path.name)] = dict(line.split(":\t", 1) for line in lines), words
    return found


def _ancestors(pid: int, status: dict[int, tuple[dict[str, str], list[str]]]) -> Iterator[int]:
    while pid in status:
        pid = int(status[pid][0]["PPid"])
        yield pid


def program(command: Sequence[str]) -> str:
    """Name the program of a command line: for an interpreter, what it runs."""
    words = [word for word in command if word]
    if not words or "python" not in Path(words[0]).name:
        return Path(words[0]).name if words else "?"
    rest = words[1:]
    while rest and rest[0].startswith("-") and rest[0] not in {"-m", "-c"}:
        rest = rest[1:]
    if rest[:1] == ["-m"]:
        return rest[1]
    return Path(rest[0]).name if rest and rest[0] != "-c" else "python"


@dataclass
class MeasuredCommands(SiteCommands):
    """The commands of a site, their memory noted; not of those that stand for its hardware."""

    memory: Peaks = field(default_factory=Peaks)

    def run(
        self, label: str, command: list[str], **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run one command as `SiteCommands` does."""
        if label.startswith("hosts "):
            return super().run(label, command, **options)
        with self.memory.watched():
            return super().run(label, command, **options)
