"""How hosts are reached: over SSH, as Ansible would, and each by an address of its own."""

from __future__ import annotations

import ipaddress
import os
import re
import shlex
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from ansible.module_utils.parsing.convert_bool import boolean

from bedplate.common import ssh_options
from bedplate.common.connection import NODE_NAME, NODE_NAME_IS, SSH_PORT, Connection, Hop
from bedplate.common.errors import Problem
from bedplate.site import ssh_arguments
from bedplate.site.places import Place
from bedplate.site.reach import BECOME, ENVIRONMENT, METHOD, NAME, PLUGIN, Option
from bedplate.site.site import NODES
from bedplate.site.ssh_arguments import UnsupportedProxyError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bedplate.site.effective import RawHost
    from bedplate.site.site import SiteHost

RULE = "address"
#: The names under which Ansible has its connection over SSH.
PLUGINS = frozenset({"ssh", "ansible.builtin.ssh", "ansible.legacy.ssh"})
SUDO = frozenset({"sudo", "ansible.builtin.sudo", "ansible.legacy.sudo"})
#: The key that Pulumi's provider takes without being told, from the site's directory.
OWN_KEY = ".bedplate/ssh/id_ed25519"
#: The host keys that it takes likewise.
OWN_HOSTS = ".bedplate/ssh/known_hosts"
#: Options that hold several files.
SEVERAL = frozenset({"GlobalKnownHostsFile", "UserKnownHostsFile"})
#: Options of Ansible's plugin for which the provider has no counterpart: what is allowed, the fix.
_ANSIBLES_ALONE = (
    (
        "ssh_executable",
        "ssh itself: Pulumi runs no program to connect",
        "remove it; what it adds to ssh belongs into ansible_ssh_common_args or ~/.ssh/config",
    ),
    (
        "pkcs11_provider",
        "key files and SSH's agent",
        "remove it, and load the token's key into your SSH agent: ssh-add -s",
    ),
    (
        "private_key",
        "ansible_ssh_private_key_file, or a key in SSH's agent",
        "write the key to a file, and set ansible_ssh_private_key_file",
    ),
)
_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?")
_ADDRESS = re.compile(r"(?:(?P<user>[^@\s]+)@)?(?P<host>\[[^\]\s]+\]|[^\s:]+)(?::(?P<port>\d+))?")


@dataclass(frozen=True)
class Reached:
    """How a host is reached, and whether Ansible is told to become root there."""

    connection: Connection
    root: bool


@dataclass(frozen=True)
class _Host:
    """A host, and how problems with its options are said."""

    raw: RawHost
    site: Path

    def problem(
        self, option: Option, key: str, what: str, got: object, allowed: str, fix: str
    ) -> Problem:
        """Return a problem at the place where the option is written."""
        if option.variable is not None:
            key = option.variable
            place = self.raw.places.of((key,))
        elif option.origin.startswith(ENVIRONMENT):
            key = option.origin.removeprefix(ENVIRONMENT)
            place = Place("the environment")
        elif option.origin != "default" and Path(option.origin).is_file():
            place = Place(os.path.relpath(option.origin))
        else:
            place = self.raw.places.fallback
        return Problem(
            what, place.file, place.line, place.column, key, str(got), allowed, fix, RULE
        )


def reached(raw: RawHost, site: Path) -> tuple[Reached | None, list[Problem]]:
    """Return how a host is reached, or what is wrong with it.

    Of hosts that Pulumi never connects to, only address, port and user are judged.
    """
    host = _Host(raw, site)
    node = bool(set(NODES) & set(raw.groups)) and raw.wishes.get("bedplate_kubernetes") is not None
    arguments, problems = _arguments(host, node=node)
    address, wrong = _address(host)
    problems += wrong
    first_user, first_port = arguments.first
    user = first_user or raw.reach["remote_user"].value or arguments.user or "root"
    port, wrong = _port(host, first_port, arguments.port)
    problems += wrong
    become = boolean(raw.reach.become.value, strict=False)
    if node:
        problems += [*_name(host), *_plugin(host), *_become(host, str(user), become=become)]
        problems += _others(host)
    if problems:
        return None, problems
    keys = [str(key)] if (key := raw.reach["private_key_file"].value) else []
    if raw.reach["private_key_file"].origin.startswith(ENVIRONMENT):
        keys = []  # whoever plans; Pulumi has its own setting for that
    written = (_path(site, one) for one in (*keys, *arguments.keys))
    connection = Connection(
        name=raw.name,
        address=address,
        port=port,
        user=str(user),
        jump=tuple(str(_known(hop, str(user))) for hop in arguments.jump or ()),
        keys=tuple(one for one in dict.fromkeys(written) if one != OWN_KEY),
        config=_path(site, arguments.config) if arguments.config else None,
        options=_options(site, arguments),
    )
    return Reached(connection, root=become or user == "root"), []


