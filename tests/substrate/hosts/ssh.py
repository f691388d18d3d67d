"""SSH into the hosts: a key made for the site's run, and host keys that are known beforehand."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

from tests.substrate.hosts.errors import SubstrateError
from tests.substrate.hosts.shell import run

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

PORT = 22


def folder(site: Path) -> Path:
    """Return the directory that holds a site's key pair and known hosts."""
    return site / ".bedplate" / "ssh"


def ensure_key(site: Path) -> str:
    """Return the public key of the site's run, making the pair if there is none."""
    private = folder(site) / "id_ed25519"
    if not private.exists():
        private.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        private.with_suffix(".pub").unlink(missing_ok=True)
        comment = f"bedplate {site.name}"
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(private)])
    return private.with_suffix(".pub").read_text()


def render_known_hosts(keys: Mapping[str, Iterable[str]]) -> str:
    """Return a known_hosts file: one line an address and key, without the keys' comments.

    ``keys`` maps an address to its host's public keys, as they lie in /etc/ssh/ssh_host_*_key.pub.
    """
    lines = [
        f"{address} {' '.join(key.split()[:2])}"
        for address, public in sorted(keys.items())
        for key in public
    ]
    return "".join(f"{line}\n" for line in lines)


def write_known_hosts(site: Path, text: str) -> None:
    """Write the site's known_hosts file, whole or not at all."""
    target = folder(site) / "known_hosts"
    if target.exists() and target.read_text() == text:
        return
    made = target.with_suffix(".new")
    made.write_text(text)
    made.rename(target)


def wait(name: str, address: str, seconds: float) -> None:
    """Wait until a host's SSH server answers with its banner."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            with socket.create_connection((address, PORT), timeout=2) as connection:
                if connection.recv(4) == b"SSH-":
                    return
                problem = "no SSH banner"
        except OSError as error:
            problem = str(error)
        if time.monotonic() > deadline:
            raise SubstrateError(
                "a host does not answer over SSH",
                f"{name} at {address}:{PORT}",
                f"{problem} after {seconds:.0f} s",
                "an SSH server",
                f"see 'podman logs {name}' and 'podman exec {name} systemctl --failed'",
            )
        time.sleep(0.1)
