"""Options of OpenSSH's configuration as asyncssh takes them, for the plan and the provider."""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

#: The options that are lists of algorithms, and the attribute that asyncssh has of them.
ALGORITHMS = {"Ciphers": "encryption_algs", "KexAlgorithms": "kex_algs", "MACs": "mac_algs"}


def line(name: str, values: Iterable[str]) -> str:
    """Return a line of OpenSSH's configuration, in the form that a lock has it."""
    return f"{name} {shlex.join(values)}"


def parsed(text: str) -> tuple[str, list[str]]:
    """Return name and values of such a line. Raises ValueError where it is none."""
    name, *values = shlex.split(text)
    return name, values


def unusable(name: str, value: str) -> str | None:
    """Return what asyncssh says against an option that holds no file; None where it takes it."""
    import asyncssh  # it takes a third of a second

    with tempfile.NamedTemporaryFile("w", suffix=".cfg") as out:
        out.write(line(name, [value]) + "\n")
        out.flush()
        try:
            found = asyncssh.SSHClientConnectionOptions(
                host="host", config=[Path(out.name)], client_keys=None, known_hosts=b""
            )
        except ValueError as error:
            return str(error).removeprefix(f"{out.name} line 1: ")
    # asyncssh passes over names that it does not know, down to none at all.
    attribute = ALGORITHMS.get(name)
    return "asyncssh has none of them" if attribute and not getattr(found, attribute) else None