#: Ansible's own options of ssh that hold arguments, in the order in which it hands them over.
_ARGUMENTS = ("ssh_args", "ssh_common_args", "ssh_extra_args")


def _arguments(host: _Host, *, node: bool) -> tuple[ssh_arguments.Arguments, list[Problem]]:
    """Return what the arguments of ssh say, in the order in which Ansible hands them over."""
    options = {name: host.raw.reach[name] for name in _ARGUMENTS}
    words: dict[str, tuple[str, ...]] = {}
    for name, option in options.items():
        try:
            these = _split(str(option.value or ""))
            _read(these)
        except UnsupportedProxyError as error:
            if node:
                what = "connection goes through a command"
                allowed = "a way through other hosts by SSH: -J, ProxyJump, or ssh -W %h:%p"
                fix = (
                    "write -o ProxyJump=USER@BASTION, or put the command into ~/.ssh/config: both "
                    "Ansible and Pulumi read it"
                )
                return ssh_arguments.Arguments(), [
                    host.problem(option, name, what, error, allowed, fix)
                ]
        except ValueError as error:
            allowed, fix = "arguments of ssh", "correct them"
            return ssh_arguments.Arguments(), [
                host.problem(option, name, "arguments cannot be read", error, allowed, fix)
            ]
        else:
            words[name] = these
    found = _read(tuple(word for these in words.values() for word in these))
    problems = []
    for one in found.refused if node else ():
        guilty = [name for name, these in words.items() if one in _read(these).refused]
        name = (guilty or list(words))[0]
        said = host.problem(options[name], name, one.what, one.got, one.allowed, one.fix)
        problems.append(said)
    if not node or problems:
        return found, problems
    # What comes first on ssh's command line wins: Ansible puts port and user after ssh_args.
    first = _read(words.get("ssh_args", ()))
    return replace(found, first=(first.user, first.port)), []


@cache
def _split(text: str) -> tuple[str, ...]:
    return tuple(shlex.split(text))


@cache
def _read(words: tuple[str, ...]) -> ssh_arguments.Arguments:
    """Read arguments once: those of a thousand hosts are mostly the same."""
    return ssh_arguments.read(words)


def _address(host: _Host) -> tuple[str, list[Problem]]:
    option = host.raw.reach["host"]
    key = "ansible_host" if option.variable in {NAME, None} else str(option.variable)
    text = str(option.value)
    if _is_address(text):
        return text, []
    bare = text.strip()
    found = _ADDRESS.fullmatch(bare)
    fix = f"write the address alone, as {key}: 192.0.2.10"
    if found and _is_address(only := found["host"].strip("[]")):
        more = [f"{key}: {only}"]
        more += [f"ansible_port: {found['port']}"] if found["port"] else []
        more += [f"ansible_user: {found['user']}"] if found["user"] else []
        fix = f"write {' and '.join(more)}"
    said = Option(option.value, "default") if option.variable == NAME else option
    allowed = "an IP address or a host's name, without brackets, port or blanks"
    return text, [host.problem(said, key, "no address", repr(text), allowed, fix)]


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        # Digits and dots alone are an address that is wrong.
        return bool(_NAME.fullmatch(text)) and not re.fullmatch(r"[0-9.]+", text)
    return True


def _port(host: _Host, first: str | None, last: str | None) -> tuple[int, list[Problem]]:
    option = host.raw.reach["port"]
    value = next((one for one in (first, option.value, last) if one is not None), None)
    if value is None:
        return SSH_PORT, []
    try:
        port = int(str(value))
        if 0 < port < 2**16:
            return port, []
    except ValueError:
        pass
    fix = f"correct it, or leave it out for {SSH_PORT}"
    return SSH_PORT, [host.problem(option, "remote_port", "no port", value, "1 to 65535", fix)]


def _name(host: _Host) -> list[Problem]:
    name = host.raw.name
    if NODE_NAME.fullmatch(name):
        return []
    better = re.sub(r"[^a-z0-9.-]+", "-", name.lower())[:63].strip("-.")
    fix = f"rename the host, to {better} for example; ansible_host keeps its address"
    if better == name.lower():
        fix = "write its name in small letters; ansible_host keeps its address"
    option = Option(name, "default")
    return [host.problem(option, "", "no name for a node", name, NODE_NAME_IS, fix)]


