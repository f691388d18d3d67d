"""The cluster's own networks: their sizes, and what must not lie in them. Linear in the hosts."""

from __future__ import annotations

import re
import socket
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bedplate.resolver.explanations import refused
from bedplate.resolver.node_pods import addresses, kubelet_pods, subnet_limit
from bedplate.resolver.outcome import Notice, Stops
from bedplate.resolver.wishes import CLUSTER
from bedplate.site.site import CONTROL_PLANE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from ipaddress import IPv4Address, IPv6Address

    from bedplate.catalogue import Catalogue
    from bedplate.catalogue.kubernetes_facts import SubnetLimit
    from bedplate.common.errors import Problem
    from bedplate.site import Site, SiteHost
    from bedplate.site.courses import Volume
    from bedplate.site.kubernetes import Kubernetes
    from bedplate.site.places import KeyPath

type Network = IPv4Network | IPv6Network

SETTING = "bedplate_kubernetes"
PODS, SERVICES = (SETTING, "pod_subnet"), (SETTING, "service_subnet")
ENDPOINT = (SETTING, "endpoint")
#: Names that every host has for itself.
ITSELF = re.compile(r"(.+\.)?localhost(\.localdomain)?|ip6-(localhost|loopback)")
#: What Kubernetes takes for a name of the DNS (RFC 1123).
DNS_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*")
#: Of many hosts, so many are named.
NAMED = 3


def address(text: str) -> IPv4Address | IPv6Address | None:
    """Return an address, None of a name."""
    try:
        return ip_address(text)
    except ValueError:
        return None


def of_endpoint(settings: Kubernetes) -> str:
    """Return the name or address in an endpoint, without brackets and port."""
    return settings.endpoint.rsplit(":", 1)[0].strip("[]")


def check(site: Site, catalogue: Catalogue) -> Iterator[Problem]:
    """Yield what is wrong with the networks of a cluster that this site makes."""
    if not site.nodes or (settings := site.nodes[0].wishes.bedplate_kubernetes) is None:
        return
    host = site.nodes[0]
    yield from _endpoint(host, of_endpoint(settings))
    members = [one for one in site.nodes if CONTROL_PLANE in one.groups]
    if not members:  # The cluster is made elsewhere, with networks that are not known here.
        return
    networks: dict[KeyPath, Network] = {
        PODS: ip_network(settings.pod_subnet),
        SERVICES: ip_network(settings.service_subnet),
    }
    for path, network in networks.items():
        yield from _purpose(host, path, network)
        yield from _size(site, path, network, catalogue)
    yield from _room(site, networks[PODS], catalogue)
    yield from _families(site, members, settings, networks)
    yield from _hosts_inside(site, networks)
    yield from _node_ips(site, networks)
    for path, text in _others(site, settings):
        yield from _inside(host, path, text, networks)


def _endpoint(host: SiteHost, name: str) -> Iterator[Problem]:
    allowed, fix = "an address or a name that all nodes reach", "write the control plane's, or a"
    known = address(name)
    if known is not None and not (known.is_loopback or known.is_unspecified):
        if known.is_multicast or known.is_link_local or known.is_reserved:
            fix = "write an address of the hosts' network"
            yield refused("endpoint-address", host, ENDPOINT, name, allowed, fix)
    elif known is not None or ITSELF.fullmatch(name.lower()):
        got, fix = f"{name}, which is each host itself", f"{fix} load balancer's"
        yield refused("endpoint-address", host, ENDPOINT, got, allowed, fix)
    elif re.fullmatch(r"[0-9.]+", name):
        allowed, fix = "an IP address, or a name", "correct the address"
        yield refused("endpoint-address", host, ENDPOINT, name, allowed, fix)
    elif not DNS_NAME.fullmatch(name):
        better = name.lower()
        fix = f"write {better}" if DNS_NAME.fullmatch(better) else "correct the name"
        allowed = "a name of lower-case letters, digits, '-' and single '.'"
        yield refused("endpoint-address", host, ENDPOINT, name, allowed, fix)


def _purpose(host: SiteHost, path: KeyPath, network: Network) -> Iterator[Problem]:
    nowhere = network.network_address.is_unspecified
    if nowhere or network.is_loopback or network.is_multicast or network.is_link_local:
        fix = "write a private subnet that nothing else uses"
        allowed = "a subnet whose addresses are routed"
        yield refused("subnet-size", host, path, str(network), allowed, fix)


