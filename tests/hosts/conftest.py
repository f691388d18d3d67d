"""One bare host for all tests of this folder, and its disk as it was before any driver came."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.hosts import snapshots
from tests.hosts.runs import SITE, Machine
from tests.substrate.hosts import containers, description

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.hosts.snapshots import Snapshot

ROOT = SITE.parents[2]
DESCRIPTION = ROOT / "tests/substrate/hosts/driver.yml"


def substrate(verb: str, *arguments: str) -> None:
    """Start or remove the host."""
    command = [sys.executable, "-m", "tests.substrate", verb, str(DESCRIPTION), "--site", str(SITE)]
    subprocess.run([*command, *arguments], cwd=ROOT, check=True)


@pytest.fixture(scope="package")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """The bare host."""
    wanted = description.load(DESCRIPTION)
    substrate("down")  # what an interrupted run has left
    try:
        substrate("up", "--no-mirror")
        yield Machine(wanted, wanted.host("node"), tmp_path_factory.mktemp("driver"))
    finally:
        substrate("down")


@pytest.fixture(scope="package")
def bare(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Snapshot]:
    """The bare host's disk, with the tools that driver packages need: most of the time."""
    # As role host_baseline leaves a host. Otherwise nouveau would be there until the first reboot,
    # and a host that lost its power would differ from one that did not.
    blacklist = "echo 'blacklist nouveau' > /etc/modprobe.d/baseline.conf"
    containers.execute(machine.container, "sh", "-c", blacklist)
    helpers = "apt-get update && apt-get install -y --no-install-recommends dkms gcc pciutils"
    containers.execute(
        machine.container, "sh", "-c", f"export DEBIAN_FRONTEND=noninteractive; {helpers}"
    )
    disk = snapshots.take(
        machine.description, machine.host, tmp_path_factory.mktemp("disk") / "var"
    )
    try:
        yield disk
    finally:
        containers.remove(machine.container)
        disk.drop()
