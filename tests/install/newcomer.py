"""What a newcomer does with a page: its commands up to the hosts, and settings that it names."""

from __future__ import annotations

import re
import shlex
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

BLOCK = re.compile(r"^```(console|yaml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"`(inventory/[^`\n]+\.yml)`")
REPLACED = re.compile(r"In `([^`]+)` write `([^`]+)` in place of `([^`]+)`")
#: What needs a host or a cluster, or what only those can have left.
OF_HOSTS = re.compile(r"\b(pulumi|kubectl|share request|preflight)\b|^bedplate (report|kubeconfig)")
PLAYBOOK = "ansible-playbook "


@dataclass(frozen=True)
class Step:
    """One thing that a page asks for: a command, or a text for a file, in place of another."""

    command: str = ""
    file: str = ""
    text: str = ""
    replaced: str = ""


def steps(page: str) -> Iterator[Step]:
    """Yield what a page asks for before a host is needed, in its order.

    A block that shows output too is an example, which other tests compare.
    """
    end = 0
    for block in BLOCK.finditer(page):
        before, end = page[end : block.start()], block.end()
        for file, text, replaced in REPLACED.findall(before):
            yield Step(file=file, text=text, replaced=replaced)
        kind, content = block.groups()
        if kind == "yaml" and (files := FILE.findall(before)):
            yield Step(file=files[-1], text=content)
        lines = content.splitlines()
        if kind == "console" and all(line.startswith("$ ") for line in lines):
            for line in lines:
                yield from _commands(re.sub(r" +# .*$", "", line.removeprefix("$ ")))


def _commands(line: str) -> Iterator[Step]:
    """Yield a line's command up to its first part that needs hosts; a playbook is only read."""
    parts = line.split(" && ")
    reach = next((n for n, part in enumerate(parts) if OF_HOSTS.search(part)), len(parts))
    if "; do " in line and OF_HOSTS.search(line):
        return
    for part in parts[:reach]:
        yield Step(f"{part} --syntax-check" if part.startswith(PLAYBOOK) else part)


@dataclass
class Shell:
    """A shell that keeps its folder and its variables from one command to the next."""

    folder: Path
    environment: Mapping[str, str]
    state: Path = field(init=False)

    def __post_init__(self) -> None:
        self.state = self.folder / ".state"
        self.state.write_text(f"cd {shlex.quote(str(self.folder))}\n")

    def run(self, command: str, **variables: str) -> str:
        """Run a command that has to end well, and return what it printed."""
        state = shlex.quote(str(self.state))
        keep = f'{{ export -p | grep -v " OLDPWD"; echo "cd $(printf %q "$PWD")"; }} > {state}'
        done = subprocess.run(
            ["bash", "-c", f". {state}\n{command}\nstatus=$?\n{keep}\nexit $status"],
            env={**self.environment, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        printed = done.stdout + done.stderr
        assert done.returncode == 0, f"{command}: {done.returncode}\n{printed}"
        assert "Traceback" not in printed, printed
        return printed

    @property
    def here(self) -> str:
        """The folder in which the shell stands."""
        return self.run("pwd").strip()
