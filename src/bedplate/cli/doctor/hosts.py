"""The way from this machine to a site's hosts, as ssh would take it for Ansible; none logs in."""

from __future__ import annotations

import re
import shlex
import socket
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ansible.module_utils.parsing.convert_bool import boolean

from bedplate.cli.doctor import finding
from bedplate.cli.doctor.finding import BOTH, Finding, each
from bedplate.common import programs
from bedplate.common.connection import SSH_PORT
from bedplate.site.addresses import PLUGINS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bedplate.common.connection import Connection
    from bedplate.site import Site
    from bedplate.site.effective import RawHost

#: How long one connection or program is waited for, in seconds.
SECONDS = 5.0
#: How many hosts are named where several have the same finding.
NAMED = 5
#: Stands for the hosts in a command that is for all of them.
HOSTS = "HOSTS"
#: Values of StrictHostKeyChecking by which ssh asks or refuses where it does not know the key.
STRICT = {"ask", "true", "yes"}
ADDRESS = re.compile(r"[0-9.]+|.*:.*")


@dataclass(frozen=True)
class Way:
    """How ssh would connect. `via` are its options for jump hosts, `known` its files of keys."""

    host: str
    port: int
    via: str = ""
    alias: str = ""
    strict: str = ""
    known: tuple[str, ...] = ()


def findings(hosts: Sequence[tuple[RawHost, Connection]]) -> Iterator[Finding]:
    """Ask whether hosts have an address, an answer and a known key; equal findings are one row."""
    others = [raw.name for raw, _ in hosts if str(raw.reach.plugin.value) not in PLUGINS]
    if others:
        yield Finding("hosts", "not checked", f"connection is not SSH: {_named(others)}")
    asked = {raw.name: (raw, to) for raw, to in hosts if raw.name not in others}
    ways = each(asked, lambda name: _way(*asked[name]))
    for check, ask in {"SSH": _answer, "host key": _known}.items():
        answers = each(dict.fromkeys(ways.values()), ask)
        late = Finding(check, "not checked", f"no answer in {finding.SECONDS:.0f} s")
        alike: dict[Finding, dict[str, str]] = {}
        for name in asked:
            way = ways.get(name)
            answer = answers.get(way, late) if way else late
            alike.setdefault(answer, {})[name] = way.host if way else name
        for one, its in alike.items():
            fix = one.fix.replace(HOSTS, " ".join(dict.fromkeys(its.values())))
            yield replace(one, found=f"{one.found}: {_named([*its])}", fix=fix)


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    many = f"{len(names)} hosts: " if len(names) > 1 else ""
    return f"{many}{', '.join(names[:NAMED])}{more}"


def names(site: Site) -> Iterator[Finding]:
    """Resolve what is not a host of the site: the cluster's endpoint, mirror and indexes."""
    wanted: dict[str, str] = {}
    for wishes in {id(one.wishes): one.wishes for one in site.hosts.values()}.values():
        of_sources = ("url", "files", "registry", "pip", "conda")
        said = {
            f"bedplate_sources.{key}": getattr(wishes.bedplate_sources, key) for key in of_sources
        }
        if wishes.bedplate_kubernetes is not None:
            said["bedplate_kubernetes.endpoint"] = wishes.bedplate_kubernetes.endpoint
        for key, text in said.items():
            host = urlsplit(text if "://" in text else f"//{text}").hostname if text else None
            if host and not ADDRESS.fullmatch(host):
                wanted.setdefault(host, key)
    answers = each(wanted, _unresolved)
    for name, key in wanted.items():
        if error := answers.get(name, f"no answer in {finding.SECONDS:.0f} s"):
            fix = f"add it to DNS or /etc/hosts, then: getent ahosts {name}"
            yield Finding(f"name {name}", "LACKING", error, key, fix)
        else:
            yield Finding(f"name {name}", "OK", "resolves", key)