def _plugin(host: _Host) -> list[Problem]:
    option = host.raw.reach.plugin
    if str(option.value) in PLUGINS:
        return []
    what, allowed = "connection is not SSH", "ssh: Pulumi connects to the host too"
    fix = f"remove {PLUGIN}, or set it to ssh"
    return [host.problem(option, "transport", what, option.value, allowed, fix)]


def _others(host: _Host) -> list[Problem]:
    """Return what is wrong with options of Ansible's plugin that the provider cannot follow."""
    found, reach = [], host.raw.reach
    if not boolean((checking := reach["host_key_checking"]).value, strict=False):
        found.append(
            host.problem(
                checking,
                "host_key_checking",
                "host keys are not checked",
                checking.value,
                "true: Pulumi checks host keys",
                "remove it and have the hosts' keys in known_hosts, or take those of the first "
                "connection: ansible_ssh_common_args: -o StrictHostKeyChecking=accept-new",
            )
        )
    for name, allowed, fix in _ANSIBLES_ALONE:
        option = reach[name]
        if not option.value or PurePath(str(option.value)).name == "ssh":
            continue
        got = "a private key" if name == "private_key" else option.value
        what = "option of Ansible's connection that Pulumi cannot follow"
        found.append(host.problem(option, name, what, got, allowed, fix))
    return found


def _options(site: Path, arguments: ssh_arguments.Arguments) -> tuple[str, ...]:
    """Return the options for the provider, as lines of SSH's configuration."""
    lines = []
    for name, value in sorted(arguments.options, key=lambda option: option[0]):
        values = shlex.split(value) if name in SEVERAL else [value]
        if name in ssh_arguments.FILES:
            values = [_path(site, one) for one in values]
        if (name, values) != ("UserKnownHostsFile", [OWN_HOSTS]):
            lines.append(ssh_options.line(name, values))
    return tuple(lines)


def _become(host: _Host, user: str, *, become: bool) -> list[Problem]:
    reach, problems = host.raw.reach, []
    if become and (whom := reach["become_user"]).value not in {None, "root"}:
        what, allowed = "tasks run as a user other than root", "root"
        fix = "remove it: Bedplate's tasks need root"
        problems.append(host.problem(whom, "become_user", what, whom.value, allowed, fix))
    if become and user != "root" and str(reach.method.value) not in SUDO:
        what, allowed = "root by another way than sudo", "sudo, which Pulumi uses too"
        fix = f"set {METHOD}: sudo, or {BECOME}: false with ansible_user: root"
        got = reach.method.value
        problems.append(host.problem(reach.method, "become_method", what, got, allowed, fix))
    return problems


def _known(hop: Hop, user: str) -> Hop:
    """Return a hop with the one thing in it that ssh fills in: the user of the host behind it."""
    return Hop(hop.host, user, hop.port) if hop.user == "%r" else hop


def _path(site: Path, text: str) -> str:
    """Return a file as every checkout can name it: from the site if it is inside of it.

    What Ansible takes from the folder that it runs in is named from the site too.
    """
    if text.startswith("~") or text == "none":
        return text
    absolute, home = Path.cwd() / text, site.resolve()
    if Path(text).is_absolute() and not absolute.is_relative_to(home):
        return text
    return os.path.relpath(absolute, home)


def canonical(address: str) -> str:
    """Return the one form of an address or name that may be written in several ways."""
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return address.lower().rstrip(".")


def same(hosts: Mapping[str, SiteHost]) -> list[Problem]:
    """Return the hosts that are reached as another one is."""
    problems = []
    first: dict[tuple[object, ...], SiteHost] = {}
    for _, host in sorted(hosts.items()):
        way = host.connection
        other = first.setdefault((canonical(way.address), way.port, way.jump), host)
        if other is not host:
            path, others = (_said(host),), (_said(other),)
            place = host.places.of(path)
            problems.append(
                Problem(
                    f"hosts {other.name} and {host.name} have the same address",
                    place.file,
                    place.line,
                    place.column,
                    path[0],
                    f"{way.address}, also at {other.places.of(others)}",
                    "one address per host",
                    f"correct one of them, or remove {host.name}",
                    RULE,
                )
            )
    return problems


def _said(host: SiteHost) -> str:
    """Return the variable that has a host's address."""
    written = [str(path[0]) for path in host.places.own if "_host" in str(path[0])]
    return written[-1] if written else "ansible_host"
