"""The cluster's networks against its hosts, its sources and kubeadm's limits, by the real facts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bedplate.catalogue import load_catalogue
from bedplate.common.connection import Connection
from bedplate.resolver import configuration, networks, ports
from bedplate.resolver.control_planes import check as control_planes
from bedplate.site.site import Site
from tests.resolver.test_whole_sites import T4, decide, host, planned

V6 = {"pod_subnet": "fd00::/56", "service_subnet": "fd01::/112", "cni": "cilium"}
NFS = {"homes": {"nfs": {"server": "10.244.0.9", "path": "/homes"}}}


PORTS = ("port", "readOnlyPort")


def site(
    addresses: dict[str, str] | None = None,
    nodes: int = 0,
    also: Any = None,
    own: dict[str, str] | None = None,
    **settings: Any,
) -> Site:
    """Return a site of cp1 and g1 at their addresses, and more nodes known by name.

    `own` are addresses of nodes by bedplate_node_ip.
    """
    kubernetes = {"bedplate_kubernetes": {"endpoint": "10.0.0.1:6443"} | settings}
    wishes = T4 | kubernetes | (also or {})
    known = {"cp1": "10.0.0.1", "g1": "10.0.0.2"} | (addresses or {})
    known |= {f"n{number}": f"n{number}.example" for number in range(nodes)}
    hosts = {}
    for name, address in known.items():
        groups = ["control_plane"] if name.startswith("cp") else ["gpu_pools", "pool_a"]
        connection = Connection(name=name, address=address)
        ip = {"bedplate_node_ip": own[name]} if own and name in own else {}
        hosts[name] = replace(host(name, groups, wishes | ip), connection=connection)
    return Site(Path("site"), hosts, frozenset({"control_plane", "gpu_pools", "pool_a"}))


def refused(asked: Site) -> list[tuple[str, str]]:
    """Return the rules that refuse a site, each with its setting."""
    facts = load_catalogue()
    found = [*networks.check(asked, facts), *configuration.check(asked, facts)]
    found += ports.check(asked)
    return [(one.rule, str(one.key).removeprefix("bedplate_")) for one in found]


def at(url: str, key: str = "url", **settings: Any) -> Site:
    """Return a site with a server of its own."""
    return site(also={"bedplate_sources": {"mode": "mirror", key: url}}, **settings)


GOOD: dict[str, Site] = {
    "defaults": site(),
    "name": site(endpoint="k8s.example:6443"),
    "name-beside-localhost": site(endpoint="localhost.lab.example:6443"),
    "IPv6": site({"cp1": "fd00:1::1", "g1": "fd00:1::2"}, endpoint="[fd00:1::1]:6443", **V6),
    "IPv6-by-name": site({"cp1": "cp1.example"}, endpoint="k8s.example:6443", **V6),
    "second-network": site({"cp1": "192.0.2.1"}, own={"cp1": "10.0.0.1", "g1": "10.0.0.2"}),
    "just-large-enough": site(nodes=2, pod_subnet="10.244.0.0/22"),
    "largest": site({"cp1": "192.0.2.1", "g1": "g1"}, endpoint="a:1", pod_subnet="10.0.0.0/8",
                    service_subnet="172.16.0.0/12"),
    "smallest": site({"g1": "g1"}, service_subnet="10.96.0.0/28"),
    "kubelet": site(kubelet={"maxPods": 200, "systemReserved": {"cpu": "500m"},
                             "failSwapOn": False, "cgroupDriver": "systemd"}),
    "kube-proxy": site(kube_proxy={"mode": "ipvs", "conntrack": {"maxPerCore": 0}}),
    "kubelet-ports": site(kubelet={"port": 10350, "healthzPort": 0, "readOnlyPort": 10255}),
    "kubelet-least": site(kubelet={"maxPods": 1, "nodeStatusMaxImages": -1, "oomScoreAdj": -999,
                                   "memoryThrottlingFactor": 0.5}),
    "mirror-on-a-control-plane": at("http://10.0.0.1:5080"),
    "mirror-by-https-on-a-control-plane": at("https://10.0.0.1"),
    "mirror-on-a-worker-at-a-control-plane's-port": at("http://10.0.0.2:6443"),
    "mirror-in-the-cluster": at("http://10.0.0.2:30500"),
    "mirror-where-the-API-server-was": at("http://10.0.0.1:6443", endpoint="10.0.0.1:7443"),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_sound_networks_are_taken(name: str) -> None:
    assert refused(GOOD[name]) == []


ENDPOINT = ("endpoint-address", "kubernetes.endpoint")
HAPROXY = {"endpoint": "10.0.0.9:8443", "endpoint_by": "haproxy"}
PODS, SERVICES = "kubernetes.pod_subnet", "kubernetes.service_subnet"
BAD: dict[str, tuple[Site, list[tuple[str, str]]]] = {
    "endpoint-localhost": (site(endpoint="localhost:6443"), [ENDPOINT]),
    "endpoint-Localhost": (site(endpoint="Localhost.localdomain:6443"), [ENDPOINT]),
    "endpoint-loopback": (site(endpoint="127.0.1.1:6443"), [ENDPOINT]),
    "endpoint-loopback-6": (
        site(endpoint="[::1]:6443"),
        [ENDPOINT, ("subnet-family", ENDPOINT[1])],
    ),
    "endpoint-any": (site(endpoint="0.0.0.0:6443"), [ENDPOINT]),
    "endpoint-link-local": (site(endpoint="169.254.10.1:6443"), [ENDPOINT]),
    "endpoint-multicast": (site(endpoint="224.0.0.18:6443"), [ENDPOINT]),
    "endpoint-no-address": (site(endpoint="10.0.0.256:6443"), [ENDPOINT]),
    "endpoint-capitals": (site(endpoint="K8S.example:6443"), [ENDPOINT]),
    "endpoint-two-dots": (site(endpoint="k8s..example:6443"), [ENDPOINT]),
    "endpoint-a-service": (site(endpoint="10.100.0.1:6443"), [ENDPOINT]),
    "endpoint-a-pod": (site(endpoint="10.244.3.3:6443"), [ENDPOINT]),
    "endpoint-IPv6": (site(endpoint="[fd00:1::1]:6443"), [("subnet-family", ENDPOINT[1])]),
    "control-plane-IPv6": (
        site({"cp1": "fd00:1::1"}, endpoint="k8s.example:6443"),
        [("subnet-family", "ansible_host")],
    ),
    "control-plane-loopback": (
        site({"cp1": "127.0.0.1"}, endpoint="k8s.example:6443"),
        [("node-address", "ansible_host")],
    ),
    "pods-IPv6": (
        site(pod_subnet="fd00::/56", cni="cilium"),
        [("subnet-family", SERVICES)],
    ),
    "node-ip-IPv6": (site(own={"g1": "fd00:1::2"}), [("subnet-family", "node_ip")]),
    "node-ip-loopback": (site(own={"g1": "127.0.0.2"}), [("node-address", "node_ip")]),
    "node-ip-twice": (
        site(own={"cp1": "10.0.0.1", "g1": "10.0.0.1"}),
        [("node-address", "node_ip")],
    ),
    "node-ip-among-pods": (site(own={"g1": "10.244.0.9"}), [("subnet-overlap", "node_ip")]),
    "mirror-at-a-node-ip": (
        site(
            own={"cp1": "192.0.2.1"},
            also={"bedplate_sources": {"mode": "mirror", "url": "http://192.0.2.1:2379"}},
        ),
        [("port-taken", "sources.url")],
    ),
    "hosts-among-pods": (
        site({"cp1": "10.244.0.10", "g1": "10.244.0.11"}, endpoint="k8s.example:6443"),
        [("subnet-overlap", PODS)],
    ),
    "hosts-in-both": (
        site({"cp1": "10.244.0.10", "g1": "10.96.0.12"}, endpoint="k8s.example:6443"),
        [("subnet-overlap", PODS), ("subnet-overlap", SERVICES)],
    ),
    "mirror-among-pods": (
        site(also={"bedplate_sources": {"mode": "mirror", "url": "http://10.244.0.1:5080"}}),
        [("subnet-overlap", "sources.url")],
    ),
    "index-a-service": (
        site(also={"bedplate_sources": {"pip": "http://10.97.0.1:3141/simple"}}),
        [("subnet-overlap", "sources.pip")],
    ),
    "proxy-a-service": (
        site(also={"bedplate_proxy": {"url": "http://u:p@10.111.1.1:3128"}}),
        [("subnet-overlap", "proxy.url")],
    ),
    "homes-among-pods": (
        site(also={"bedplate_storage": NFS}),
        [("subnet-overlap", "storage.homes.nfs.server")],
    ),
    "pods-too-large": (site(pod_subnet="172.0.0.0/7"), [("subnet-size", PODS)]),
    "pods-too-small": (site(pod_subnet="10.244.0.0/25"), [("subnet-size", PODS)]),
    "pods-too-large-6": (
        site({"cp1": "cp1"}, endpoint="a:1", **V6 | {"pod_subnet": "fd00::/40"}),
        [("subnet-size", PODS)],
    ),
    "services-too-large": (site(service_subnet="172.0.0.0/11"), [("subnet-size", SERVICES)]),
    "services-too-small": (site(service_subnet="10.96.0.0/31"), [("subnet-size", SERVICES)]),
    "services-too-large-6": (
        site({"cp1": "cp1"}, endpoint="a:1", **V6 | {"service_subnet": "fd01::/64"}),
        [("subnet-size", SERVICES)],
    ),
    "pods-link-local": (site(pod_subnet="169.254.0.0/16"), [("subnet-size", PODS)]),
    "services-loopback": (site(service_subnet="127.16.0.0/16"), [("subnet-size", SERVICES)]),
    "a-node-too-many": (site(nodes=3, pod_subnet="10.244.0.0/22"), [("subnet-nodes", PODS)]),
    "257-nodes": (site(nodes=255), [("subnet-nodes", PODS)]),
    "kubelet-misspelt": (
        site(kubelet={"maxPod": 250}),
        [("configuration-field", "kubernetes.kubelet.maxPod")],
    ),
    "kubelet-flag": (
        site(kubelet={"max-pods": 250}),
        [("configuration-field", "kubernetes.kubelet.max-pods")],
    ),
    "kubelet-kind": (
        site(kubelet={"kind": "KubeletConfiguration"}),
        [("configuration-field", "kubernetes.kubelet.kind")],
    ),
    "kubelet-text-for-number": (
        site(kubelet={"maxPods": "250"}),
        [("configuration-value", "kubernetes.kubelet.maxPods")],
    ),
    "kubelet-number-for-text": (
        site(kubelet={"systemReserved": {"cpu": 1}}),
        [("configuration-value", "kubernetes.kubelet.systemReserved.cpu")],
    ),
    "kubelet-text-for-truth": (
        site(kubelet={"featureGates": {"NodeSwap": "true"}}),
        [("configuration-value", "kubernetes.kubelet.featureGates.NodeSwap")],
    ),
    "kubelet-half-a-pod": (
        site(kubelet={"maxPods": 110.5}),
        [("configuration-value", "kubernetes.kubelet.maxPods")],
    ),
    "kubelet-truth-for-number": (
        site(kubelet={"maxPods": True}),
        [("configuration-value", "kubernetes.kubelet.maxPods")],
    ),
    **{
        f"kubelet-{name}-{value}": (
            site(kubelet={name: value}),
            [("configuration-value", f"kubernetes.kubelet.{name}")],
        )
        for name, value in (
            ("maxPods", -1), ("maxPods", 0), ("port", 0), ("port", 65536),
            ("imageGCHighThresholdPercent", 101), ("oomScoreAdj", -1001), ("maxOpenFiles", -1),
            ("maxParallelImagePulls", 0), ("healthzPort", -1),
        )
    },
    **{
        f"kubelet-{name}-{value}": (
            site(kubelet={name: value}, endpoint_by=by, endpoint="10.0.0.9:8443"),
            [("port-taken", f"kubernetes.kubelet.{name}")],
        )
        for name, value, by in (
            ("port", 6443, "external"), ("port", 22, "external"), ("port", 10248, "external"),
            ("healthzPort", 2381, "external"), ("readOnlyPort", 10250, "external"),
            ("readOnlyPort", 8443, "haproxy"), ("port", 31000, "external"),
        )
    },
    "a-pool's-kubelet": (
        site(also={"kubernetes_node_kubelet": {"port": 10256, "readOnlyPort": 10248}}),
        # Of either host: their settings are equal, and not one.
        [("port-taken", f"kubernetes_node_kubelet.{name}") for name in PORTS] * 2,
    ),
    **{
        f"{key}-{url}": (at(url, key, **more), [("port-taken", f"sources.{key}")])
        for url, key, more in (
            ("http://10.0.0.1:6443", "url", {}),
            ("https://10.0.0.1:2379/x", "files", {}),
            ("10.0.0.1:10250/x", "registry", {}),
            ("http://10.0.0.2:10250", "pip", {}),
            ("http://10.0.0.2:22", "conda", {}),
            ("http://k8s.example:6443", "url", {"endpoint": "k8s.example:6443"}),
            ("http://10.0.0.1:7443", "url", {"endpoint": "10.0.0.1:7443"}),
            ("http://10.0.0.1:8443", "url", HAPROXY),
            ("http://10.0.0.1:10350", "url", {"kubelet": {"port": 10350}}),
        )
    },
    "proxy-on-the-API-server's-port": (
        site(also={"bedplate_proxy": {"url": "http://u:p@10.0.0.1:6443"}}),
        [("port-taken", "proxy.url")],
    ),
    "kubelet-cgroupfs": (
        site(kubelet={"cgroupDriver": "cgroupfs"}),
        [("configuration-decided", "kubernetes.kubelet.cgroupDriver")],
    ),
    "kubelet-of-a-later-release": (
        site(version="1.35", kubelet={"memoryReservationPolicy": "None"}),
        [("configuration-field", "kubernetes.kubelet.memoryReservationPolicy")],
    ),
    "kube-proxy-misspelt": (
        site(kube_proxy={"modus": "ipvs"}),
        [("configuration-field", "kubernetes.kube_proxy.modus")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_no_cluster_can_have_is_refused(name: str) -> None:
    asked, rules = BAD[name]
    assert refused(asked) == rules


def test_the_fix_has_room_for_every_node() -> None:
    (problem,) = networks.check(site(nodes=10, pod_subnet="10.244.8.0/25"), load_catalogue())
    assert problem.fix == "write 10.244.0.0/20"
    (problem,) = networks.check(site(nodes=300), load_catalogue())
    assert problem.fix == "write 10.244.0.0/15, or another subnet of that size"


def test_a_port_that_is_taken_is_said_with_whose_it_is() -> None:
    (problem,) = ports.check(at("http://10.0.0.1:6443"))
    assert str(problem) == (
        "group_vars/control_plane.yml:1:1: another program uses this port — bedplate_sources.url — "
        "got port 6443 of cp1, which the API server has / allowed a port that no part of "
        "Kubernetes has — let it listen on another port, and write that"
    )
    (problem,) = configuration.check(site(kubelet={"maxPods": 0}), load_catalogue())
    assert (problem.got, problem.allowed) == ("0", "1 or more")


@pytest.mark.parametrize("port", [10248, 10256, 10250, 2381, 22, 31000])
def test_haproxy_has_a_port_of_its_own(port: int) -> None:
    asked = site(endpoint=f"10.0.0.9:{port}", endpoint_by="haproxy")
    (problem,) = control_planes(asked)
    assert (problem.rule, problem.key) == (ENDPOINT[0], f"bedplate_{ENDPOINT[1]}")


@pytest.mark.parametrize("port", [10250, 2379, 31000, 22])
def test_a_control_plane_that_is_the_endpoint_has_a_port_for_it(port: int) -> None:
    (problem,) = control_planes(site(endpoint=f"10.0.0.1:{port}"))
    assert (problem.rule, problem.fix) == ("endpoint-address", "write port 6443")
    assert list(control_planes(site(endpoint="10.0.0.1:7443"))) == []
    assert list(control_planes(site(endpoint=f"k8s.example:{port}"))) == []


def test_a_mirror_on_each_host_is_warned_of() -> None:
    facts = load_catalogue()
    for url, warned in (("http://localhost:5080", 1), ("http://127.0.0.1", 1), ("http://m", 0)):
        asked = site(also={"bedplate_sources": {"mode": "mirror", "url": url}})
        assert len(list(networks.notices(asked, facts))) == warned


def test_many_hosts_in_a_subnet_are_one_message() -> None:
    many = {f"g{number}": f"10.244.1.{number}" for number in range(1, 41)}
    (problem,) = networks.check(site(many), load_catalogue())
    assert str(problem.got).endswith("g10 10.244.1.10, g11 10.244.1.11 and 37 more hosts in it")


def test_a_cluster_made_elsewhere_has_networks_of_its_own() -> None:
    asked = site({"g1": "10.244.0.11"})
    workers = replace(asked, hosts={"g1": asked.hosts["g1"]})
    assert refused(workers) == []
    assert list(control_planes(workers)) == []


def test_more_pods_than_a_node_has_addresses_for_are_warned_of() -> None:
    settings = {
        "bedplate_kubernetes": {"endpoint": "k8s.example:6443", "kubelet": {"maxPods": 300}}
    }
    plan = planned(
        decide(
            host("cp1", ["control_plane"], settings),
            host("a", ["gpu_pools", "pool_a"], T4 | settings),
        )
    )
    (warned,) = [text for text in plan.warnings if "maxPods" in text]
    assert warned == (
        "cluster: maxPods 300 is more than a node has addresses for: 253 in its /24; write "
        "bedplate_kubernetes.kubelet.maxPods: 253 or less"
    )
