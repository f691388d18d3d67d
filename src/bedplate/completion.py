"""Completion of the shell: by argcomplete, which ansible-playbook's own completion uses too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from argcomplete.finders import CompletionFinder
from argcomplete.shell_integration import shellcode

if TYPE_CHECKING:
    from argparse import ArgumentParser

PROGRAM = "bedplate"


def run(shell: str) -> int:
    """Print what a shell has to read to complete `bedplate`."""
    print(shellcode([PROGRAM], shell=shell))
    return 0


def complete(parser: ArgumentParser) -> None:
    """Answer the shell and end, if it is the shell that asks."""
    CompletionFinder()(parser)
