"""Host firewalls that are managed by a service: firewalld and ufw, and what they let in."""

import re
from typing import List, NamedTuple, Optional, Sequence, Set

from .host import Host
from .message import problem

FIREWALLD, UFW = "firewalld", "ufw"
_UFW_RULE = re.compile(r"^(?P<port>[0-9,:]+/(?:tcp|udp))\s+ALLOW", re.MULTILINE)


class Firewall(NamedTuple):
    """An active firewall, and the ports that it lets in from everywhere, as ``6443/tcp``."""

    name: str
    opened: Set[str]


def active(host: Host) -> Optional[Firewall]:
    """The firewall that is active on a host, or None."""
    if host.run(["firewall-cmd", "--state"]).out.strip() == "running":
        listed = host.run(["firewall-cmd", "--list-ports"]).out
        return Firewall(FIREWALLD, _ports(listed.split(), "-"))
    status = host.run(["ufw", "status"]).out
    if status.startswith("Status: active"):
        return Firewall(UFW, _ports(_UFW_RULE.findall(status), ":"))
    return None


def _ports(texts: Sequence[str], dash: str) -> Set[str]:
    """Each port by itself: ``2379-2380/tcp`` is two."""
    found = set()
    for text in texts:
        numbers, _, protocol = text.partition("/")
        for part in numbers.split(","):
            first, _, last = part.partition(dash)
            if first.isdigit() and (last or first).isdigit():
                found |= {
                    f"{port}/{protocol}" for port in range(int(first), int(last or first) + 1)
                }
    return found


def commands(name: str, ports: Sequence[str]) -> str:
    """The commands that open ports, for a person to run."""
    if name == UFW:
        return "; ".join(f"ufw allow {port}" for port in ports)
    added = " ".join(f"--add-port={port}" for port in ports)
    return f"firewall-cmd --permanent {added} && firewall-cmd --reload"


def check(host: Host, ports: Sequence[str], where: str) -> List[str]:
    """The problem of a firewall that keeps out what nodes of a cluster send each other."""
    found = active(host) if ports else None
    closed = [port for port in ports if found and port not in found.opened]
    if found is None or not closed:
        return []
    return [
        problem(
            "a firewall keeps out what nodes of the cluster send each other",
            f"{where}:{found.name}",
            f"active, and closed: {', '.join(closed)}",
            f"no firewall of the host, or {', '.join(ports)} open",
            f"Run there: {commands(found.name, closed)}; let the pods' network through as well. Or"
            " set host_baseline_firewall to ignore, where other rules let them in.",
        )
    ]
