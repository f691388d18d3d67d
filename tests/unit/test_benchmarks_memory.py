"""The memory that the benchmarks tell is that of the programs below them, each by its own peak."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.benchmarks import memory
from tests.benchmarks.memory import MeasuredCommands, program

if TYPE_CHECKING:
    from pathlib import Path

#: Takes 90 MiB and gives them back before anybody looks.
GREEDY = "import time; taken = bytearray(90 << 20); del taken; time.sleep(0.6)"


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["/venv/bin/python3", "/venv/bin/ansible-playbook", "-i", "site"], "ansible-playbook"),
        (
            ["python", "-u", "/share/pulumi-language-python-exec", "x"],
            "pulumi-language-python-exec",
        ),
        (["python", "-m", "tests.stacks.world.provider", "x"], "tests.stacks.world.provider"),
        (["python", "-c", "print()"], "python"),
        (["/cache/bin/pulumi", "up"], "pulumi"),
        ([""], "?"),
    ],
)
def test_a_program_is_named_as_its_user_knows_it(command: list[str], name: str) -> None:
    assert program(command) == name


def test_the_peak_of_a_program_below_is_seen_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "PERIOD", 0.05)
    monkeypatch.setattr(MeasuredCommands, "environment", lambda _: dict(os.environ))
    site = MeasuredCommands(tmp_path, tmp_path / "hosts.yml")
    script, host = tmp_path / "greedy", tmp_path / "host"
    for path in (script, host):
        path.write_text(GREEDY)
    older = subprocess.Popen([sys.executable, "-c", f"{GREEDY}; time.sleep(60)"])
    inner = f"{sys.executable} {script}; true"  # a child of the command, as a provider is
    try:
        site.run("plan", ["sh", "-c", inner])
    finally:
        older.kill()
        older.wait()
    (label,) = site.memory.figures()
    assert label == "largest greedy, MiB"
    assert 90 < site.memory.figures()[label] < 150
    site.run("hosts up", [sys.executable, str(host)])
    assert site.memory.mib.keys() == {"greedy", "sh"}
