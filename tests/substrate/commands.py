"""The commands that a user of a site types, run one by one and shown before they run.

The demo and the end-to-end tests go through these, so that what they prove is what a user does.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.substrate.pulumi import environment

if TYPE_CHECKING:
    from tests.substrate.internet.service import Service

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
STACKS = ("cluster", "schedulers", "frameworks")


@dataclass
class SiteCommands:
    """The native commands for one site and its substrate.

    Attributes:
        site: the site's directory (an Ansible inventory).
        description: the substrate's description of the hosts that stand for the site's hardware.
        phases: seconds that each finished command took, by its label, in order.
        internet: the stand-in that the vendors' names lead to, instead of a mirror.
        mirror: whether hosts come with the demo's mirror; a test may serve one of its own.
    """

    site: Path
    description: Path
    phases: dict[str, float] = field(default_factory=dict)
    internet: Service | None = None
    mirror: bool = True

    @property
    def stack_name(self) -> str:
        """Stacks are named as their site is."""
        return self.site.name

    def environment(self) -> dict[str, str]:
        """Return the variables that put this checkout's programs and the Pulumi parts on PATH."""
        prepared = os.environ | environment(self.site)
        if self.internet:
            prepared |= self.internet.trust()
        return prepared | {
            "PATH": f"{BIN}:{prepared['PATH']}",
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            # Over websockets a quick program's output may come before kubectl listens, and is lost.
            "KUBECTL_REMOTE_COMMAND_WEBSOCKETS": "false",
        }

    def _temporary(self) -> dict[str, str]:
        """Keep what Pulumi's Kubernetes provider leaves, copies of the kubeconfig, at the site."""
        folder = (self.site / ".bedplate" / "tmp").resolve()
        folder.mkdir(parents=True, exist_ok=True)
        return {"TMPDIR": str(folder)}

    def substrate(self, verb: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Start, stop or reboot the hosts."""
        site = ["--site", self.show(self.site)] if verb in {"up", "down"} else []
        command = ["python", "-m", "tests.substrate", verb, self.show(self.description), *site]
        if verb == "up" and self.internet:
            command.append("--internet")
        elif verb == "up" and not self.mirror:
            command.append("--no-mirror")
        return self.run(f"hosts {verb}", [*command, *arguments])

    def plan(self, *arguments: str, **options: bool) -> subprocess.CompletedProcess[str]:
        """Decide every version: writes the site's lock."""
        return self.run("plan", ["bedplate", "plan", self.show(self.site), *arguments], **options)

    def resolve(self, *arguments: str, **options: bool) -> subprocess.CompletedProcess[str]:
        """Look up address and digest of all that the lock installs: writes the site's bill."""
        command = ["bedplate", "mirror", "resolve", self.show(self.site), *arguments]
        return self.run("mirror resolve", command, **options)

    def playbook(
        self, playbook: str = "site.yml", *arguments: str, **options: bool
    ) -> subprocess.CompletedProcess[str]:
        """Run a playbook on the site's hosts."""
        command = ["ansible-playbook", "-i", self.show(self.site), playbook, *arguments]
        return self.run(f"ansible {playbook}", command, **options)

    def select(self, stack: str) -> None:
        """Make the site's stack of a project, once."""
        done = self.run(
            f"pulumi select {stack}",
            ["pulumi", "stack", "select", "--create", self.stack_name, "-C", f"stacks/{stack}"],
        )
        assert done.returncode == 0
        site = os.path.relpath(self.site, ROOT)
        if site != f"inventories/{self.stack_name}":
            self.pulumi(stack, "config", "set", "bedplate:site", str(self.site))

    def pulumi(
        self, stack: str, *arguments: str, **options: bool
    ) -> subprocess.CompletedProcess[str]:
        """Run a Pulumi command in a stack's project, on the site's stack."""
        command = ["pulumi", *arguments, "-C", f"stacks/{stack}", "--stack", self.stack_name]
        return self.run(f"pulumi {arguments[0]} {stack}", command, **options)

    def up(self, stack: str, **options: bool) -> subprocess.CompletedProcess[str]:
        """Bring a stack up without asking."""
        return self.pulumi(stack, "up", "--yes", "--skip-preview", **options)

    def kubectl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Ask the cluster through the kubeconfig that the cluster stack wrote."""
        return self.run("kubectl", ["kubectl", *arguments], quiet=True, check=False)

    def example(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Submit an example's objects to the cluster."""
        command = ["kubectl", "apply", "-f", f"examples/{name}.yml", *arguments]
        return self.run(f"example {name}", command)

    def run(
        self, label: str, command: list[str], *, quiet: bool = False, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run one command at the repository's root; show it first, its output as it comes.

        Args:
            label: what the command's time is kept under.
            command: the words of the command.
            quiet: keep the output to the caller instead of showing it too. Of a command that
                succeeds it is the answer alone: what kubectl says beside one, of an API that is
                away for a moment, is no part of it.
            check: end with the command's own exit status when it fails.

        Raises:
            subprocess.CalledProcessError: it failed and *check* is set; its output is attached.
        """
        started = time.monotonic()
        environment = self.environment() | (self._temporary() if command[0] == "pulumi" else {})
        runs = self._asked if quiet else self._shown
        status, output = runs(command, environment)
        self.phases[label] = self.phases.get(label, 0.0) + time.monotonic() - started
        done = subprocess.CompletedProcess(command, status, output, "")
        if check:
            done.check_returncode()
        return done

    def _shown(self, command: list[str], environment: dict[str, str]) -> tuple[int, str]:
        print(f"\n$ {shlex.join(command)}", flush=True)
        process = subprocess.Popen(
            self.placed(command),
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        lines = []
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            print(line, end="", flush=True)
        return process.wait(), "".join(lines)

    def _asked(self, command: list[str], environment: dict[str, str]) -> tuple[int, str]:
        done = subprocess.run(
            self.placed(command),
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + (done.stderr if done.returncode else "")

    def placed(self, command: list[str]) -> list[str]:
        """Return a command as it runs: those that fetch see the vendors' names at the stand-in."""
        fetches = command[0] in {"bedplate", "pulumi"}
        return self.internet.command(command) if self.internet and fetches else command

    @staticmethod
    def show(path: Path) -> str:
        """Write a path as a user at the repository's root would type it."""
        return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
