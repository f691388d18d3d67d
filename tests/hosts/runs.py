"""Runs of the driver's play on the one host of tests/hosts: undisturbed, or killed at a task."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.hosts import drivers, state
from tests.substrate.hosts import containers, faults
from tests.substrate.hosts.shell import succeeds

if TYPE_CHECKING:
    from tests.substrate.hosts.description import Description, Host

FOLDER = Path(__file__).parent
SITE = FOLDER / "site"
BIN = Path(sys.executable).parent


@dataclass(frozen=True)
class Blow:
    """Where a run is killed.

    ``task`` counts from 1. ``delay`` is in seconds from the task's start: 0 is the boundary between
    two tasks. ``power`` takes the host's power too; otherwise only the run dies.
    """

    task: int
    power: bool
    delay: float = 0

    def __str__(self) -> str:
        return f"task {self.task} + {self.delay:g} s, {'host' if self.power else 'run'} killed"


@dataclass(frozen=True)
class Machine:
    """The host, and the driver plays that run on it."""

    description: Description
    host: Host
    work: Path

    @property
    def container(self) -> str:
        """The container that is the host."""
        return self.description.container(self.host)

    def play(
        self,
        version: str,
        blow: Blow | None = None,
        playbook: str = "driver.yml",
        *,
        check: bool = False,
        **more: Any,
    ) -> tuple[int, list[str], str]:
        """Run a play for a driver version: its status, the tasks that started, its output.

        ``check`` has it say only what it would change. ``more`` are further variables, or other
        values of those that the version gives.
        """
        tasks, given = self.work / "tasks", self.work / "vars.json"
        tasks.write_text("")
        given.write_text(json.dumps(drivers.variables(self.host, version) | more))
        kill: dict[str, Any] | None = None
        if blow:
            power = self.container if blow.power else ""
            kill = {"task": blow.task, "delay": blow.delay, "host": power}
        environment = os.environ | {
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "ANSIBLE_CONFIG": str(FOLDER.parents[1] / "ansible.cfg"),
            "ANSIBLE_CALLBACK_PLUGINS": str(FOLDER / "callback"),
            "ANSIBLE_CALLBACKS_ENABLED": "kill_at,changed_tasks",
            # A connection to a host that died must not be taken for one to the host that came back.
            "ANSIBLE_SSH_ARGS": "-o ControlMaster=auto -o ControlPersist=30s"
            f" -o ControlPath={self.work}/{os.urandom(4).hex()}",
            "BEDPLATE_TASKS": str(tasks),
            "BEDPLATE_CHANGED": str(self.work / "changed"),
            "BEDPLATE_KILL": json.dumps(kill),
            "NO_COLOR": "1",
        }
        command = [BIN / "ansible-playbook", "-i", SITE, FOLDER / playbook, "-e", f"@{given}"]
        command += ["--check", "--diff"] if check else []
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            start_new_session=True,  # the blow goes to this group, not to the test
        )
        return done.returncode, tasks.read_text().splitlines(), done.stdout

    @property
    def changed(self) -> list[str]:
        """The tasks of the last run that changed the host, or in check mode would have."""
        return (self.work / "changed").read_text().splitlines()

    def announced(self, version: str, **more: Any) -> list[str]:
        """Run the play in check mode, which is to leave the host alone: what it would change."""
        before = self.state()
        code, _, output = self.play(version, check=True, **more)
        assert code == 0, output[-6000:]
        differing = state.difference(before, self.state())
        assert not differing, "check mode changed:\n" + "\n".join(differing)
        return self.changed

    def converge(self, version: str) -> list[str]:
        """Run the play to its end: the tasks that started."""
        code, tasks, output = self.play(version)
        assert code == 0, output[-6000:]
        return tasks

    def killed(self, version: str, blow: Blow) -> None:
        """Run the play and kill it; the host is on again afterwards."""
        code, tasks, output = self.play(version, blow)
        assert code == -signal.SIGKILL, f"{blow}: not killed\n{output[-6000:]}"
        assert len(tasks) == blow.task or blow.delay, tasks
        if blow.power:
            # podman may have begun to restart it: it is to stay off first, and then to come back.
            succeeds(["podman", "stop", "--time", "0", self.container])
            faults.power_on(self.description, self.host)

    def refused(self, version: str, **more: Any) -> str:
        """Run the play, which must fail: its last message, in one line."""
        code, _, output = self.play(version, **more)
        assert code == 2, output[-6000:]
        (*_, last) = re.findall(r"^\[ERROR\]: .*?Action failed: (.*)$", output, re.MULTILINE)
        return str(last)

    def execute(self, command: str) -> str:
        """Run a shell command on the host."""
        return containers.execute(self.container, "sh", "-c", command)

    def state(self) -> dict[str, list[str]]:
        """The host's state, to be compared as a whole."""
        return state.read(self.container)