def _limit(path: KeyPath, network: Network, catalogue: Catalogue) -> SubnetLimit | None:
    return subnet_limit("pods" if path == PODS else "services", network.version, catalogue)


def _size(site: Site, path: KeyPath, network: Network, catalogue: Catalogue) -> Iterator[Problem]:
    limit = _limit(path, network, catalogue)
    if limit is None or limit.largest <= network.prefixlen <= limit.smallest:
        return
    allowed = f"/{limit.largest} to /{limit.smallest}, which kubeadm takes for IPv{network.version}"
    nearest = limit.largest
    if network.prefixlen > limit.smallest:
        nearest = min(limit.smallest, _enough(limit, len(site.nodes)))
    fix = f"write {_resized(network, nearest)}"
    source = catalogue.subnet_limits[limit.limit].source.url
    yield refused("subnet-size", site.nodes[0], path, str(network), allowed, fix, [source])


def _enough(limit: SubnetLimit, nodes: int) -> int:
    """Return the prefix of the smallest subnet with room for so many nodes."""
    if limit.node_prefix is None:
        return limit.smallest
    return limit.node_prefix - (nodes - 1).bit_length()


def _resized(network: Network, prefix: int) -> str:
    """Return the network around an address with another prefix."""
    return str(ip_network(f"{network.network_address}/{prefix}", strict=False))


def _room(site: Site, pods: Network, catalogue: Catalogue) -> Iterator[Problem]:
    """Refuse more nodes than there are subnets of a node's size."""
    limit, count = _limit(PODS, pods, catalogue), len(site.nodes)
    if limit is None or limit.node_prefix is None or pods.prefixlen > limit.node_prefix:
        return
    room = 2 ** (limit.node_prefix - pods.prefixlen)
    if count <= room:
        return
    prefix = _enough(limit, count)
    got = f"{pods}, which has room for {room}, with {count} nodes"
    allowed = f"/{prefix} or larger: each node gets a /{limit.node_prefix} of it"
    fix = f"write {_resized(pods, prefix)}, or another subnet of that size"
    yield refused("subnet-nodes", site.nodes[0], PODS, got, allowed, fix)


def _families(
    site: Site,
    members: list[SiteHost],
    settings: Kubernetes,
    networks: dict[KeyPath, Network],
) -> Iterator[Problem]:
    """Refuse addresses of two families: the API server's and the pods' are the services'."""
    host, rule, services = site.nodes[0], "subnet-family", networks[SERVICES]
    ours = f"IPv{services.version}, as services are"
    if networks[PODS].version != services.version:
        got = f"{services}, with pod_subnet {networks[PODS]}"
        fix = "write both subnets for IPv4, or both for IPv6"
        yield refused(rule, host, SERVICES, got, "subnets of one IP family", fix)
        return
    endpoint = address(of_endpoint(settings))
    if endpoint is not None and endpoint.version != services.version:
        got, fix = f"{endpoint}, with service_subnet {services}", "write subnets of its family"
        yield refused(rule, host, ENDPOINT, got, ours, fix)
    # Of workers only what the site says: kubelet takes another where it does not fit.
    workers = [one for one in site.nodes if one.wishes.bedplate_node_ip and one not in members]
    for member in [*members, *workers]:
        own, path = address(member.address), member.address_key
        if own is None:
            continue
        if own.version != services.version:
            got = f"{own} for {member.name}, with service_subnet {services}"
            fix = f"write an IPv{services.version} address, or subnets for IPv{own.version}"
            yield refused(rule, member, path, got, ours, fix)
        elif own.is_loopback or own.is_link_local or own.is_multicast or own.is_unspecified:
            got, fix = f"{own} for {member.name}", "write its address in the nodes' network"
            yield refused("node-address", member, path, got, "an address that nodes reach", fix)


def _number(text: str) -> tuple[int, int]:
    """Return an address's version and number, version 0 of a name: quickly, for many hosts."""
    for version, family in ((4, socket.AF_INET), (6, socket.AF_INET6)):
        try:
            return version, int.from_bytes(socket.inet_pton(family, text))
        except OSError:
            continue
    return 0, 0


