"""Real programs in place of those in pods' containers, as a node's reader of `/proc` sees them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class Programs:
    """Real programs of pods, with the files that the kernel has of them; cgroups are planted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, pod: str, script: str) -> int:
        """Start a shell's script in a pod."""
        done = subprocess.Popen(["sh", "-c", script], start_new_session=True)
        self._started.append(done)
        place = self.folder / str(done.pid)
        place.mkdir(parents=True)
        (place / "cgroup").write_text(f"0::/kubepods/pod{pod}/c")
        for name in ("stat", "cmdline"):
            (place / name).symlink_to(f"/proc/{done.pid}/{name}")
        return done.pid

    def stop(self, pid: int) -> None:
        """End one of them, and what the kernel has of it."""
        (one,) = (one for one in self._started if one.pid == pid)
        os.killpg(one.pid, signal.SIGKILL)
        one.wait()

    def end(self) -> None:
        """End them all."""
        for one in self._started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(one.pid, signal.SIGKILL)
            one.wait()
