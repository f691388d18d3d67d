"""A signing key that is thrown away with the repository that it signed."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from tests.substrate.standin.packages import ORIGIN

if TYPE_CHECKING:
    from pathlib import Path

PUBLIC = "standin.asc"


class Key:
    """A key pair in a GnuPG home of its own."""

    def __init__(self, home: Path) -> None:
        home.mkdir(mode=0o700)
        self.home = home
        self._gpg("--passphrase", "", "--quick-generate-key", ORIGIN, "rsa2048", "sign", "never")
        listed = self._gpg("--with-colons", "--list-keys").decode()
        fields = [line.split(":") for line in listed.splitlines()]
        self.fingerprint = next(field[9] for field in fields if field[0] == "fpr")
        self.public = self._gpg("--armor", "--export", self.fingerprint)

    def clear_signed(self, text: bytes) -> bytes:
        """Return a text with its signature around it."""
        return self._gpg("--clearsign", stdin=text)

    def detached(self, content: bytes) -> bytes:
        """Return a signature by itself, as dnf's index has it."""
        return self._gpg("--armor", "--detach-sign", stdin=content)

    def close(self) -> None:
        """End the agent that GnuPG started for this home."""
        subprocess.run(["gpgconf", "--homedir", str(self.home), "--kill", "all"], check=False)

    def _gpg(self, *arguments: str, stdin: bytes = b"") -> bytes:
        command = ["gpg", "--batch", "--quiet", "--homedir", str(self.home), *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, check=True).stdout
