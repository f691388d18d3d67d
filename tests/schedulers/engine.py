"""A program of Pulumi's real engine and provider of Kubernetes, on a control plane."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import yaml

from tests.substrate.pulumi import environment

BIN = Path(sys.executable).parent


class Project:
    """A project of one program, with its state in the same folder."""

    def __init__(self, folder: Path, name: str, program: str) -> None:
        self.folder = folder / name
        state = folder / "state"
        for path in (self.folder, state):
            path.mkdir()
        runtime = {"name": "python", "options": {"toolchain": "pip", "virtualenv": str(BIN.parent)}}
        (self.folder / "Pulumi.yaml").write_text(yaml.safe_dump({"name": name, "runtime": runtime}))
        (self.folder / "__main__.py").write_text(program)
        given = os.environ | environment(folder) | {"PULUMI_BACKEND_URL": f"file://{state}"}
        self._environment = given | {"PATH": f"{BIN}:{given['PATH']}"}
        self("stack", "init", name)

    def __call__(self, *words: str) -> str:
        """Run a command of Pulumi's and return what it printed; it has to succeed."""
        done = subprocess.run(
            ["pulumi", *words, "--non-interactive", "--color=never"],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def up(self, *more: str) -> str:
        """Bring the program's objects up."""
        return self("up", "--yes", "--skip-preview", *more)

    def destroy(self) -> str:
        """Take them away."""
        return self("destroy", "--yes", "--skip-preview")
