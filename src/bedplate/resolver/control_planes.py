"""Control planes: how many there are, which of them take pods, and how the cluster is reached."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bedplate.resolver import ports
from bedplate.resolver.explanations import refused
from bedplate.resolver.networks import address, of_endpoint
from bedplate.resolver.outcome import Notice, Reason
from bedplate.resolver.wishes import CLUSTER
from bedplate.site.site import CONTROL_PLANE, NODES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bedplate.common.errors import Problem
    from bedplate.site import Site, SiteHost
    from bedplate.site.kubernetes import Kubernetes

SETTING = "bedplate_kubernetes.control_plane_taint"


def check(site: Site) -> Iterator[Problem]:
    """Yield what is wrong with the control planes and their endpoint, where nodes need any."""
    nodes = site.nodes
    members = [host for host in nodes if CONTROL_PLANE in host.groups]
    if not nodes or (settings := nodes[0].wishes.bedplate_kubernetes) is None:
        return
    path = ("bedplate_kubernetes", "endpoint")
    if not members and CONTROL_PLANE not in site.groups:
        got = f"no group {CONTROL_PLANE} for {len(nodes)} nodes in {_groups(nodes)}"
        allowed = "an odd number of hosts, or an empty group where the cluster is made elsewhere"
        fix = (
            f"put hosts into the group {CONTROL_PLANE}, or write `{CONTROL_PLANE}: {{}}` into the "
            "inventory where the cluster is made elsewhere"
        )
        yield refused("control-plane", nodes[0], path, got, allowed, fix)
    elif members and len(members) % 2 == 0:
        got, allowed = f"{len(members)} hosts in {CONTROL_PLANE}", "an odd number"
        fix = f"leave {members[-1].name} out of {CONTROL_PLANE}, or add one host"
        yield refused("control-plane", members[-1], ("ansible_host",), got, allowed, fix)
    endpoint = of_endpoint(settings)
    for _, other in sorted(site.hosts.items()):
        names = {other.address, other.connection.address, other.name}
        if endpoint in names and members and other not in members:
            allowed = "a control plane host, or a name that reaches all of them"
            fix = f"write {members[0].address} or a load balancer's name"
            got = f"{endpoint}, {other.name}"
            yield refused("endpoint-is-host", nodes[0], path, got, allowed, fix)
    yield from _listening(nodes[0], settings, members)
    yield from _virtual(site, settings, members)


def _listening(host: SiteHost, settings: Kubernetes, members: list[SiteHost]) -> Iterator[Problem]:
    """Yield that an API server could not listen where a control plane is the endpoint itself."""
    name, port = of_endpoint(settings), int(settings.endpoint.rpartition(":")[2])
    itself = next((one for one in members if one.address == name), None)
    if itself is None or settings.endpoint_by != "external" or port == ports.API_PORT:
        return
    if port in ports.taken(itself, settings) or port in ports.NODE_PORTS:
        got, fix = f"port {port} of {itself.name}", f"write port {ports.API_PORT}"
        allowed = "a port that nothing else has on a control plane"
        path = ("bedplate_kubernetes", "endpoint")
        yield refused("endpoint-address", host, path, got, allowed, fix)


def _virtual(site: Site, settings: Kubernetes, members: list[SiteHost]) -> Iterator[Problem]:
    """Yield why keepalived could not move the endpoint between the control planes."""
    by, path = settings.endpoint_by, ("bedplate_kubernetes", "endpoint")
    if by == "external" or not site.nodes:
        return
    host = site.nodes[0]
    name, _, port = settings.endpoint.rpartition(":")
    moved = address(of_endpoint(settings))
    if not members:
        fix = "write endpoint_by: external"
        got = f"{by} without a host in {CONTROL_PLANE}"
        where = ("bedplate_kubernetes", "endpoint_by")
        yield refused("endpoint-address", host, where, got, "control planes of the site", fix)
    if moved is None:
        fix = "write an unused address of the control planes' network"
        yield refused("endpoint-address", host, path, name, f"an address, for {by} to move", fix)
        return
    for other in site.hosts.values():
        if address(other.address) == moved:
            fix = "write an unused address of that network, or endpoint_by: external"
            got = f"{name}, the address of {other.name}"
            yield refused("endpoint-address", host, path, got, "an address of no host", fix)
    if by == "keepalived" and int(port) != ports.API_PORT:
        fix = f"write {name}:{ports.API_PORT}, or endpoint_by: haproxy"
        got = f"port {port} with keepalived"
        allowed = f"{ports.API_PORT}, where the API servers listen"
        yield refused("endpoint-address", host, path, got, allowed, fix)
    alone = settings.model_copy(update={"endpoint_by": "external"})
    taken = {one for member in members for one in ports.taken(member, alone)}
    if by == "haproxy" and (int(port) in taken or int(port) in ports.NODE_PORTS):
        fix = f"write another port, for example {name}:8443, or endpoint_by: keepalived"
        got = f"port {port} with haproxy"
        allowed = "a port that Kubernetes leaves free on its control planes"
        yield refused("endpoint-address", host, path, got, allowed, fix)
    for member in members:
        own = address(member.address)
        if own is None or own.version != moved.version:
            fix = f"set {member.address_key[0]} of {member.name} to its IPv{moved.version} address"
            got = f"{member.address} for {member.name}"
            allowed = f"IPv{moved.version} addresses of control planes, which {by} names"
            yield refused("endpoint-address", member, member.address_key, got, allowed, fix)


def _groups(nodes: Iterable[SiteHost]) -> str:
    found = {group for host in nodes for group in host.groups}
    return " and ".join(group for group in NODES if group in found)


def _taint(site: Site) -> bool | None:
    settings = site.nodes[0].wishes.bedplate_kubernetes if site.nodes else None
    return settings.control_plane_taint if settings is not None else None


def untainted(site: Site) -> list[str]:
    """Return the control planes that take pods: as the site says, or by default.

    By default those that are in a GPU pool take pods, and all where pods had no node otherwise.
    """
    nodes = site.nodes
    members = [host for host in nodes if CONTROL_PLANE in host.groups]
    wanted = _taint(site)
    if wanted is not None:
        return [] if wanted else [host.name for host in members]
    pooled = [host.name for host in members if host.pool is not None]
    return [host.name for host in members] if len(members) == len(nodes) and not pooled else pooled


def notices(site: Site) -> Iterator[Notice]:
    """Yield what a reader of the plan should know of control planes: their address, and pods."""
    yield from _ends_with_one(site)
    with_gpus = [host.name for host in site.nodes if CONTROL_PLANE in host.groups and host.pool]
    if _taint(site) and with_gpus:
        yield Notice(
            f"pods get the GPUs of {', '.join(with_gpus)} only if they tolerate the control "
            "plane's taint",
            CLUSTER,
            hint=f"{SETTING}: false lets all pods in",
        )


def _ends_with_one(site: Site) -> Iterator[Notice]:
    """Report an endpoint that is one of several control planes: the others do not replace it."""
    settings = site.nodes[0].wishes.bedplate_kubernetes if site.nodes else None
    members = [host for host in site.nodes if CONTROL_PLANE in host.groups]
    if settings is None or settings.endpoint_by != "external" or len(members) < 2:
        return
    endpoint = of_endpoint(settings)
    for one in members:
        if endpoint in {one.address, one.connection.address, one.name}:
            text = f"the endpoint {endpoint} is {one.name} alone: without that host no API answers"
            hint = (
                "before the cluster is made, write an unused address of that network with "
                "endpoint_by: keepalived, or a load balancer's name; it cannot change later"
            )
            yield Notice(text, CLUSTER, hint=hint)


def reasons(site: Site) -> Iterator[Reason]:
    """Yield why pods run on control planes, where they do."""
    names = untainted(site)
    if not names:
        return
    pooled = any(site.hosts[name].pool for name in names)
    why = "they are in a GPU pool" if pooled else "there is no other node"
    because = (
        f"{SETTING} is false" if _taint(site) is False else f"{why}; {SETTING}: true keeps them off"
    )
    yield Reason(CLUSTER, "pods on control planes", ", ".join(names), because)
