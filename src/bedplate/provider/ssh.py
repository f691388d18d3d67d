"""Commands on hosts over SSH: one connection a host, one a bastion, host keys always checked."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import asyncssh

from bedplate.provider import sudo
from bedplate.provider.errors import ProviderError, UnreachableError, message
from bedplate.provider.openssh import Options
from bedplate.provider.passwords import Passwords

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence

    from bedplate.common.connection import Connection

CONNECT_SECONDS = 20.0
# sshd's MaxSessions is 10 by default, and it counts a session for a moment after its end.
SESSIONS = 6
AGAIN_SECONDS = 0.2
# What sshd says as it ends a connection that tried more than its MaxAuthTries.
TOO_MANY = "authentication failures"


@dataclass(frozen=True)
class Completed:
    """What a command did: exit status, standard output, standard error."""

    status: int
    output: str
    errors: str


class LoginRefusedError(UnreachableError):
    """A host that answers and lets nobody in; `reason` is SSH's own word."""

    def __init__(self, said: str, reason: str) -> None:
        super().__init__(said)
        self.reason = reason


class Transport(Protocol):
    """Runs commands on hosts; tests bring their own."""

    async def run(
        self, host: Connection, argv: Sequence[str], *, stdin: str, seconds: float
    ) -> Completed:
        """Run a command as root and return what it did.

        Raises UnreachableError if the host does not answer, TimeoutError after `seconds`.
        """

    async def close(self) -> None:
        """Close every connection."""


