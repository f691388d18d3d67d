"""What arguments of `ssh` say of the way to a host: user, port, keys, hosts in between, options.

Of the same option, ssh takes the first; of keys and certificates, all. Each option is carried to
Pulumi's provider, or has no part in which host is reached, or is refused. Pure functions.
Names and meanings are those of ssh_config(5) and ssh(1) of OpenSSH 10.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import PurePath
from typing import TYPE_CHECKING

from bedplate.common import ssh_options
from bedplate.common.connection import Hop

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

#: Options of ssh(1) that take a value.
_WITH_VALUE = frozenset("bceilmopBDEFIJLOPQRSWw")
#: Short options, as the configuration spells them.
_SHORT = {
    "b": "bindaddress",
    "c": "ciphers",
    "i": "identityfile",
    "l": "user",
    "m": "macs",
    "p": "port",
    "D": "dynamicforward",
    "E": "loglevel",
    "J": "proxyjump",
    "L": "localforward",
    "R": "remoteforward",
    "S": "controlpath",
    "W": "stdioforward",
    "e": "escapechar",
}
#: What the configuration has other names for.
_SAME = {
    "challengeresponseauthentication": "kbdinteractiveauthentication",
    "keepalive": "tcpkeepalive",
}
_WAY = frozenset({"identityfile", "user", "port", "proxyjump", "proxycommand", "stdioforward"})
#: Options that hold files; a relative path starts where ssh runs.
FILES = frozenset({"CertificateFile", "GlobalKnownHostsFile", "UserKnownHostsFile"})
#: Options that the provider takes over, in the spelling of ssh_config(5).
CARRIED = {
    name.lower(): name
    for name in (
        *FILES,
        "AddressFamily",
        "BindAddress",
        "CASignatureAlgorithms",
        "Ciphers",
        "HostKeyAlgorithms",
        "HostKeyAlias",
        "IdentitiesOnly",
        "IdentityAgent",
        "KbdInteractiveAuthentication",
        "KexAlgorithms",
        "MACs",
        "PasswordAuthentication",
        "PreferredAuthentications",
        "PubkeyAuthentication",
    )
}
#: Options without a part in which host is reached, and how it is known: what a session has, how
#: long ssh waits, what it prints, what it opens besides.
HARMLESS = frozenset(
    {
        "batchmode",
        "checkhostip",
        "clearallforwardings",
        "compression",
        "compressionlevel",
        "connectionattempts",
        "connecttimeout",
        "controlmaster",
        "controlpath",
        "controlpersist",
        "dynamicforward",
        "enableescapecommandline",
        "escapechar",
        "exitonforwardfailure",
        "fingerprinthash",
        "forwardagent",
        "forwardx11",
        "forwardx11timeout",
        "forwardx11trusted",
        "gatewayports",
        "hashknownhosts",
        "ipqos",
        "localforward",
        "loglevel",
        "logverbose",
        "numberofpasswordprompts",
        "obscurekeystroketiming",
        "protocol",
        "rekeylimit",
        "remoteforward",
        "requesttty",
        "sendenv",
        "serveralivecountmax",
        "serveraliveinterval",
        "setenv",
        "streamlocalbindmask",
        "streamlocalbindunlink",
        "syslogfacility",
        "tcpkeepalive",
        "updatehostkeys",
        "visualhostkey",
        "warnweakcrypto",
        "xauthlocation",
    }
)
#: Options that are harmless with some values alone.
_HARMLESS_AS = {
    "canonicalizehostname": {"no"},
    "gssapiauthentication": {"no"},
    "gssapidelegatecredentials": {"no"},
    "hostbasedauthentication": {"no"},
    "nohostauthenticationforlocalhost": {"no"},
    "permitlocalcommand": {"no"},
    "proxyusefdpass": {"no"},
    "stricthostkeychecking": {"yes", "true", "ask", "accept-new"},
    "tunnel": {"no"},
    "verifyhostkeydns": {"no"},
}
#: Letters without a value that are harmless; -4 and -6 are carried.
_LETTERS = frozenset("aACMqTtvxXYy")
_FAMILIES = {"4": "inet", "6": "inet6"}
#: Letters of which ssh takes the last, before what -o says anywhere.
_LAST = frozenset("bcm46")
#: What stands for no file.
_NO_FILES = frozenset({"none", "/dev/null"})
#: Forms of ssh's own way through another host.
_FORWARDS = {"%h:%p", "[%h]:%p"}
_RELAYS = (["nc", "%h", "%p"],)


class UnsupportedProxyError(Exception):
    """A proxy command that is not ssh's way through another host; its text is the command."""