def _hosts_inside(site: Site, networks: dict[KeyPath, Network]) -> Iterator[Problem]:
    known = [(*_number(host.connection.address), name) for name, host in site.hosts.items()]
    for path, network in networks.items():
        first, end = int(network.network_address), int(network.broadcast_address)
        inside = [
            name
            for version, number, name in known
            if version == network.version and first <= number <= end
        ]
        if not inside:
            continue
        named = sorted(inside)[:NAMED]
        told = ", ".join(f"{name} {site.hosts[name].connection.address}" for name in named)
        more = f" and {len(inside) - NAMED} more hosts" if len(inside) > NAMED else ""
        got = f"{network}, with {told}{more} in it"
        fix = "write a subnet apart from the hosts' network"
        allowed = "a subnet without the address of a host"
        yield refused("subnet-overlap", site.nodes[0], path, got, allowed, fix)


def _node_ips(site: Site, networks: dict[KeyPath, Network]) -> Iterator[Problem]:
    """Refuse addresses of nodes that lie in the cluster's networks, or that two have."""
    seen: dict[str, str] = {}
    for host in site.nodes:
        text = host.wishes.bedplate_node_ip
        if text is None:
            continue
        yield from _inside(host, host.address_key, text, networks)
        if text in seen:
            got, allowed = f"{text} for {host.name}, which {seen[text]} has", "one for each node"
            fix = "write its own address"
            yield refused("node-address", host, host.address_key, got, allowed, fix)
        seen.setdefault(text, host.name)


def served(host: SiteHost) -> Iterator[tuple[KeyPath, str]]:
    """Yield the servers that hosts reach by an address, with or without its scheme."""
    for key in ("url", "files", "registry", "pip", "conda"):
        if url := getattr(host.wishes.bedplate_sources, key):
            yield ("bedplate_sources", key), url
    if host.wishes.bedplate_proxy is not None:
        yield ("bedplate_proxy", "url"), host.wishes.bedplate_proxy.url


def _others(site: Site, settings: Kubernetes) -> Iterator[tuple[KeyPath, str]]:
    """Yield what nodes or pods reach by an address, with its setting: the endpoint first."""
    host = site.nodes[0]
    storage = host.wishes.bedplate_storage
    yield ENDPOINT, of_endpoint(settings)
    for path, url in served(host):
        yield path, urlsplit(url if "://" in url else f"//{url}").hostname or ""
    volumes: dict[KeyPath, Volume | None] = {}
    if storage is not None:
        volumes[("bedplate_storage", "homes")] = storage.homes
        for name, volume in sorted(storage.datasets.items()):
            volumes["bedplate_storage", "datasets", name] = volume
    for path, one in volumes.items():
        if one is not None and one.nfs is not None:
            yield (*path, "nfs", "server"), one.nfs.server
        elif one is not None and one.url is not None:
            yield (*path, "url"), urlsplit(one.url).hostname or ""


def _inside(
    host: SiteHost, path: KeyPath, text: str, networks: dict[KeyPath, Network]
) -> Iterator[Problem]:
    known = address(text.strip("[]"))
    for where, network in networks.items():
        if known is None or known not in network:
            continue
        got, allowed = f"{known}, in {where[-1]} {network}", "an address outside of both subnets"
        fix = f"write another address, or another {where[-1]}"
        rule = "endpoint-address" if path == ENDPOINT else "subnet-overlap"
        yield refused(rule, host, path, got, allowed, fix)


def notices(site: Site, catalogue: Catalogue) -> Iterator[Notice]:
    """Yield that hosts look for the mirror on themselves, or have too few addresses for pods."""
    first = next(iter(site.hosts.values()))
    url = first.wishes.bedplate_sources.url
    mirror = urlsplit(url).hostname or "" if url else ""
    known = address(mirror)
    itself = known.is_loopback if known is not None else bool(ITSELF.fullmatch(mirror))
    if itself and len(site.hosts) > 1:
        yield Notice(
            f"the mirror is {mirror}, which is each host itself",
            hint="write the address of the machine that serves it, unless each host has one",
            stops=Stops.SITE_YML,
        )
    settings = site.nodes[0].wishes.bedplate_kubernetes if site.nodes else None
    if settings is None:
        return
    most, room = kubelet_pods(settings.kubelet, catalogue), addresses(settings, catalogue)
    if room is not None and most > room:
        limit = _limit(PODS, ip_network(settings.pod_subnet), catalogue)
        yield Notice(
            f"maxPods {most} is more than a node has addresses for: {room} in its "
            f"/{limit.node_prefix if limit else ''}",
            CLUSTER,
            hint=f"write {SETTING}.kubelet.maxPods: {room} or less",
        )
