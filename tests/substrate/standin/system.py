"""A stand-in system as a folder: its package managers run in it, and nothing of it is started.

That is enough for what dnf and rpm do, and costs neither a host nor its network.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from bedplate.portable.host import Host, Result, run_command
from tests.substrate.hosts import image, machine

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


def unpack(system: str, folder: Path) -> Path:
    """Unpack a system of `description.known_systems` into a new folder. Needs root."""
    with machine.exclusive("images"):
        tar = image.base(system)
    folder.mkdir()
    command = ["tar", "--extract", "--file", str(tar), "--directory", str(folder)]
    subprocess.run([*command, "--numeric-owner"], check=True)
    name = folder / "etc/os-release"
    name.unlink(missing_ok=True)
    name.write_text(image.recipe(system).os_release)
    return folder


def host(folder: Path) -> Host:
    """Return the system as what is written for hosts sees it."""

    def run(
        argv: Sequence[str], timeout: float, environment: Mapping[str, str] | None = None
    ) -> Result:
        return run_command(["chroot", str(folder), *argv], timeout, dict(environment or {}))

    return Host(str(folder), run)