@dataclass(frozen=True)
class Refused:
    """An option that Pulumi's provider would not follow."""

    what: str
    got: str
    allowed: str
    fix: str


@dataclass(frozen=True)
class Arguments:
    """The way that arguments describe. `jump` is None where they say nothing of it.

    `options` are the carried ones, each a name and its value. `first` are user and port of what
    Ansible writes before its own: they win over its variables.
    """

    user: str | None = None
    port: str | None = None
    jump: tuple[Hop, ...] | None = None
    keys: tuple[str, ...] = ()
    config: str | None = None
    options: tuple[tuple[str, str], ...] = ()
    refused: tuple[Refused, ...] = ()
    first: tuple[str | None, str | None] = (None, None)


@dataclass
class _Words:
    """Arguments as ssh reads them: options in their order, then a destination and a command."""

    options: list[tuple[str, str]] = field(default_factory=list)
    spelt: dict[str, str] = field(default_factory=dict)
    letters: list[str] = field(default_factory=list)
    config: str | None = None
    destination: str | None = None
    command: list[str] = field(default_factory=list)

    def first(self, *names: str) -> tuple[str, str] | None:
        return next((found for found in self.options if found[0] in names), None)


def read(words: Iterable[str]) -> Arguments:
    """Read arguments of `ssh`.

    Raises UnsupportedProxyError for a proxy command of another kind, ValueError for a hop or an
    option that cannot be read.
    """
    found = _words(list(words))
    if found.destination is not None:
        raise ValueError(f"{found.destination} stands where ssh has its host")
    return _read(found)


def _read(found: _Words) -> Arguments:
    carried = _carried(found)
    arguments = Arguments(
        user=_value(found, "user"),
        port=_value(found, "port"),
        keys=tuple(
            value for name, value in found.options if name == "identityfile" and value != "none"
        ),
        config=found.config,
        options=carried,
        refused=tuple(_refused(found, dict(carried))),
    )
    proxy = found.first("proxyjump", "proxycommand")
    if proxy is None:
        return arguments
    name, value = proxy
    if value.lower() == "none":
        return replace(arguments, jump=())
    if name == "proxyjump":
        return replace(arguments, jump=tuple(Hop.parse(one.strip()) for one in value.split(",")))
    through = _through(value)
    # The provider knows bastions by the same files as the hosts behind them.
    lost = [one for one in through.options if one not in carried and one[0] != "AddressFamily"]
    return replace(
        arguments,
        jump=through.jump,
        keys=arguments.keys + through.keys,
        config=arguments.config or through.config,
        refused=(*arguments.refused, *through.refused, *(_for_a_bastion(*one) for one in lost)),
    )


def _carried(found: _Words) -> tuple[tuple[str, str], ...]:
    several = "CertificateFile"
    options: dict[tuple[str, str], str] = {}
    for name, value in found.options:
        if known := CARRIED.get(name):
            options.setdefault((known, value if known == several else ""), value)
    return tuple((name, value) for (name, _), value in options.items())


def _refused(found: _Words, carried: Mapping[str, str]) -> Iterator[Refused]:
    """Yield what is refused, each once."""
    seen = set()
    for name, value in found.options:
        if name in _WAY | HARMLESS or name in seen:
            continue
        seen.add(name)
        if name in CARRIED:
            if problem := _unusable(CARRIED[name], value, carried):
                yield problem
        elif value.lower() not in _HARMLESS_AS.get(name, ()):
            yield _refusal(name, f"{found.spelt.get(name, name)} {value}".strip(), value)
    for letter in found.letters:
        if letter not in _LETTERS:
            yield Refused(
                "option of ssh that Pulumi cannot follow",
                f"-{letter}",
                "options that both Ansible and Pulumi follow",
                "remove it",
            )