class SshTransport:
    """asyncssh, with the user's own agent, configuration and known hosts unless told otherwise.

    Relative paths of keys start at the site, which also has the passwords of SSH and of sudo.
    """

    def __init__(
        self,
        private_key: Path | None = None,
        known_hosts: Path | None = None,
        site: Path | None = None,
    ) -> None:
        self._private_key, self._known_hosts = private_key, known_hosts
        self._openssh = Options(site or Path(), known_hosts)
        self._passwords = Passwords(site, "sudo") if site else None
        self._logins = Passwords(site, "login") if site else None
        self._denied: dict[Connection, str] = {}
        self._connections: dict[object, asyncio.Task[asyncssh.SSHClientConnection]] = {}
        self._sessions: dict[Connection, asyncio.Semaphore] = {}
        self._becoming_root: dict[Connection, asyncio.Lock] = {}
        self._let_in: set[Connection] = set()
        self._refused: dict[Connection, str] = {}

    async def run(
        self, host: Connection, argv: Sequence[str], *, stdin: str, seconds: float
    ) -> Completed:
        """Run a command as root; see `Transport.run`. Raises ProviderError if sudo refuses."""
        async with asyncio.timeout(seconds):
            connection = await self._connection(host)
            async with self._sessions.setdefault(host, asyncio.Semaphore(SESSIONS)):
                try:
                    done = await self._run(connection, host, argv, stdin)
                except sudo.OutputError:
                    raise ProviderError(
                        message(
                            f"{host.name} printed more than {sudo.LARGEST >> 20} MiB",
                            str(host),
                            f"too much of `{argv[0]}`",
                            "an answer",
                            f"run `{shlex.join(argv[:4])}` on that host, and see what it prints",
                        )
                    ) from None
                except (asyncssh.Error, OSError) as error:
                    self._connections.pop(host, None)
                    raise UnreachableError(
                        message(
                            f"connection to {host.name} broke",
                            str(host),
                            error,
                            "an answer over SSH",
                            "see that the host is up, then run pulumi up again: it goes on",
                        )
                    ) from error
        status, output, errors = done
        if status is None or status < 0:
            self._connections.pop(host, None)
            raise UnreachableError(f"{host.name} went away while `{argv[0]}` ran on it")
        return Completed(status, output, errors)

    async def close(self) -> None:
        """Close every connection."""
        for opening in self._connections.values():
            if opening.done() and not opening.cancelled() and opening.exception() is None:
                opening.result().close()
            else:
                opening.cancel()
        self._connections.clear()
        self._openssh.close()

    async def _run(
        self,
        connection: asyncssh.SSHClientConnection,
        host: Connection,
        argv: Sequence[str],
        stdin: str,
    ) -> tuple[int | None, str, str]:
        if host.user == "root":
            return await _with_a_session(connection, lambda: _plain(connection, argv, stdin))

        async def password() -> str | None:
            return await self._passwords.of(host.name) if self._passwords else None

        return await _with_a_session(
            connection,
            lambda: sudo.run(connection, argv, stdin, password, self._becoming(host)),
        )

    @contextlib.asynccontextmanager
    async def _becoming(self, host: Connection) -> AsyncIterator[None]:
        """Hold other commands back until sudo has let one in: a wrong password is tried once."""
        async with contextlib.AsyncExitStack() as alone:
            if host not in self._let_in:
                lock = self._becoming_root.setdefault(host, asyncio.Lock())
                await alone.enter_async_context(lock)
            if host in self._refused:
                # Asking again would not help, and might lock the account.
                raise ProviderError(self._refused[host])
            try:
                yield
            except sudo.SudoError as error:
                self._refused[host] = _refusal(host, error)
                raise ProviderError(self._refused[host]) from error
            self._let_in.add(host)

    async def _connection(self, host: Connection) -> asyncssh.SSHClientConnection:
        return await self._shared(host, lambda: self._connect(host))

    async def _shared(
        self,
        key: object,
        connect: Callable[[], Coroutine[Any, Any, asyncssh.SSHClientConnection]],
    ) -> asyncssh.SSHClientConnection:
        opening = self._connections.get(key)
        if opening is None or (opening.done() and _lost(opening)):
            opening = asyncio.ensure_future(connect())
            # The caller may have given up by the time it fails.
            opening.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._connections[key] = opening
        # One caller's timeout must not end the connection that others wait for.
        return await asyncio.shield(opening)

    async def _connect(self, host: Connection) -> asyncssh.SSHClientConnection:
        if host in self._denied:
            # Asking again would not help, and might lock the account.
            raise UnreachableError(self._denied[host])
        options = self._options()
        if keys := self._keys(host):
            options["client_keys"] = keys
        if host.jump:
            options["tunnel"] = await self._hop(host, len(host.jump))
        options |= {"port": host.port, "username": host.user}
        gone = (
            "start the host or correct its address; if it is gone permanently, set "
            "BEDPLATE_FORCE=true to forget it"
        )

        async def opened(password: str | None = None) -> asyncssh.SSHClientConnection:
            more = self._openssh.configuration(host, password=password is not None)
            given = options | more | {"password": password}
            return await self._open(host.name, str(host), gone, host.address, given, host)

        try:
            return await opened()
        except LoginRefusedError:
            # Only now: where a key lets in, no password is read, and none leaves this machine.
            password = await self._logins.of(host.name) if self._logins else None
            if password is None:
                raise
        try:
            return await opened(password)
        except LoginRefusedError as error:
            self._denied[host] = _wrong_password(host, error.reason)
            raise UnreachableError(self._denied[host]) from error

    async def _hop(self, host: Connection, count: int) -> asyncssh.SSHClientConnection:
        """Return the connection to the last of a host's first hops: hosts behind it share it."""

        async def connect() -> asyncssh.SSHClientConnection:
            hop = host.hops[count - 1]
            options = self._options() | self._openssh.of_bastions(host)
            named = {"port": hop.port, "username": hop.user}
            options |= {name: value for name, value in named.items() if value is not None}
            if keys := self._keys(host):
                # With those that SSH's configuration has for the bastion, or the user's own.
                try:
                    known = asyncssh.SSHClientConnectionOptions(host=hop.host, **options)
                except (ValueError, OSError) as error:
                    raise _unusable(f"bastion {hop.host}", str(hop), error, options) from error
                options["client_keys"] = [*keys, *(known.client_keys or ())]
            if count > 1:
                options["tunnel"] = await self._hop(host, count - 1)
            fix = "start the bastion, or correct it in the inventory or in ~/.ssh/config"
            name = f"bastion {hop.host}"
            return await self._open(name, str(hop), fix, hop.host, options, host, bastion=True)

        key = (host.jump[:count], host.keys, host.config, host.options)
        return await self._shared(key, connect)

    def _options(self) -> dict[str, Any]:
        return {
            "connect_timeout": CONNECT_SECONDS,
            "keepalive_interval": 15,
            # The agent has the key of a file with a passphrase, as for Ansible.
            "ignore_encrypted": True,
        }

    def _keys(self, host: Connection) -> list[str]:
        """Return the key files that are there. Raises UnreachableError if none of several is."""
        named = [self._openssh.path(text) for text in host.keys]
        if self._private_key is not None:
            named.append(self._private_key)
        found = [str(path) for path in named if path.is_file()]
        if named and not found:
            raise UnreachableError(
                message(
                    f"key for {host.name} is not there",
                    str(host),
                    f"no file {', '.join(map(str, named))}",
                    "a private key",
                    "put it there, or set bedplate:privateKey to another",
                )
            )
        return found

    async def _open(
        self,
        name: str,
        where: str,
        gone: str,
        address: str,
        options: dict[str, Any],
        host: Connection,
        *,
        bastion: bool = False,
    ) -> asyncssh.SSHClientConnection:
        if not bastion and (missing := self._openssh.missing(host)):
            raise _no_certificate(name, where, missing)
        try:
            found = asyncssh.SSHClientConnectionOptions(host=address, **options)
            known = self._openssh.known_hosts(host, found, bastion=bastion)
            if known is None:
                raise _unchecked(name, where)
            return await asyncssh.connect(address, known_hosts=known, **options)
        except asyncssh.HostKeyNotVerifiable as error:
            raise UnreachableError(
                message(
                    f"host key of {name} is not known",
                    where,
                    error.reason,
                    f"a key in {self._known_hosts or '~/.ssh/known_hosts'}",
                    "compare the host's key with its console, then add it there",
                )
            ) from error
        except (asyncssh.PermissionDenied, asyncssh.ProtocolError) as error:
            # The second is a server's that counts the keys of an agent: "Too many …".
            if TOO_MANY not in error.reason and not isinstance(error, asyncssh.PermissionDenied):
                raise _unreached(name, where, error, gone) from error
            raise LoginRefusedError(
                message(
                    f"{name} refuses the login",
                    where,
                    error.reason,
                    "public key authentication"
                    + ("" if bastion else ", or the site's ansible_password"),
                    "set bedplate:privateKey, or load the key into your SSH agent",
                ),
                error.reason,
            ) from error
        except ValueError as error:
            raise _unusable(name, where, error, options) from error
        except (asyncssh.Error, OSError, TimeoutError) as error:
            raise _unreached(name, where, error, gone) from error


