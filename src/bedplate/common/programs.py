"""Other programs on this machine: each has a limit of time, and whatever fails is one error."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from bedplate.common.errors import BedplateError, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

#: How long a program may take to end by itself once it is asked to, in seconds.
GRACE_SECONDS = 3.0


class ProgramError(BedplateError):
    """A program that is missing, cannot be started, does not end in time, or fails.

    `got` says which, in a few words, for the caller's own message.
    """

    def __init__(self, program: str, got: str) -> None:
        fix = "run it by hand, correct what it says, and run the command again"
        super().__init__([Problem("a program fails", program, got=got, fix=fix)])
        self.got = got


class MissingError(ProgramError):
    """A program that is not on PATH."""


@dataclass(frozen=True)
class Ended:
    """A program that has ended: its exit status, and what it printed."""

    status: int
    content: bytes
    errors: str

    @property
    def text(self) -> str:
        """What it printed, read as UTF-8."""
        return self.content.decode("utf-8", "replace")

    @property
    def said(self) -> str:
        """The last line of its errors."""
        lines = self.errors.strip().splitlines()
        return lines[-1].strip() if lines else f"exit status {self.status}"


def run(
    words: Sequence[str],
    seconds: float,
    *,
    own: Mapping[str, str] | None = None,
    folder: Path | None = None,
    given: bytes | None = None,
    shown: Literal["", "output", "errors"] = "",
    check: bool = True,
) -> Ended:
    """Run a program to its end, with an input that is closed.

    Args:
        words: the program and its arguments.
        seconds: how long it may take. Then all that it has started ends too.
        own: variables of its environment, besides those of this process.
        folder: where it runs.
        given: its input.
        shown: what the user sees at once, and is not kept.
        check: whether an exit status other than 0 is an error.

    Raises:
        MissingError: there is no such program.
        ProgramError: it cannot be started, does not end, or fails.
    """
    name = os.path.basename(words[0])  # noqa: PTH119 - a word, which need not be a path
    try:
        process = subprocess.Popen(
            words,
            cwd=folder,
            env={**os.environ, **(own or {})},
            stdin=subprocess.DEVNULL if given is None else subprocess.PIPE,
            stdout=None if shown == "output" else subprocess.PIPE,
            stderr=None if shown == "errors" else subprocess.PIPE,
            start_new_session=True,  # so that its children can be ended with it
        )
    except FileNotFoundError as error:
        if folder is not None and str(error.filename) == str(folder):
            raise ProgramError(name, f"{folder}: {error.strerror}") from error
        got = f"{words[0]}: {error.strerror}" if os.sep in words[0] else f"no {name}"
        raise MissingError(name, got) from error
    except OSError as error:
        raise ProgramError(name, f"{words[0]}: {error.strerror}") from error
    except ValueError as error:
        raise ProgramError(name, "an argument with a NUL byte") from error
    try:
        content, errors = process.communicate(given, timeout=seconds)
    except subprocess.TimeoutExpired as error:
        end(process)
        raise ProgramError(name, f"{name} without an end after {seconds:.0f} s") from error
    except BaseException:
        end(process)
        raise
    said = (errors or b"").decode("utf-8", "replace")
    ended = Ended(process.returncode, content or b"", said)
    if check and ended.status:
        raise ProgramError(name, ended.said)
    return ended


def end(process: subprocess.Popen[bytes]) -> None:
    """End a program that leads a session of its own, with all that it has started there."""
    until = time.monotonic() + GRACE_SECONDS
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGTERM)
        # The group lives on with a child that doesn't listen, when the program itself is gone.
        while time.monotonic() < until:
            process.poll()
            os.killpg(process.pid, 0)
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
    # One that waits for a device in the kernel ends later, or never.
    with suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_SECONDS)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with suppress(OSError):
                stream.close()
