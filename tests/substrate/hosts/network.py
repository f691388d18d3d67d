"""The network that a substrate's hosts share with the machine."""

from __future__ import annotations

import ipaddress
import json
from pathlib import Path
from typing import TYPE_CHECKING

from tests.substrate.hosts.containers import LABEL
from tests.substrate.hosts.errors import SubstrateError
from tests.substrate.hosts.shell import run, succeeds

if TYPE_CHECKING:
    from tests.substrate.hosts.description import Description


SITE = "io.bedplate.site"


def ensure(description: Description, site: Path) -> bool:
    """Make the network if it is not there; return whether it was made.

    Raises `SubstrateError` if its name or its addresses belong to something else.
    """
    name = description.network
    if succeeds(["podman", "network", "exists", name]):
        _check_ours(description, site)
        return False
    routes = json.loads(run(["ip", "-json", "-4", "route", "show", "table", "all"]))
    taken = clash(description.subnet, routes)
    if taken:
        raise SubstrateError(
            "the hosts' subnet is in use on this machine",
            f"{description.path}: network.subnet",
            f"{description.subnet} overlaps {taken}",
            "a subnet that no interface or route of this machine has",
            "remove what uses it, or choose another subnet in the description and the site",
        )
    command = ["podman", "network", "create", "--disable-dns"]
    command += ["--label", f"{LABEL}={name}", "--label", f"{SITE}={site.resolve()}"]
    run([*command, "--subnet", description.subnet, "--gateway", description.gateway, name])
    return True


def remove(name: str) -> None:
    """Remove the network if it is there and ours."""
    if name in ours():
        run(["podman", "network", "rm", name])


def site(name: str) -> Path | None:
    """Return the site that a network was made for; None if there is no such network."""
    if name not in ours():
        return None
    labels = json.loads(run(["podman", "network", "inspect", name]))[0]["labels"]
    return Path(labels[SITE])


def ours() -> list[str]:
    """Return the names of all networks that substrates made."""
    listed = run(["podman", "network", "ls", "--filter", f"label={LABEL}", "--format", "{{.Name}}"])
    return listed.split()


def clash(subnet: str, routes: list[dict[str, object]]) -> str:
    """Return the route that overlaps a subnet, in words; empty if none does.

    ``routes`` is what ``ip -json route`` prints. Default routes overlap nothing.
    """
    wanted = ipaddress.IPv4Network(subnet)
    for route in routes:
        destination = str(route.get("dst", "default"))
        if destination in {"default", "0.0.0.0/0"}:
            continue
        if ipaddress.IPv4Network(destination, strict=False).overlaps(wanted):
            return f"{destination} on {route.get('dev', 'no interface')}"
    return ""


def _check_ours(description: Description, site: Path) -> None:
    inspected = json.loads(run(["podman", "network", "inspect", description.network]))[0]
    # Netavark and CNI, podman's two network backends, describe a network alike since podman 4.
    found = [str(subnet["subnet"]) for subnet in inspected.get("subnets") or []]
    labels = inspected.get("labels") or {}
    if labels.get(LABEL) != description.network or found != [description.subnet]:
        raise SubstrateError(
            "a podman network of this name exists and is not this substrate's",
            f"{description.path}: network.name",
            f"{description.network} with {', '.join(found) or 'no subnet'}",
            f"{description.network} with {description.subnet}, made by 'up'",
            f"run 'podman network rm {description.network}' if it is yours to remove,"
            " or choose another name",
        )
    if labels.get(SITE) != str(site.resolve()):
        raise SubstrateError(
            "these hosts belong to another site",
            f"--site {site}",
            str(site.resolve()),
            str(labels.get(SITE)),
            f"give that site, or run 'python -m tests.substrate down {description.path}' first",
        )
