"""A host's options of OpenSSH, and the files of known hosts, as asyncssh takes them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncssh

from bedplate.common import ssh_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence, Set

    from bedplate.common.connection import Connection

#: What OpenSSH reads where nothing else is said, by ssh_config(5).
NO_CONFIG = "none"
OWN_CONFIG = "~/.ssh/config"
USERS, EVERYBODYS = "UserKnownHostsFile", "GlobalKnownHostsFile"
DEFAULTS = {
    USERS: ("~/.ssh/known_hosts", "~/.ssh/known_hosts2"),
    EVERYBODYS: ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"),
}
CERTIFICATE = "CertificateFile"
#: Where there is no password, Ansible overrules these.
WITH_A_PASSWORD = frozenset(
    {"KbdInteractiveAuthentication", "PasswordAuthentication", "PreferredAuthentications"}
)


class Options:
    """The options of hosts, each combination a file that asyncssh reads as configuration."""

    def __init__(self, site: Path, known_hosts: Path | None) -> None:
        self._site, self._known_hosts = site, known_hosts
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._files: dict[tuple[str, ...], str] = {}

    def close(self) -> None:
        """Remove the files."""
        if self._folder is not None:
            self._folder.cleanup()
        self._folder, self._files = None, {}

    def path(self, text: str) -> Path:
        """Return a file that a host names: relative to the site."""
        return self._site / Path(text).expanduser()

    def configuration(self, host: Connection, *, password: bool) -> dict[str, list[str]]:
        """Return the files of configuration, as a keyword for asyncssh; none is the user's own.

        `password` tells whether one is used.
        """
        bare = self.of_bastions(host)
        lines = self._lines(host, DEFAULTS.keys() | (() if password else WITH_A_PASSWORD))
        if not lines:
            return bare
        users = Path(OWN_CONFIG).expanduser()
        own = bare.get("config", [str(users)] if users.is_file() else [])
        return {"config": [self._file(lines), *own]}

    def of_bastions(self, host: Connection) -> dict[str, list[str]]:
        """Return the same for the hosts ahead of a host, which have none of its options."""
        if host.config is None:
            return {}
        return {"config": [] if host.config == NO_CONFIG else [str(self.path(host.config))]}

    def missing(self, host: Connection) -> list[str]:
        """Return the certificates that are not there."""
        named = [path for path in self._named(host, CERTIFICATE) or () if not path.is_file()]
        return list(map(str, named))

    def known_hosts(
        self, host: Connection, found: asyncssh.SSHClientConnectionOptions, *, bastion: bool
    ) -> Any:
        """Return what asyncssh takes for known hosts; None where no key would be checked.

        A host's own option wins, then the file that the provider was given, then SSH's
        configuration and OpenSSH's defaults. Bastions are known by the first two together.
        `found` is what asyncssh made of the configuration.
        """
        users, everybodys = self._named(host, USERS), self._named(host, EVERYBODYS)
        if self._known_hosts is not None and (bastion or users is None):
            users = [*(users or ()), self._known_hosts]
            everybodys = everybodys or []
        if users is None:
            users = _paths(found.config.get(USERS, DEFAULTS[USERS]))
            if not users:
                return None
        if everybodys is None:
            everybodys = _paths(found.config.get(EVERYBODYS, DEFAULTS[EVERYBODYS]))
        files = [str(path) for path in (*users, *everybodys) if path.is_file()]
        if found.host_key_alias and not bastion:
            return _by_alias(files)
        return files or b""

    def _named(self, host: Connection, option: str) -> list[Path] | None:
        values = None
        for line in host.options:
            name, found = ssh_options.parsed(line)
            if name == option:
                values = [*(values or ()), *(one for one in found if one != "none")]
        return None if values is None else [self.path(one) for one in values]

    def _lines(self, host: Connection, without: Set[str]) -> tuple[str, ...]:
        lines = []
        for line in host.options:
            name, values = ssh_options.parsed(line)
            if name == CERTIFICATE:
                # asyncssh fills in what stands after a percent sign.
                values = [str(self.path(one)).replace("%", "%%") for one in values]
            if name not in without:
                lines.append(ssh_options.line(name, values))
        return tuple(lines)

    def _file(self, lines: tuple[str, ...]) -> str:
        if lines not in self._files:
            if self._folder is None:
                self._folder = tempfile.TemporaryDirectory(prefix="bedplate-ssh-")
            path = Path(self._folder.name) / f"{len(self._files)}.cfg"
            path.write_text("".join(f"{line}\n" for line in lines))
            self._files[lines] = str(path)
        return self._files[lines]


def _paths(names: Any) -> list[Path]:
    return [Path(name).expanduser() for name in names]


def _by_alias(files: Sequence[str]) -> Any:
    """Return the lookup of a host by its alias alone, without address and port, as ssh does it."""

    def matched(alias: str, _address: str, _port: int | None) -> Iterable[Any]:
        return asyncssh.read_known_hosts(files).match(alias, "", None)

    return matched
