"""Passwords of sudo and of SSH, from the site at the moment they are asked for: in no state.

Reading a site is Ansible's work, in a process of its own: with the ansible.cfg that is nearest
above the site, since Pulumi runs elsewhere, unless ANSIBLE_CONFIG names another.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from bedplate.provider.errors import ProviderError, message

if TYPE_CHECKING:
    from pathlib import Path

#: How long reading the site may take.
SECONDS = 300


class Passwords:
    """The passwords of a site's hosts; the site is read once, when the first one is needed.

    `kind` is whose they are: `sudo` or `login`.
    """

    def __init__(self, site: Path, kind: Literal["sudo", "login"]) -> None:
        self._site, self._kind = site, kind
        self._reading: asyncio.Task[dict[str, Any]] | None = None

    async def of(self, name: str) -> str | None:
        """Return a host's password; of a host that has left the site, what all hosts have.

        Raises ProviderError if the site cannot be read.
        """
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._read())
        found = await asyncio.shield(self._reading)
        password: str | None = found["hosts"].get(name, found["others"])
        return password

    async def _read(self) -> dict[str, Any]:
        folders = (self._site, *self._site.parents)
        home = next((one for one in folders if (one / "ansible.cfg").is_file()), self._site)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "bedplate.site.passwords",
            str(self._site),
            self._kind,
            cwd=home,
            env=os.environ | {"PYTHONSAFEPATH": "1"},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # so that its children can be ended with it
        )
        try:
            async with asyncio.timeout(SECONDS):
                output, errors = await process.communicate()
        except BaseException as error:
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, TimeoutError):
                raise self._unread(f"no end within {SECONDS} s") from error
            raise
        if process.returncode:
            raise self._unread(errors.decode(errors="replace").strip()[-600:])
        found: dict[str, Any] = json.loads(output)
        return found

    def _unread(self, got: str) -> ProviderError:
        return ProviderError(
            message(
                ("sudo's" if self._kind == "sudo" else "SSH's") + " password cannot be read",
                str(self._site),
                got,
                "a site that `bedplate plan` can read, with its vault password",
                "correct it, or set ANSIBLE_VAULT_PASSWORD_FILE",
            )
        )
