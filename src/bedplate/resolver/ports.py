"""Ports of nodes that Kubernetes has: nothing else that the site names can listen there."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bedplate.resolver.explanations import refused
from bedplate.resolver.networks import served
from bedplate.site.addresses import canonical
from bedplate.site.site import CONTROL_PLANE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bedplate.common.errors import Problem
    from bedplate.site import Site, SiteHost
    from bedplate.site.kubernetes import Kubernetes

#: kubeadm's defaults: the API servers' port, what else control planes have, and every node.
API_PORT = 6443
OF_CONTROL_PLANES = {
    API_PORT: "the API server",
    2379: "etcd",
    2380: "etcd",
    2381: "etcd",
    10257: "the controller manager",
    10259: "the scheduler",
}
OF_NODES = {10249: "kube-proxy", 10256: "kube-proxy"}
#: What the kubelet listens on, by the setting that changes it; 0 is nowhere.
OF_KUBELET = {"port": 10250, "healthzPort": 10248, "readOnlyPort": 0}
NODE_PORTS = range(30000, 32768)
OF_SCHEMES = {"http": 80, "https": 443}
SETTING, OF_POOL = "bedplate_kubernetes", "kubernetes_node_kubelet"


def check(site: Site) -> Iterator[Problem]:
    """Yield servers of the site, and ports of the kubelet, where another program listens."""
    if not site.nodes or (settings := site.nodes[0].wishes.bedplate_kubernetes) is None:
        return
    host = site.nodes[0]
    members = [one for one in site.nodes if CONTROL_PLANE in one.groups]
    yield from _of_kubelet(host, (SETTING, "kubelet"), settings.kubelet, settings, members)
    # Hosts with equal wishes share them.
    for one in {id(node.wishes): node for node in site.nodes}.values():
        own = one.wishes.kubernetes_node_kubelet
        there = [node for node in members if node.wishes is one.wishes]
        yield from _of_kubelet(one, (OF_POOL,), own, settings, there)
    named = list(served(host))
    if not named:
        return
    nodes = {
        canonical(text): one for one in site.nodes for text in (one.connection.address, one.address)
    }
    name, _, port = settings.endpoint.rpartition(":")
    endpoint = canonical(name.strip("[]"))
    for path, url in named:
        parts = urlsplit(url if "://" in url else f"https://{url}")
        where = canonical(parts.hostname or "")
        number = parts.port or OF_SCHEMES.get(parts.scheme, 0)
        node = nodes.get(where)
        whose = taken(node, settings).get(number) if node else None
        if whose is None and where == endpoint and number == int(port):
            whose = "the API server"
        if whose is not None:
            got = f"port {number} of {node.name if node else where}, which {whose} has"
            allowed = "a port that no part of Kubernetes has"
            fix = "let it listen on another port, and write that"
            yield refused("port-taken", host, path, got, allowed, fix)


def taken(node: SiteHost, settings: Kubernetes) -> dict[int, str]:
    """Return the ports that a node's programs have, with whose they are."""
    kubelet = {**settings.kubelet, **node.wishes.kubernetes_node_kubelet}
    ports = OF_NODES | {number: "the kubelet" for number in _kubelet(kubelet).values() if number}
    if CONTROL_PLANE in node.groups:
        ports |= OF_CONTROL_PLANES
        name, _, port = settings.endpoint.rpartition(":")
        if settings.endpoint_by == "haproxy":
            ports[int(port)] = "haproxy"
        elif canonical(name.strip("[]")) == canonical(node.address):
            del ports[API_PORT]  # it listens where the endpoint says
    return ports | {node.connection.port: "its SSH server"}


def _kubelet(fields: Mapping[str, object]) -> dict[str, int]:
    given = {name: fields.get(name) for name in OF_KUBELET}
    # What is no number is refused as such.
    return {
        name: value if type(value := given[name]) is int else number
        for name, number in OF_KUBELET.items()
    }


def _of_kubelet(
    host: SiteHost,
    path: tuple[str, ...],
    given: Mapping[str, object],
    settings: Kubernetes,
    members: list[SiteHost],
) -> Iterator[Problem]:
    """Yield ports that some fields of kubelet's give it, where *members* are control planes."""
    ports = _kubelet({**settings.kubelet, **given})
    for name, number in ports.items():
        if not number or given.get(name) is None:
            continue
        others = {other: "the kubelet" for key, other in ports.items() if key != name}
        others |= OF_NODES | (OF_CONTROL_PLANES if members else {})
        if members and settings.endpoint_by == "haproxy":
            others[int(settings.endpoint.rpartition(":")[2])] = "haproxy"
        others |= {one.connection.port: f"{one.name}'s SSH server" for one in members or [host]}
        whose = "Services of type NodePort" if number in NODE_PORTS else others.get(number)
        if whose is not None:
            got = f"port {number}, which {whose} has"
            fix = f"remove it, or write {OF_KUBELET[name]}"
            allowed = "a port that nothing else on a node has"
            yield refused("port-taken", host, (*path, name), got, allowed, fix)
