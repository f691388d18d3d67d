"""A small world for the provider: hosts are directories, their commands are stubs.

The provider's own code runs unchanged, `on_host` included; only SSH, kubeadm, kubectl, crictl and
systemd are played by `stub.py`. Everything lies in files, so that a test in another process sees
what happened, and a killed provider leaves what a killed provider leaves.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

ENVIRONMENT = "BEDPLATE_TEST_WORLD"


class World:
    """The world in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "hosts").mkdir(parents=True, exist_ok=True)

    @classmethod
    def from_environment(cls) -> World:
        """Return the world that the environment names."""
        return cls(Path(os.environ[ENVIRONMENT]))

    def root(self, host: str) -> Path:
        """Return a host's root directory; a host without one cannot be reached."""
        return self.directory / "hosts" / host

    def add(self, host: str, gpus: int = 0) -> None:
        """Start a host."""
        self.root(host).mkdir()
        self.set(host, gpus=gpus)

    def set(self, host: str, **settings: Any) -> None:
        """Change how a host's stubs behave: gpus, devices, not_ready, plugin, fail, …"""
        path = self.root(host) / "settings.json"
        old = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({**old, **settings}))

    def address(self, host: str) -> str:
        """Return a host's address: its name's, unless its setting `address` says another."""
        path = self.root(host) / "settings.json"
        settings = json.loads(path.read_text()) if path.exists() else {}
        return str(settings.get("address", f"{host}.example"))

    @property
    def api(self) -> dict[str, Any]:
        """Return the cluster's objects: `nodes`, those `gone`, `members`, those `silent`, …"""
        path = self.directory / "api.json"
        empty = {"nodes": {}, "tokens": [], "upper": [], "authority": ""}
        return json.loads(path.read_text()) if path.exists() else empty

    @property
    def members(self) -> list[str]:
        """Return the names of etcd's members, in order."""
        return sorted(one["name"] for one in self.api.get("members", []))

    def write_api(self, api: dict[str, Any]) -> None:
        """Replace the cluster's objects."""
        fresh = self.directory / f"api.{os.getpid()}"
        fresh.write_text(json.dumps(api))
        fresh.replace(self.directory / "api.json")

    def note(self, host: str, command: str) -> None:
        """Write a command into the world's journal."""
        with (self.directory / "journal").open("a") as journal:
            journal.write(f"{host}: {command}\n")

    def journal(self, containing: str = "") -> list[str]:
        """Return the commands that ran, as `host: command`."""
        path = self.directory / "journal"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if containing in line]
