"""A host's disk as it was once, to start from again: its image layer and its /var."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.substrate.hosts import containers, faults, image, lifecycle, ssh
from tests.substrate.hosts.shell import run, succeeds

if TYPE_CHECKING:
    from pathlib import Path

    from tests.substrate.hosts.description import Description, Host


@dataclass(frozen=True)
class Snapshot:
    """The disk of one host; ``folder`` holds what it had below /var."""

    description: Description
    host: Host
    image: str
    folder: Path

    def restore(self) -> None:
        """Replace the host by one with this disk, and wait until it answers."""
        name = self.description.container(self.host)
        containers.remove(name)
        label = f"{containers.LABEL}={self.description.network}"
        run(["podman", "volume", "create", "--label", label, containers.volume(name)])
        run(
            containers.create_command(
                self.description,
                self.host,
                self.image,
                containers.Machine.here(),
                image.recipe(self.host.os).cgroup_v1_environment,
            )
        )
        run(["cp", "--archive", f"{self.folder}/.", _volume(name)])
        containers.start(name)
        ssh.wait(name, self.host.address, lifecycle.BOOT_SECONDS)

    def drop(self) -> None:
        """Remove the snapshot; a host that runs on it must be gone."""
        succeeds(["podman", "image", "rm", "--force", self.image])
        shutil.rmtree(self.folder, ignore_errors=True)


def take(description: Description, host: Host, folder: Path) -> Snapshot:
    """Keep a host's disk as it is now; the host is shut down for it and started again."""
    name = description.container(host)
    made = Snapshot(description, host, f"localhost/bedplate-snapshot:{name}", folder)
    made.drop()
    faults.shut_down(description, host)
    run(["podman", "commit", "--quiet", name, made.image])
    folder.parent.mkdir(parents=True, exist_ok=True)
    run(["cp", "--archive", _volume(name), str(folder)])
    faults.power_on(description, host)
    return made


def _volume(container: str) -> str:
    ask = ["podman", "volume", "inspect", "--format", "{{.Mountpoint}}"]
    return run([*ask, containers.volume(container)]).strip()