def _unreached(name: str, where: str, error: Exception, gone: str) -> UnreachableError:
    got = str(error) or type(error).__name__
    return UnreachableError(
        message(f"{name} cannot be reached", where, got, "an answer over SSH", gone)
    )


def _wrong_password(host: Connection, reason: str) -> str:
    """Return what it means that a host refuses keys and the site's password."""
    return message(
        f"{host.name} refuses the password",
        str(host),
        reason,
        f"{host.user}'s password there, or a key",
        "correct ansible_password of this host",
    )


def _no_certificate(name: str, where: str, missing: Sequence[str]) -> UnreachableError:
    return UnreachableError(
        message(
            f"certificate for {name} is not there",
            where,
            f"no file {', '.join(missing)}",
            "a certificate of the key",
            "put it there, or correct CertificateFile in ansible_ssh_common_args",
        )
    )


def _unchecked(name: str, where: str) -> UnreachableError:
    """Return what it means that SSH's configuration wants no host keys checked."""
    return UnreachableError(
        message(
            f"host key of {name} would not be checked",
            where,
            "UserKnownHostsFile none in SSH's configuration",
            "a file of known hosts",
            "take that line out, or set bedplate:knownHosts to a file",
        )
    )


def _unusable(name: str, where: str, error: Exception, options: dict[str, Any]) -> UnreachableError:
    """Return what a file that asyncssh cannot read means for the user."""
    keys = [key for key in options.get("client_keys", ()) if isinstance(key, str)]
    return UnreachableError(
        message(
            f"settings of SSH for {name} cannot be used",
            where,
            f"{error} ({', '.join(keys)})" if keys else error,
            "private keys, known hosts and a configuration of SSH that can be read",
            "correct the file, or load the key into your SSH agent and name no file",
        )
    )


def _refusal(host: Connection, error: sudo.SudoError) -> str:
    """Return what sudo's refusal means for the user."""
    if error.given:
        what, allowed = f"sudo on {host.name} refuses the password", f"{host.user}'s password there"
        fix = "correct ansible_become_password of this host"
    elif error.asked:
        what = f"sudo on {host.name} wants a password, and the site has none"
        allowed = "ansible_become_password in the site, best in a vault; or sudo without one"
        fix = "set it for this host, or ANSIBLE_BECOME_PASS in the environment of pulumi"
    else:
        what, allowed = f"sudo on {host.name} runs no command", "commands as root, without a tty"
        fix = f"correct sudoers there: {host.user} ALL=(ALL) ALL, and no requiretty"
    return message(what, str(host), error.said or "no word from sudo", allowed, fix)


async def _with_a_session[T](
    connection: asyncssh.SSHClientConnection, start: Callable[[], Coroutine[Any, Any, T]]
) -> T:
    while True:
        try:
            return await start()
        except asyncssh.ChannelOpenError:
            # The server has no session to spare: nothing was started, so asking again is safe.
            if connection.is_closed():
                raise
            await asyncio.sleep(AGAIN_SECONDS)


async def _plain(
    connection: asyncssh.SSHClientConnection, argv: Sequence[str], stdin: str
) -> tuple[int | None, str, str]:
    # An empty input is not ended by asyncssh: a command that reads would wait for ever.
    given: dict[str, Any] = {"input": stdin} if stdin else {"stdin": asyncssh.DEVNULL}
    process = await connection.create_process(shlex.join(argv), errors="replace", **given)
    heard = sudo.Heard()
    listening = heard.both(process)
    try:
        await asyncio.gather(*listening)
        await process.wait(check=False)
    finally:
        await sudo.end(process, listening)
    return process.exit_status, heard.output, heard.errors


def _lost(opening: asyncio.Task[asyncssh.SSHClientConnection]) -> bool:
    if opening.cancelled() or opening.exception() is not None:
        return True
    return opening.result().is_closed()
