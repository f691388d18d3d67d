"""What happens to real hosts, for tests: power loss, a pulled cable, a taken port, a full disk.

Each fault is undone by its counterpart, or by leaving the ``with`` block that made it.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.substrate.hosts import containers, lifecycle, ssh
from tests.substrate.hosts.errors import SubstrateError
from tests.substrate.hosts.shell import run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.substrate.hosts.description import Description, Host

LISTENER = "substrate-port-{port}"


def power_off(description: Description, host: Host) -> None:
    """Take a host's power away: nothing in it gets to say goodbye. It stays off."""
    name = description.container(host)
    run(["podman", "kill", "--signal", "KILL", name])
    # Stopping what is dead already tells podman that this is meant, so that it does not restart it.
    run(["podman", "stop", "--time", "0", name])


def shut_down(description: Description, host: Host) -> None:
    """Stop a host in order. It stays off."""
    run(["podman", "stop", description.container(host)])


def power_on(description: Description, host: Host) -> None:
    """Start a host that is off, and wait until it answers over SSH."""
    containers.start(description.container(host))
    ssh.wait(description.container(host), host.address, lifecycle.BOOT_SECONDS)


@contextmanager
def cable_pulled(description: Description, host: Host) -> Iterator[None]:
    """Cut a host's network at the machine's end, as a pulled cable does, and mend it afterwards."""
    link = _machine_link(description.container(host))
    run(["ip", "link", "set", "dev", link, "down"])
    try:
        yield
    finally:
        run(["ip", "link", "set", "dev", link, "up"])
        ssh.wait(description.container(host), host.address, lifecycle.BOOT_SECONDS)


@contextmanager
def port_taken(description: Description, host: Host, port: int) -> Iterator[None]:
    """Let another program of the host listen on a TCP port."""
    name = description.container(host)
    unit = LISTENER.format(port=port)
    program = (
        "import socket,time; s=socket.socket(); s.setsockopt(1,2,1);"
        f" s.bind(('0.0.0.0',{port})); s.listen(); print('listening',flush=True); time.sleep(86400)"
    )
    command = ["systemd-run", "--quiet", "--collect", f"--unit={unit}", "--service-type=exec"]
    containers.execute(name, *command, "/usr/bin/python3", "-c", program)
    _await_listener(name, unit)
    try:
        yield
    finally:
        containers.execute(name, "systemctl", "stop", unit)


@contextmanager
def little_room(description: Description, host: Host, path: str, mebibytes: int) -> Iterator[None]:
    """Put a small file system over a directory of a host, which thus has that many MiB in all.

    A host's disk is a part of the machine's own, which a test must not fill. The directory looks
    empty as long as this lasts.
    """
    name = description.container(host)
    containers.execute(name, "mkdir", "-p", path)
    containers.execute(name, "mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "little", path)
    try:
        yield
    finally:
        containers.execute(name, "umount", path)


def _machine_link(name: str) -> str:
    """Return the machine's end of a host's cable."""
    index = int(containers.execute(name, "cat", "/sys/class/net/eth0/iflink"))
    for link in json.loads(run(["ip", "-json", "link", "show"])):
        if link["ifindex"] == index:
            return str(link["ifname"])
    raise SubstrateError(
        "a host's network link is not on this machine",
        name,
        f"no interface with index {index}",
        "the other end of the host's eth0",
        "take the substrate down and up again",
    )


def _await_listener(name: str, unit: str) -> None:
    """Wait until the unit's program has said that it listens; fail if it has ended instead."""
    script = (
        f"for i in $(seq 100); do systemctl --quiet is-active {unit} || exit 1;"
        f" journalctl --quiet --boot --unit {unit} | grep -q listening && exit 0;"
        " sleep 0.1; done; exit 1"
    )
    containers.execute(name, "sh", "-c", script)
