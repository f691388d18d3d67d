"""A substrate description: which bare hosts there are, on which network, with which GPUs."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from tests.substrate.hosts.errors import SubstrateError

if TYPE_CHECKING:
    from collections.abc import Iterable

RECIPES = Path(__file__).parent / "recipes"
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")


@dataclass(frozen=True)
class Gpus:
    """The simulated cards that are plugged into a host."""

    model: str
    count: int


@dataclass(frozen=True)
class Host:
    """One bare host: its name, IPv4 address, operating system (a recipe's name) and cards."""

    name: str
    address: str
    os: str
    gpus: Gpus | None


@dataclass(frozen=True)
class Description:
    """What a description file says. ``gateway`` is the machine's own address on the network."""

    path: Path
    network: str
    subnet: str
    gateway: str
    hosts: tuple[Host, ...]

    def container(self, host: Host) -> str:
        """Return the name of the container that is this host."""
        return f"{self.network}-{host.name}"

    def host(self, name: str) -> Host:
        """Return the host of that name, or raise `SubstrateError`."""
        for host in self.hosts:
            if host.name == name:
                return host
        raise SubstrateError(
            "no such host",
            str(self.path),
            name,
            ", ".join(host.name for host in self.hosts),
            "name one of these hosts",
        )


def known_systems() -> list[str]:
    """Return the operating systems that there is a recipe for."""
    return sorted(recipe.stem for recipe in RECIPES.glob("*.yml"))


def load(path: Path) -> Description:
    """Read a description file.

    Raises `SubstrateError`, with file, line and key, for the first thing that is wrong with it.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SubstrateError(
            "the description can't be read",
            str(path),
            error.strerror or str(error),
            "a readable YAML file",
            "give the path of a description, such as tests/substrate/hosts/demo.yml",
        ) from error
    return parse(text, path)


def parse(text: str, path: Path) -> Description:
    """Parse a description's text; ``path`` is what errors name."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        raise SubstrateError(
            "not YAML", where, str(error.problem), "a YAML mapping", "mend the syntax"
        ) from error
    top = _Node(root, path, "").mapping({"network", "hosts"})
    network_node = top["network"]
    network = network_node.mapping({"name", "subnet"})
    name = network["name"].matching(NAME, "lower-case letters, digits and dashes, at most 40")
    subnet = network["subnet"].subnet()
    hosts = tuple(_host(key, node, subnet) for key, node in top["hosts"].items())
    _refuse_twins(top["hosts"], hosts)
    return Description(path, name, str(subnet), str(subnet[1]), hosts)


def _host(name: str, node: _Node, subnet: ipaddress.IPv4Network) -> Host:
    if not NAME.fullmatch(name):
        raise node.error("not a host name", name, "lower-case letters, digits and dashes")
    fields = node.mapping({"address", "os"}, {"gpus"})
    address = fields["address"].address(subnet)
    system = fields["os"].one_of(known_systems())
    gpus = None
    if "gpus" in fields:
        cards = fields["gpus"].mapping({"model", "count"})
        gpus = Gpus(cards["model"].text(), cards["count"].integer(1, 16))
    return Host(name, address, system, gpus)


def _refuse_twins(node: _Node, hosts: Iterable[Host]) -> None:
    seen: dict[str, str] = {}
    for host in hosts:
        if host.address in seen:
            raise node.error(
                "two hosts have one address",
                f"{host.address} for {seen[host.address]} and {host.name}",
                "a different address for each",
            )
        seen[host.address] = host.name


class _Node:
    """A YAML node that knows its file, line and key, and says so when it is not as it should be."""

    def __init__(self, node: yaml.Node | None, path: Path, key: str) -> None:
        self._node = node
        self._path = path
        self._key = key

    def error(self, what: str, got: str, allowed: str) -> SubstrateError:
        line = self._node.start_mark.line + 1 if self._node else 1
        where = f"{self._path}:{line}" + (f": {self._key}" if self._key else "")
        return SubstrateError(what, where, got, allowed, "mend the description")

    def items(self) -> list[tuple[str, _Node]]:
        if not isinstance(self._node, yaml.MappingNode) or not self._node.value:
            got = self._node.value if isinstance(self._node, yaml.ScalarNode) else "nothing"
            raise self.error("not a mapping", str(got), "key: value")
        prefix = f"{self._key}." if self._key else ""
        pairs: list[tuple[str, _Node]] = []
        for key, value in self._node.value:
            name = str(key.value)
            node = _Node(value, self._path, prefix + name)
            if name in dict(pairs):
                raise node.error("given twice", name, "each key once")
            pairs.append((name, node))
        return pairs

    def mapping(self, needed: set[str], optional: set[str] | None = None) -> dict[str, _Node]:
        fields = dict(self.items())
        known = needed | (optional or set())
        for name, node in fields.items():
            if name not in known:
                raise node.error("unknown key", name, ", ".join(sorted(known)))
        missing = sorted(needed - fields.keys())
        if missing:
            raise self.error("a key is missing", ", ".join(fields), ", ".join(missing))
        return fields

    def text(self) -> str:
        if isinstance(self._node, yaml.ScalarNode) and self._node.value:
            return str(self._node.value)
        raise self.error("not a text", "a list, a mapping or nothing", "a text")

    def matching(self, pattern: re.Pattern[str], allowed: str) -> str:
        value = self.text()
        if not pattern.fullmatch(value):
            raise self.error("not a name", value, allowed)
        return value

    def one_of(self, choices: list[str]) -> str:
        value = self.text()
        if value not in choices:
            raise self.error("unknown value", value, ", ".join(choices))
        return value

    def integer(self, low: int, high: int) -> int:
        value = self.text()
        if not value.isdecimal() or not low <= int(value) <= high:
            raise self.error("not a number in range", value, f"{low} to {high}")
        return int(value)

    def subnet(self) -> ipaddress.IPv4Network:
        value = self.text()
        try:
            subnet = ipaddress.IPv4Network(value)
        except ValueError as error:
            raise self.error("not a subnet", value, "an IPv4 network, as 10.213.0.0/24") from error
        if subnet.prefixlen > 28 or not subnet.is_private:
            raise self.error("not a usable subnet", value, "a private IPv4 network, /28 or larger")
        return subnet

    def address(self, subnet: ipaddress.IPv4Network) -> str:
        value = self.text()
        try:
            address = ipaddress.IPv4Address(value)
        except ValueError as error:
            raise self.error("not an address", value, f"an IPv4 address of {subnet}") from error
        reserved = (subnet.network_address, subnet[1], subnet.broadcast_address)
        if address not in subnet or address in reserved:
            raise self.error(
                "not an address for a host", value, f"one of {subnet} other than {reserved[1]}"
            )
        return value
