"""Package managers as programs: each run has a limit of time, and asks for nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from bedplate.common import programs
from bedplate.mirror.errors import MirrorError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

#: How long one may look at its indexes, and how long it may fetch packages, in seconds.
LOOK_SECONDS, FETCH_SECONDS = 900, 4 * 3600
#: How long the writing of an index may take.
INDEX_SECONDS = 1800


def index(
    words: Sequence[str], missing: tuple[str, str], folder: Path | None = None, where: str = ""
) -> bytes:
    """Run a program that writes an index, in a folder, and return what it prints.

    Args:
        words: the program and its arguments.
        missing: what it belongs to, and how that is installed.
        folder: where it runs.
        where: what it reads or writes, for messages.

    Raises:
        MirrorError: it is missing or fails.
    """
    what = "an index of packages cannot be written"
    try:
        own = {"LC_ALL": "C.UTF-8"}
        return programs.run(words, INDEX_SECONDS, own=own, folder=folder).content
    except programs.MissingError as error:
        raise MirrorError(what, "PATH", error.got, *missing) from error
    except programs.ProgramError as error:
        full = "see that the disk is not full"
        raise MirrorError(what, where or str(folder), error.got, "an index", full) from error


def run(
    words: Sequence[str], own: Mapping[str, str], where: str, seconds: float, *, quiet: bool = True
) -> programs.Ended:
    """Run a package manager to its end.

    Args:
        words: the program and its arguments.
        own: variables of its environment, besides those of this process.
        where: what it is run for, for messages.
        seconds: how long it may take.
        quiet: keep what it prints; else the user sees its progress.

    Raises:
        MirrorError: it takes longer, or cannot be started.
    """
    try:
        shown: Literal["", "output"] = "" if quiet else "output"
        return programs.run(words, seconds, own=own, shown=shown, check=False)
    except programs.ProgramError as error:
        raise MirrorError(
            "packages cannot be fetched",
            where,
            error.got,
            "a package manager that runs, and archives that answer",
            "see that this machine reaches them, and run the same command again: it goes on where "
            "it stopped",
        ) from error
