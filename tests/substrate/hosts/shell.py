"""Running programs: one place that turns a failed command into an error that says what to do."""

from __future__ import annotations

import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.substrate.hosts.errors import SubstrateError

if TYPE_CHECKING:
    from collections.abc import Iterator


def run(command: list[str], *, stdin: bytes | None = None, fix: str = "see its output") -> str:
    """Run a command and return its standard output.

    Raises `SubstrateError` with the command's last error lines when it fails.
    """
    try:
        done = subprocess.run(command, input=stdin, capture_output=True, check=True)
    except FileNotFoundError as error:
        raise SubstrateError(
            "a program is missing",
            command[0],
            "not on PATH",
            "installed",
            "run 'tests/substrate/prepare tools' (packages: tests/substrate/packages.txt)",
        ) from error
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip().splitlines()[-6:]
        raise SubstrateError(
            "a command failed",
            " ".join(command[:6]),
            f"exit status {error.returncode}: {' | '.join(said)}",
            "exit status 0",
            fix,
        ) from error
    return done.stdout.decode()


def succeeds(command: list[str]) -> bool:
    """Say whether a command ends with status 0: for questions whose answer is the status."""
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def say(text: str) -> None:
    """Print a line of progress."""
    print(f"[substrate] {text}", flush=True)


@contextmanager
def step(text: str) -> Iterator[None]:
    """Print what is being done, and afterwards how long it took."""
    say(f"{text} …")
    started = time.monotonic()
    yield
    say(f"{text}: done in {time.monotonic() - started:.1f} s")
