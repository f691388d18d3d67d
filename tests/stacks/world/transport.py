"""A transport into the test world: commands run here, with the world's stubs first on PATH."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bedplate.provider.errors import UnreachableError
from bedplate.provider.ssh import Completed
from tests.stacks.world import World

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bedplate.provider.model import Machine

COMMANDS = (
    "kubeadm",
    "kubectl",
    "crictl",
    "systemctl",
    "journalctl",
    "getent",
    "ip",
    *(f"{family}-{verb}" for family in ("iptables", "ip6tables") for verb in ("save", "restore")),
)


class WorldTransport:
    """Takes the place of SSH."""

    def __init__(self, private_key: Path | None, known_hosts: Path | None, site: Path) -> None:
        del private_key, known_hosts, site
        self._world = World.from_environment()
        self._bin = self._world.directory / "bin"
        self._bin.mkdir(exist_ok=True)
        stub = Path(__file__).with_name("stub.py")
        for command in COMMANDS:
            path = self._bin / command
            if not path.exists():
                path.write_text(f'#!/bin/sh\nexec {sys.executable} {stub} {command} "$@"\n')
                path.chmod(0o755)

    async def run(
        self, host: Machine, argv: Sequence[str], *, stdin: str, seconds: float
    ) -> Completed:
        """Run a command as if on the host."""
        root = self._world.root(host.name)
        if not root.is_dir():
            raise UnreachableError(f"{host.name} cannot be reached — {host.address}")
        words = list(argv)
        if words[0] == "python3":
            words[0] = sys.executable
            stdin = stdin.rstrip().removesuffix("))") + f", {str(root)!r}))\n"
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={
                **os.environ,
                "PATH": f"{self._bin}:{os.environ['PATH']}",
                "BEDPLATE_TEST_HOST": host.name,
            },
            # As over SSH: what runs on a host does not end with the provider.
            start_new_session=True,
        )
        async with asyncio.timeout(seconds):
            output, errors = await process.communicate(stdin.encode())
        return Completed(process.returncode or 0, output.decode(), errors.decode())

    async def close(self) -> None:
        """There is nothing to close."""
