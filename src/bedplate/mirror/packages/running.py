"""Package managers as programs: each run has a limit of time, and asks for nothing."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from bedplate.mirror.errors import MirrorError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: How long one may look at its indexes, and how long it may fetch packages, in seconds.
LOOK_SECONDS, FETCH_SECONDS = 900, 4 * 3600


def run(
    words: Sequence[str], own: Mapping[str, str], where: str, seconds: float, *, quiet: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run a package manager to its end.

    Args:
        words: the program and its arguments.
        own: variables of its environment, besides those of this process.
        where: what it is run for, for messages.
        seconds: how long it may take.
        quiet: keep what it prints; else the user sees its progress.

    Raises:
        MirrorError: it takes longer.
    """
    try:
        return subprocess.run(
            words,
            env={**os.environ, **own},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if quiet else None,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            check=False,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired as error:
        raise MirrorError(
            "packages take too long",
            where,
            f"{os.path.basename(words[0])} without an end after {seconds:.0f} s",  # noqa: PTH119
            "archives that answer",
            "see that this machine reaches them, and run the same command again: it goes on where "
            "it stopped",
        ) from error
