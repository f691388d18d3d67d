"""What keeps hosts from every address but the stand-in's, their own and their distribution's.

The rules are in each host's own network name space and end with it; a reboot keeps them.
"""

from __future__ import annotations

import re
import socket
import urllib.parse
from typing import TYPE_CHECKING

from bedplate.site.kubernetes import Kubernetes
from tests.substrate.hosts import apt_sources
from tests.substrate.hosts.shell import run, succeeds

if TYPE_CHECKING:
    from collections.abc import Iterable

CHAIN = "SUBSTRATE-EGRESS"
#: The network of pods, which no host leads out of. What a host sends to a service has been given a
#: pod's address when a rule of OUTPUT sees it, and the interface still of the service's.
PODS = Kubernetes(endpoint="none:1").pod_subnet
#: Processes of a host are refused at once. What pods send is dropped where it would leave: there
#: no rule of the cluster network comes before ours.
PLACES = {"filter": ("OUTPUT", "REJECT"), "mangle": ("POSTROUTING", "DROP")}


def distribution(files: Iterable[tuple[str, str]] | None = None) -> dict[str, str]:
    """Return the addresses of the servers that this machine's own packages come from, by name."""
    given = [(path.name, path.read_text()) for path in apt_sources.machine_files()]
    release = apt_sources.machine_codename()
    text = apt_sources.derive(given if files is None else files, release, release, ["main"])
    names = {urllib.parse.urlsplit(url).hostname for url in re.findall(r"https?://\S+", text)}
    found = {}
    for name in sorted(filter(None, names)):
        try:
            found[name] = socket.getaddrinfo(name, None, socket.AF_INET)[0][4][0]
        except socket.gaierror:
            continue  # a source that this machine does not reach either
    return found


def deny(container: str, subnet: str, allowed: Iterable[str]) -> None:
    """Deny a host everything but its own subnet, pods and some addresses. Idempotent."""
    for table, (hook, verdict) in PLACES.items():
        if _there(container, table, "-C", hook, "-o", "eth0", "-j", CHAIN):
            continue
        _iptables(container, table, "-N", CHAIN)
        for address in [subnet, PODS, *sorted(allowed)]:
            _iptables(container, table, "-A", CHAIN, "-d", address, "-j", "RETURN")
        _iptables(container, table, "-A", CHAIN, "-j", verdict)
        _iptables(container, table, "-I", hook, "-o", "eth0", "-j", CHAIN)


def denied(container: str) -> int:
    """Return how many packets of a host and its pods were denied so far."""
    count = 0
    for table, (_, verdict) in PLACES.items():
        listed = _iptables(container, table, "-L", CHAIN, "-v", "-n", "-x")
        rows = [line.split() for line in listed.splitlines()]
        count += sum(int(row[0]) for row in rows if row[2:3] == [verdict])
    return count


def _iptables(container: str, table: str, *arguments: str) -> str:
    return run([*_inside(container), "iptables", "-w", "-t", table, *arguments])


def _there(container: str, table: str, *arguments: str) -> bool:
    return succeeds([*_inside(container), "iptables", "-w", "-t", table, *arguments])


def _inside(container: str) -> list[str]:
    key = "{{.NetworkSettings.SandboxKey}}"
    return ["nsenter", f"--net={run(['podman', 'inspect', '--format', key, container]).strip()}"]