def _unresolved(name: str) -> str:
    """Return why a name does not resolve; empty where it does."""
    try:
        socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return f"name does not resolve ({getattr(error, 'strerror', None) or error})"
    return ""


def _words(raw: RawHost, name: str) -> list[str]:
    """Return the words of one of Ansible's texts; none of one that has no end of a quotation."""
    try:
        return shlex.split(str(raw.reach[name].value or ""))
    except ValueError:
        return []


def _way(raw: RawHost, to: Connection) -> Way:
    """Ask `ssh -G`, which connects to nothing, with the arguments that Ansible would give it."""
    words = _words(raw, "ssh_args")
    if not boolean(raw.reach["host_key_checking"].value, strict=False):
        words += ["-o", "StrictHostKeyChecking=no"]
    if raw.reach["port"].value is not None:
        words += ["-o", f"Port={raw.reach['port'].value}"]
    words += ["-o", f"User={to.user}"]
    for more in ("ssh_common_args", "ssh_extra_args"):
        words += _words(raw, more)
    try:
        text = programs.run(["ssh", "-G", *words, to.address], SECONDS).text
    except programs.ProgramError:
        return Way(to.address, to.port, f"-J {','.join(to.jump)}" if to.jump else "")
    options = dict(line.split(" ", 1) for line in reversed(text.splitlines()) if " " in line)
    via = ""
    if (jump := options.get("proxyjump", "none")) != "none":
        via = f"-J {jump}"
    elif (command := options.get("proxycommand", "none")) != "none":
        via = f"-o {shlex.quote(f'ProxyCommand={command}')}"
    return Way(
        options["hostname"],
        int(options["port"]),
        via,
        options.get("hostkeyalias", ""),
        options["stricthostkeychecking"],
        (*options["userknownhostsfile"].split(), *options["globalknownhostsfile"].split()),
    )


def _answer(way: Way) -> Finding:
    if way.via:
        return Finding("SSH", "not checked", f"only reached by ssh {way.via}")
    each_host = f"for host in {HOSTS}; do"
    if why := _unresolved(way.host):
        fix = "add the name to DNS or /etc/hosts, or set ansible_host, then: "
        return Finding("SSH", "LACKING", why, BOTH, f"{fix}{each_host} getent ahosts $host; done")
    try:
        with socket.create_connection((way.host, way.port), SECONDS):
            return Finding("SSH", "OK", f"port {way.port} answers", BOTH)
    except OSError as error:
        fix = f"start sshd there, or let this machine reach port {way.port}, then: {each_host} "
        fix += f"ssh -p {way.port} $host true; done"
        return Finding("SSH", "LACKING", f"port {way.port}: {error.strerror or error}", BOTH, fix)


def _known(way: Way) -> Finding:
    """Look for the key under the names by which ssh knows a host: of another port than 22, two."""
    if way.strict not in STRICT or "%" in "".join(way.known):
        why = f"StrictHostKeyChecking is {way.strict}" if way.known else "ssh does not run"
        return Finding("host key", "not checked", why)
    sought = [way.alias or way.host]
    if not way.alias and way.port != SSH_PORT:
        sought.insert(0, f"[{way.host}]:{way.port}")
    files = [str(Path(name).expanduser()) for name in way.known]
    try:
        for file in filter(lambda name: Path(name).is_file(), files):
            for name in sought:
                words = ["ssh-keygen", "-F", name, "-f", file]
                if not programs.run(words, SECONDS, check=False).status:
                    return Finding("host key", "OK", "is known", BOTH)
    except programs.ProgramError as error:
        return Finding("host key", "not checked", error.got)
    fix = f"ssh-keyscan -p {way.port} {HOSTS} >> {shlex.quote(files[0])}"
    if way.via or way.alias:
        alias = f" -o HostKeyAlias={way.alias}" if way.alias else ""
        fix = f"for host in {HOSTS}; do ssh {way.via}{alias} -p {way.port} $host true; done"
    fix += "  # compare each key with the host's console"
    return Finding("host key", "LACKING", "is not known", BOTH, fix)