def _unusable(name: str, value: str, carried: Mapping[str, str]) -> Refused | None:
    """Return why the value of an option that is carried cannot be."""
    alone = name == "UserKnownHostsFile" and "GlobalKnownHostsFile" not in carried
    if alone and set(value.split()) <= _NO_FILES:
        return Refused(
            "host keys are not kept",
            f"{name} {value}",
            "a file of known hosts: Pulumi checks host keys",
            "remove it, and have the hosts' keys in known_hosts",
        )
    if re.search(r"%[^%]|\$\{", value):
        fix = "write it in full: Ansible fills in {{ inventory_hostname }}"
        allowed = "a value without % and $"
        return Refused("value that ssh would fill in", f"{name} {value}", allowed, fix)
    if name not in FILES and (said := _judged(name, value)):
        allowed = "a value that both OpenSSH and asyncssh have"
        got = f"{name} {value}: {said}"
        return Refused("value that Pulumi cannot use", got, allowed, f"correct {name}")
    return None


@cache
def _judged(name: str, value: str) -> str | None:
    return ssh_options.unusable(name, value)


def _refusal(name: str, got: str, value: str) -> Refused:
    if name == "stricthostkeychecking":
        return Refused(
            "host keys are not checked",
            got,
            "yes, ask or accept-new: Pulumi checks host keys",
            "write accept-new, or remove it and have the hosts' keys in known_hosts",
        )
    if name == "hostname":
        what, fix = "address in an option of ssh", f"write ansible_host: {value}, and remove it"
        return Refused(what, got, "ansible_host, which Pulumi reads too", fix)
    return Refused(
        "option of ssh that Pulumi cannot follow",
        got,
        "options that both Ansible and Pulumi follow",
        "remove it",
    )


def _for_a_bastion(name: str, value: str) -> Refused:
    return Refused(
        "option of ssh for a bastion that Pulumi cannot follow",
        f"{name} {value}",
        "the same option for the host itself, or SSH's configuration",
        "put it into ~/.ssh/config, or the file of -F, under the bastion's name",
    )


def _value(found: _Words, name: str) -> str | None:
    option = found.first(name)
    return option[1] if option else None


def _through(command: str) -> Arguments:
    """Return the way through the host that a proxy command connects to."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UnsupportedProxyError(command) from error
    if words[:1] == ["exec"]:
        words = words[1:]
    if not words or PurePath(words[0]).name != "ssh":
        raise UnsupportedProxyError(command)
    found = _words(words[1:])
    way = _read(found)
    forwards = found.first("stdioforward")
    whole = forwards is not None and forwards[1] in _FORWARDS and not found.command
    if found.destination is None or not (whole or found.command in _RELAYS):
        raise UnsupportedProxyError(command)
    hop = _destination(found.destination)
    port = int(way.port) if way.port else None
    hop = Hop(hop.host, way.user or hop.user, port or hop.port)
    return replace(way, jump=(*(way.jump or ()), hop))


def _destination(text: str) -> Hop:
    """Read ssh's destination: unlike a hop it has a port only as an address of scheme ssh."""
    if text.startswith("ssh://"):
        return Hop.parse(text)
    user, _, host = text.rpartition("@")
    return Hop(host, user or None)


def _words(words: list[str]) -> _Words:
    found = _Words()
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-") or word == "-":
            if found.destination is not None:
                found.command = [word, *rest]
                return found
            found.destination = word
            continue
        letters = word[1:]
        while letters:
            letter, letters = letters[0], letters[1:]
            if letter in _WITH_VALUE:
                if not letters and not rest:
                    raise ValueError(f"-{letter} without its value")
                _add(found, letter, letters or rest.pop(0))
                break
            if letter in _FAMILIES:
                found.options.insert(0, ("addressfamily", _FAMILIES[letter]))
            else:
                found.letters.append(letter)
    return found


def _add(found: _Words, letter: str, value: str) -> None:
    if letter == "F":
        found.config = found.config or value
        return
    name = _SHORT.get(letter, f"-{letter}")
    if letter == "o":
        spelt, _, value = re.sub(r"\s*[=\s]\s*", "=", value.strip(), count=1).partition("=")
        name, value = spelt.lower(), value.strip('"')
        found.spelt.setdefault(name, spelt)
    at = 0 if letter in _LAST else len(found.options)
    found.options.insert(at, (_SAME.get(name, name), value))
