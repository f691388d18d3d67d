"""NVIDIA's MPS control daemons of two Debian releases, as Debian packs them, without a GPU."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from bedplate.portable.host import Host, Result
from tests.packages import unpacked
from tests.schedulers.api import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

PACKAGE = "nvidia-cuda-mps"
#: Who an unprivileged pod runs as.
NOBODY = 65534
#: Two T4, as nvidia-smi says them to evidence.
CARDS = "".join(
    f"{n}, Tesla T4, GPU-{n}, 15360, Enabled, 00000000:0{n}:00.0, 535.261.03\n" for n in (0, 1)
)


@dataclass
class Daemon:
    """A running control daemon, and the joined host on which the device plugin started it."""

    version: str
    program: Path
    pipe: Path
    root: Path

    def ask(self, question: str, user: int = 0) -> str:
        """Say something to the daemon as a user; what it answers, or why nothing does."""
        who = [f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        done = subprocess.run(
            ["setpriv", *who, self.program],
            input=question,
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        return (done.stdout or done.stderr).strip()

    def environment(self) -> dict[str, str]:
        """Return what leads to this daemon and to no other on the machine."""
        folders = {
            "CUDA_MPS_PIPE_DIRECTORY": str(self.pipe),
            "CUDA_MPS_LOG_DIRECTORY": str(self.root / "log"),
        }
        return {**os.environ, **folders, "PATH": f"{self.program.parent}:{os.environ['PATH']}"}

    def limit(self, replicas: int) -> None:
        """Set limits by the commands that the device plugin's daemon gives."""
        for card in (0, 1):
            self.ask(f"set_default_device_pinned_mem_limit {card} {15360 // replicas}M")
        self.ask(f"set_default_active_thread_percentage {100 // replicas}")

    def host(self) -> Host:
        """Return the host: its daemon is asked in truth, and its cards are canned."""

        def run(argv: Sequence[str], *_: object, **__: object) -> Result:
            if argv[0] == "sh":
                done = subprocess.run(
                    argv, env=self.environment(), capture_output=True, text=True, check=False
                )
                return Result(done.returncode, done.stdout, done.stderr)
            if "memory.total" in argv[1]:
                return Result(0, CARDS, "")
            row = "{0}, GPU-{0}, [N/A], [N/A], Exclusive_Process\n"
            return Result(0, row.format(0) + row.format(1), "")

        return Host(str(self.root), run)


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the function that has a release's daemon unpacked, once."""
    known: dict[str, Path] = {}

    def program(release: str) -> Path:
        if release not in known:
            # An attacker's user has to reach program and pipe.
            folder = tmp_path_factory.mktemp(release)
            for parent in (folder, *folder.parents[:3]):
                parent.chmod(parent.stat().st_mode | 0o055)
            known[release] = unpacked([PACKAGE], folder, release, ["non-free"])
        return known[release]

    return program


@pytest.fixture(params=["bookworm", "trixie"])
def daemon(
    request: pytest.FixtureRequest,
    programs: Callable[[str], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Daemon]:
    """Start a release's daemon; it ends with the test."""
    root = programs(request.param)
    home = tmp_path_factory.mktemp("host")
    home.chmod(0o755)
    for name in ("pipe", "log", "etc/kubernetes", "proc"):
        (home / name).mkdir(parents=True)
    (home / "etc/kubernetes/kubelet.conf").touch()
    (home / "proc/mounts").write_text("shm /run/nvidia/mps/shm tmpfs rw 0 0\n")
    (deb,) = root.parent.glob(f"{PACKAGE}_*.deb")
    version = re.search(r"_(\d+)\.", deb.name)
    assert version is not None
    found = Daemon(version[1], root / "usr/bin/nvidia-cuda-mps-control", home / "pipe", home)
    process = subprocess.Popen(
        [found.program, "-f"], env=found.environment(), stdout=subprocess.DEVNULL
    )
    try:
        eventually(lambda: found.ask("get_default_active_thread_percentage") == "100.0")
        yield found
    finally:
        process.kill()
        process.wait()
