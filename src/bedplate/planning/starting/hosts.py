"""Hosts as a user names them on the command line: names, addresses, ranges."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING

from ansible.errors import AnsibleError
from ansible.plugins.inventory import detect_range, expand_hostname_range

from bedplate.common.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
RANGE = re.compile(r"\[[A-Za-z0-9]+:[A-Za-z0-9]+(:[0-9]+)?\]")
RIGHT = "names in small letters, addresses, and ranges like gpu[01:16]"


@dataclass(frozen=True)
class Entry:
    """One line of the inventory: a host or a range of hosts, and an address where it has one."""

    name: str
    address: str | None
    hosts: tuple[str, ...]

    @property
    def reached(self) -> str:
        """How the first of its hosts is reached, in brackets where a port could not follow."""
        found = self.address or self.hosts[0]
        return f"[{found}]" if ":" in found else found


def entries(text: str, prefix: str, option: str) -> tuple[list[Entry], list[Problem]]:
    """Return the hosts of one group. Hosts that are given by address are named *prefix* and number.

    Raises nothing: what is wrong is returned.
    """
    named: list[Entry] = []
    addresses: list[str] = []
    problems: list[Problem] = []
    for word in (part.strip() for part in text.split(",")):
        hosts = _expanded(word)
        if hosts is None:
            problems.append(
                Problem(
                    "wrong hosts",
                    key=option,
                    got=word or "nothing",
                    allowed=RIGHT,
                    fix="correct it",
                    rule="init",
                )
            )
        elif any(_loops_back(host) for host in hosts):
            problems.append(
                Problem(
                    "address is of this machine alone",
                    key=option,
                    got=word,
                    allowed="an address that the cluster's other hosts and its pods reach",
                    fix="name the machine's address on its network, with SSH to it set up",
                    rule="init",
                )
            )
        elif _is_address(hosts[0]):
            addresses += hosts
        else:
            named.append(Entry(word, None, tuple(hosts)))
    width = len(str(len(addresses)))
    for number, address in enumerate(addresses, 1):
        name = f"{prefix}{number:0{width}}"
        named.append(Entry(name, address, (name,)))
    return named, problems


def _expanded(word: str) -> list[str] | None:
    """Return the hosts of a name, an address or a range; None if it is neither."""
    if _is_address(word):
        return [word]
    found = [word]
    if detect_range(word):
        if "[" in RANGE.sub("", word):
            return None
        while any(detect_range(one) for one in found):
            try:
                found = [host for one in found for host in expand_hostname_range(one)]
            except AnsibleError:
                return None
    kinds = {_is_address(one) for one in found}
    right = all(_is_address(one) or NAME.fullmatch(one) for one in found)
    numbers = any(re.fullmatch(r"[0-9.]+", one) and not _is_address(one) for one in found)
    return found if found and right and len(kinds) == 1 and not numbers else None


def _is_address(word: str) -> bool:
    try:
        ip_address(word)
    except ValueError:
        return False
    return True


def _loops_back(word: str) -> bool:
    return word == "localhost" or (_is_address(word) and ip_address(word).is_loopback)


def twice(groups: Sequence[tuple[str, Sequence[Entry]]], option: str) -> list[Problem]:
    """Return hosts and addresses that are named more than once in the pools."""
    seen: dict[str, str] = {}
    problems = []
    for group, its in groups:
        for word in [word for e in its for word in ((e.address,) if e.address else e.hosts)]:
            if word in seen:
                problems.append(
                    Problem(
                        "host is named twice",
                        key=option,
                        got=f"{word} in {seen[word]} and in {group}",
                        allowed="each host once",
                        fix="remove one of them",
                        rule="init",
                    )
                )
            seen[word] = group
    return problems
