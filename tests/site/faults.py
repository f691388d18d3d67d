"""What the end-to-end tests do to a site in the middle of its life."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from tests.site.hosts import on_host
from tests.substrate.commands import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.substrate.commands import SiteCommands


def kill_when(
    site: SiteCommands, command: list[str], reached: Callable[[str], bool], pause: float = 1.5
) -> str:
    """Start a command in a process group of its own and SIGKILL the group when *reached* says so.

    The *pause* before it leads into the middle of a step that is told of when it begins.

    Returns:
        What the command had printed. The test fails if the command ends by itself first.
    """
    process = subprocess.Popen(
        site.placed(command),
        cwd=ROOT,
        env=site.environment() | {"PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    seen = []
    assert process.stdout is not None
    try:
        for line in process.stdout:
            seen.append(line)
            print(line, end="")
            if reached(line):
                time.sleep(pause)
                return "".join(seen)
        status = process.wait()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    pytest.fail(f"{command} ended with {status} before it was to be killed: {seen[-20:]}")


@contextmanager
def failing_programs(site: SiteCommands, hosts: Iterable[str], program: str) -> Iterator[None]:
    """Let a program of hosts, and of the pods that are given it from there, end with status 1."""
    file = f'"$(readlink -f "$(command -v {program})")"'
    with ExitStack() as undo:
        for host in hosts:
            on_host(site, host, f"mount --bind /bin/false {file}")
            undo.callback(on_host, site, host, f"umount {file}")
        yield
