"""Commands on hosts over SSH: one connection a host, host keys always checked."""

from __future__ import annotations

import asyncio
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import asyncssh

from bedplate.provider.errors import UnreachableError, message

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bedplate.provider.model import Machine

CONNECT_SECONDS = 20.0
# sshd's MaxSessions is 10 by default, and it counts a session for a moment after its end.
SESSIONS = 6
AGAIN_SECONDS = 0.2


@dataclass(frozen=True)
class Completed:
    """What a command did: exit status, standard output, standard error."""

    status: int
    output: str
    errors: str


class Transport(Protocol):
    """Runs commands on hosts; tests bring their own."""

    async def run(
        self, host: Machine, argv: Sequence[str], *, stdin: str, seconds: float
    ) -> Completed:
        """Run a command as root and return what it did.

        Raises UnreachableError if the host does not answer, TimeoutError after `seconds`.
        """

    async def close(self) -> None:
        """Close every connection."""


class SshTransport:
    """asyncssh, with the user's own agent, configuration and known hosts unless told otherwise."""

    def __init__(self, private_key: Path | None = None, known_hosts: Path | None = None) -> None:
        self._options: dict[str, Any] = {}
        if private_key is not None:
            self._options["client_keys"] = [str(private_key)]
        if known_hosts is not None:
            self._options["known_hosts"] = str(known_hosts)
        self._connections: dict[Machine, asyncio.Task[asyncssh.SSHClientConnection]] = {}
        self._sessions: dict[Machine, asyncio.Semaphore] = {}

    async def run(
        self, host: Machine, argv: Sequence[str], *, stdin: str, seconds: float
    ) -> Completed:
        """Run a command as root; see `Transport.run`."""
        words = list(argv) if host.user == "root" else ["sudo", "-n", *argv]
        async with asyncio.timeout(seconds):
            connection = await self._connection(host)
            async with self._sessions.setdefault(host, asyncio.Semaphore(SESSIONS)):
                try:
                    done = await _run(connection, shlex.join(words), stdin)
                except (asyncssh.Error, OSError) as error:
                    self._connections.pop(host, None)
                    raise UnreachableError(
                        message(
                            f"connection to {host.name} broke",
                            f"{host.user}@{host.address}:{host.port}",
                            error,
                            "an answer over SSH",
                            "see that the host is up, then run pulumi up again: it goes on",
                        )
                    ) from error
        if done.exit_status is None or done.exit_status < 0:
            self._connections.pop(host, None)
            raise UnreachableError(f"{host.name} went away while `{words[0]}` ran on it")
        return Completed(done.exit_status, str(done.stdout or ""), str(done.stderr or ""))

    async def close(self) -> None:
        """Close every connection."""
        for opening in self._connections.values():
            if opening.done() and not opening.cancelled() and opening.exception() is None:
                opening.result().close()
            else:
                opening.cancel()
        self._connections.clear()

    async def _connection(self, host: Machine) -> asyncssh.SSHClientConnection:
        opening = self._connections.get(host)
        if opening is None or (opening.done() and _lost(opening)):
            opening = asyncio.ensure_future(self._connect(host))
            self._connections[host] = opening
        # One caller's timeout must not end the connection that others wait for.
        return await asyncio.shield(opening)

    async def _connect(self, host: Machine) -> asyncssh.SSHClientConnection:
        where = f"{host.user}@{host.address}:{host.port}"
        try:
            return await asyncssh.connect(
                host.address,
                port=host.port,
                username=host.user,
                connect_timeout=CONNECT_SECONDS,
                keepalive_interval=15,
                **self._options,
            )
        except asyncssh.HostKeyNotVerifiable as error:
            raise UnreachableError(
                message(
                    f"host key of {host.name} is not known",
                    where,
                    error.reason,
                    f"a key in {self._options.get('known_hosts', '~/.ssh/known_hosts')}",
                    "compare the host's key with its console, then add it there",
                )
            ) from error
        except asyncssh.PermissionDenied as error:
            raise UnreachableError(
                message(
                    f"{host.name} refuses the login",
                    where,
                    error.reason,
                    "public key authentication",
                    "set bedplate:privateKey, or load the key into your SSH agent",
                )
            ) from error
        except (asyncssh.Error, OSError, TimeoutError) as error:
            raise UnreachableError(
                message(
                    f"{host.name} cannot be reached",
                    where,
                    str(error) or type(error).__name__,
                    "an answer over SSH",
                    "start the host or correct its address; if it is gone for good, set "
                    "BEDPLATE_FORCE=true to forget it",
                )
            ) from error


async def _run(
    connection: asyncssh.SSHClientConnection, command: str, stdin: str
) -> asyncssh.SSHCompletedProcess:
    # An empty input is not ended by asyncssh: a command that reads would wait for ever.
    given: dict[str, Any] = {"input": stdin} if stdin else {"stdin": asyncssh.DEVNULL}
    while True:
        try:
            return await connection.run(command, check=False, **given)
        except asyncssh.ChannelOpenError:
            # The server has no session to spare: nothing was started, so asking again is safe.
            if connection.is_closed():
                raise
            await asyncio.sleep(AGAIN_SECONDS)


def _lost(opening: asyncio.Task[asyncssh.SSHClientConnection]) -> bool:
    if opening.cancelled() or opening.exception() is not None:
        return True
    return opening.result().is_closed()
