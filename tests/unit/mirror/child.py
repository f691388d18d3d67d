"""`bedplate` in a process of its own that finds the vendors at a stand-in: it can be killed.

Processes are forked from one that has everything imported: a test starts a dozen of them.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bedplate.cli.main import main
from tests.substrate.internet.faults import Records
from tests.substrate.internet.fixtures import Served
from tests.substrate.internet.tree import Tree

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerProcess

PRELOADED = ["tests.unit.mirror.child", "bedplate.mirror.contents_command"]


@dataclass(frozen=True)
class Child:
    """A process that runs, and the file of what it says."""

    process: ForkServerProcess
    output: Path

    @property
    def runs(self) -> bool:
        """Whether it has not ended yet."""
        return self.process.is_alive()

    @property
    def said(self) -> str:
        """What it has said so far, on both streams."""
        return self.output.read_text()

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.join()

    def end(self, seconds: float = 120.0) -> int | None:
        """Wait for its end and return its status."""
        self.process.join(seconds)
        return self.process.exitcode


def start(served: Served, cache: Path, output: Path, words: list[str]) -> Child:
    """Start `bedplate` with some words."""
    output.touch()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    place = str(served.tree.root), served.url, str(served.authority), str(cache), str(output)
    process = context.Process(target=_run, args=(*place, words))
    process.start()
    return Child(process, output)


def _run(tree: str, url: str, authority: str, cache: str, output: str, words: list[str]) -> None:
    with Path(output).open("a", buffering=1) as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
    os.environ["BEDPLATE_CACHE"] = cache
    served = Served(Tree(Path(tree)), Records(Path(tree).parent), url, Path(authority))
    with served.names():
        status = main(words)
    sys.stdout.flush()
    sys.exit(status)
