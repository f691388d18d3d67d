"""What arguments of `ssh` say of the way to a host: user, port, keys, and hosts in between.

Of the same option, ssh takes the first; of keys, all. Pure functions.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import TYPE_CHECKING

from bedplate.connection import Hop

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Options of ssh(1) that take a value.
_WITH_VALUE = frozenset("bceilmopBDEFIJLOPQRSWw")
#: Short options, as the configuration spells them.
_SHORT = {"i": "identityfile", "l": "user", "p": "port", "J": "proxyjump", "W": "stdioforward"}
_KNOWN = frozenset({*_SHORT.values(), "proxycommand"})
#: Forms of ssh's own way through another host.
_FORWARDS = {"%h:%p", "[%h]:%p"}
_RELAYS = (["nc", "%h", "%p"],)


class UnsupportedProxyError(Exception):
    """A proxy command that is not ssh's way through another host; its text is the command."""


@dataclass(frozen=True)
class Arguments:
    """The way that arguments describe. `jump` is None where they say nothing of it."""

    user: str | None = None
    port: str | None = None
    jump: tuple[Hop, ...] | None = None
    keys: tuple[str, ...] = ()
    config: str | None = None


@dataclass
class _Words:
    """Arguments as ssh reads them: options in their order, then a destination and a command."""

    options: list[tuple[str, str]] = field(default_factory=list)
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
    arguments = Arguments(
        user=_value(found, "user"),
        port=_value(found, "port"),
        keys=tuple(value for name, value in found.options if name == "identityfile"),
        config=found.config,
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
    return replace(
        arguments,
        jump=through.jump,
        keys=arguments.keys + through.keys,
        config=arguments.config or through.config,
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
    found, way = _words(words[1:]), read(words[1:])
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
    return found


def _add(found: _Words, letter: str, value: str) -> None:
    if letter == "F":
        found.config = found.config or value
        return
    name = _SHORT.get(letter, "")
    if letter == "o":
        name, _, value = re.sub(r"\s*[=\s]\s*", "=", value.strip(), count=1).partition("=")
        name, value = name.lower(), value.strip('"')
    if name in _KNOWN:
        found.options.append((name, value))
