"""Settings of kubelet and kube-proxy: what no release takes, and what another part decides.

That the rules are the programs' own is compared in tests/unit/test_configuration_programs.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.catalogue import load_catalogue
from bedplate.resolver import configuration
from bedplate.site import load_site
from tests.resolver.test_networks import site

if TYPE_CHECKING:
    from pathlib import Path

    from bedplate.site import Site

VALUE, DECIDED, FIELD = "configuration-value", "configuration-decided", "configuration-field"
KUBELET: dict[str, tuple[dict[str, Any], list[tuple[str, str]]]] = {
    "words": (
        {"topologyManagerPolicy": "single-numa", "topologyManagerScope": "pods"},
        [(VALUE, "topologyManagerPolicy"), (VALUE, "topologyManagerScope")],
    ),
    "swap": (
        {"failSwapOn": False, "memorySwap": {"swapBehavior": "UnlimitedSwap"}},
        [(VALUE, "memorySwap.swapBehavior")],
    ),
    "shutdown": (
        {"shutdownGracePeriod": "10s", "shutdownGracePeriodCriticalPods": "30s"},
        [(VALUE, "shutdownGracePeriodCriticalPods")],
    ),
    "shutdown-by-default": (
        {"shutdownGracePeriodCriticalPods": "10s"},
        [(VALUE, "shutdownGracePeriodCriticalPods")],
    ),
    "images": (
        {"imageGCHighThresholdPercent": 70, "imageGCLowThresholdPercent": 80},
        [(VALUE, "imageGCLowThresholdPercent")],
    ),
    "images-over-a-default": (
        {"imageGCHighThresholdPercent": 70},
        [(VALUE, "imageGCHighThresholdPercent")],
    ),
    "log-files": ({"containerLogMaxFiles": 1}, [(VALUE, "containerLogMaxFiles")]),
    "enforced": (
        {"enforceNodeAllocatable": ["pods", "system-reserved"], "systemReserved": {"cpu": "2"}},
        [(VALUE, "enforceNodeAllocatable")],
    ),
    "static-without-a-CPU": (
        {"cpuManagerPolicy": "static", "systemReserved": {"memory": "1Gi"}},
        [(VALUE, "cpuManagerPolicy")],
    ),
    "static-memory-of-no-known-size": (
        {
            "memoryManagerPolicy": "Static",
            "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
        },
        [(VALUE, "reservedMemory")],
    ),
    "gate-of-no-release": ({"featureGates": {"DevicePlugins": True}},
                           [(VALUE, "featureGates.DevicePlugins")]),
    "gate-of-a-stage": (
        {"featureGates": {"AllBeta": False, "GracefulNodeShutdownBasedOnPodPriority": True}},
        [(VALUE, "featureGates.GracefulNodeShutdownBasedOnPodPriority")],
    ),
    "gate-without-another": (
        {"featureGates": {"GracefulNodeShutdown": False}},
        [(VALUE, "featureGates.GracefulNodeShutdown")],
    ),
    "field-without-its-gate": (
        {"imageMaximumGCAge": "1h", "featureGates": {"ImageMaximumGCAge": False}},
        [(VALUE, "featureGates.ImageMaximumGCAge")],
    ),
    "duration": ({"syncFrequency": "1 minute"}, [(VALUE, "syncFrequency")]),
    "amount": ({"systemReserved": {"memory": "1GB"}}, [(VALUE, "systemReserved.memory")]),
    "number-in-YAML": ({"containerLogMaxSize": "1e7"}, [(VALUE, "containerLogMaxSize")]),
    "headers": ({"staticPodURLHeader": {"a": 1}}, [(VALUE, "staticPodURLHeader.a")]),
    "curve": ({"tlsCurvePreferences": [7]}, [(VALUE, "tlsCurvePreferences[0]")]),
    "number-of-64-bits": ({"registryBurst": 2**31}, [(VALUE, "registryBurst")]),
    "inside": (
        {"memorySwap": {"swapBehaviour": "NoSwap"}},
        [(FIELD, "memorySwap.swapBehaviour")],
    ),
    "signal": ({"evictionHard": {"memory.free": "1Gi"}}, [(VALUE, "evictionHard.memory.free")]),
    "soft-without-grace": (
        {"evictionSoft": {"memory.available": "1Gi"}},
        [(VALUE, "evictionSoft.memory.available")],
    ),
    "DNS": ({"clusterDNS": ["169.254.20.10"]}, [(DECIDED, "clusterDNS")]),
    "domain": ({"clusterDomain": "lab.example"}, [(DECIDED, "clusterDomain")]),
    "certificates": ({"serverTLSBootstrap": True}, [(DECIDED, "serverTLSBootstrap")]),
    "taints": (
        {"registerWithTaints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]},
        [(DECIDED, "registerWithTaints")],
    ),
    "address": ({"address": "10.0.0.1"}, [(DECIDED, "address")]),
    "manifests": ({"staticPodPath": "/etc/manifests"}, [(DECIDED, "staticPodPath")]),
}  # fmt: skip
GOOD: dict[str, dict[str, Any]] = {
    "static": {"cpuManagerPolicy": "static"},
    "static-with-CPUs": {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0-1"},
    "static-memory": {
        "memoryManagerPolicy": "Static",
        "systemReserved": {"memory": "1Gi"},
        "reservedMemory": [
            {"numaNode": 0, "limits": {"memory": "1Gi"}},
            {"numaNode": 1, "limits": {"memory": "100Mi"}},
        ],
    },
    "the-same": {"clusterDNS": ["10.96.0.10"], "clusterDomain": "cluster.local"},
    "no-values": {"maxPods": None, "evictionHard": None, "featureGates": None},
    "enforced": {
        "enforceNodeAllocatable": ["pods", "system-reserved"],
        "systemReservedCgroup": "/system.slice",
    },
    "eviction": {"evictionHard": {"memory.available": "500Mi", "nodefs.available": "10%"}},
    "pulls": {"serializeImagePulls": False, "maxParallelImagePulls": 4},
    "gates": {"featureGates": {"MemoryQoS": True, "NodeLogQuery": True}},
}


def found(asked: Site) -> list[tuple[str, str]]:
    """Return the rules and settings of what a site is refused for."""
    return [(one.rule, str(one.key)) for one in configuration.check(asked, load_catalogue())]


@pytest.mark.parametrize("name", KUBELET)
def test_a_setting_that_kubelet_refuses_is_refused(name: str) -> None:
    fields, rules = KUBELET[name]
    setting = "bedplate_kubernetes.kubelet"
    assert sorted(found(site(kubelet=fields))) == [(rule, f"{setting}.{at}") for rule, at in rules]


@pytest.mark.parametrize("name", KUBELET)
def test_a_pools_settings_are_judged_as_the_clusters(name: str) -> None:
    fields, rules = KUBELET[name]
    asked = site(also={"kubernetes_node_kubelet": fields})
    whole = found(asked)
    assert sorted(set(whole)) == [(rule, f"kubernetes_node_kubelet.{at}") for rule, at in rules]


@pytest.mark.parametrize("name", GOOD)
def test_a_setting_that_kubelet_takes_is_taken(name: str) -> None:
    assert found(site(kubelet=GOOD[name])) == []
    assert found(site(also={"kubernetes_node_kubelet": GOOD[name]})) == []


@pytest.mark.parametrize(
    ("fields", "rule", "at"),
    [
        ({"mode": "userspace"}, VALUE, "mode"),
        ({"mode": "nftables", "nftables": {"masqueradeBit": 32}}, VALUE, "nftables.masqueradeBit"),
        ({"detectLocalMode": "BridgeInterface"}, VALUE, "detectLocalMode"),
        ({"iptables": {"minSyncPeriod": "1m"}}, VALUE, "iptables.minSyncPeriod"),
        ({"metricsBindAddress": "node:10249"}, VALUE, "metricsBindAddress"),
        ({"nodePortAddresses": ["all"]}, VALUE, "nodePortAddresses[0]"),
        ({"featureGates": {"EndpointSlice": True}}, VALUE, "featureGates.EndpointSlice"),
        ({"clusterCIDR": "10.0.0.0/8"}, DECIDED, "clusterCIDR"),
        ({"hostnameOverride": "n1"}, DECIDED, "hostnameOverride"),
    ],
)
def test_a_setting_that_kube_proxy_refuses_is_refused(
    fields: dict[str, Any], rule: str, at: str
) -> None:
    assert found(site(kube_proxy=fields)) == [(rule, f"bedplate_kubernetes.kube_proxy.{at}")]


def test_taints_are_a_pools() -> None:
    taints = [{"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}]
    (problem,) = configuration.check(site(kubelet={"registerWithTaints": taints}), load_catalogue())
    assert problem.fix == "write them as bedplate_taints of the pool"
    assert found(site(also={"bedplate_taints": taints})) == []


def test_an_option_that_is_no_field_has_its_setting_here() -> None:
    (problem,) = configuration.check(site(kubelet={"nodeIP": "10.0.0.1"}), load_catalogue())
    assert (problem.rule, problem.fix) == (FIELD, "write bedplate_node_ip for the host")


@pytest.mark.parametrize(
    ("own", "at"),
    [
        ({"systemReserved": {"memory": "512Gi"}}, "systemReserved.memory"),
        ({"kubeReserved": {"memory": "300Gi"}, "systemReserved": {"memory": "212Gi"}},
         "kubeReserved.memory"),
        ({"systemReserved": {"cpu": "64"}}, "systemReserved.cpu"),
        ({"evictionHard": {"memory.available": "100%"}}, "evictionHard.memory.available"),
        ({"systemReserved": {"memory": "511Gi", "cpu": "63500m"}}, ""),
    ],
)  # fmt: skip
def test_a_node_does_not_keep_all_that_it_has(own: dict[str, Any], at: str) -> None:
    size = {"bedplate_host": {"os": "ubuntu-24.04", "memory": "512Gi", "cpus": 64}}
    for where, asked in (
        ("bedplate_kubernetes.kubelet", site(kubelet=own, also=size)),
        ("kubernetes_node_kubelet", site(also=size | {"kubernetes_node_kubelet": own})),
    ):
        assert set(found(asked)) == ({(VALUE, f"{where}.{at}")} if at else set())


def test_kube_proxy_takes_what_goes_together() -> None:
    fields = {"mode": "ipvs", "ipvs": {"scheduler": "rr", "excludeCIDRs": ["10.0.0.0/8"]}}
    assert found(site(kube_proxy={**fields, "clusterCIDR": "10.244.0.0/16"})) == []


def test_a_pool_changes_the_clusters_settings() -> None:
    """kubelet puts the pool's file over the cluster's: null takes a field back, lists replace."""
    images = {"imageGCHighThresholdPercent": 70, "imageGCLowThresholdPercent": 60}

    def of_pool(**fields: Any) -> list[tuple[str, str]]:
        return found(site(kubelet=images, also={"kubernetes_node_kubelet": fields}))

    low, high = (
        f"kubernetes_node_kubelet.imageGC{name}ThresholdPercent" for name in ("Low", "High")
    )
    assert of_pool() == []
    assert of_pool(imageGCLowThresholdPercent=70)[0] == (VALUE, low)
    assert of_pool(imageGCHighThresholdPercent=60)[0] == (VALUE, high)
    # Its default is 80, and null in a pool is what makes it so.
    assert of_pool(imageGCLowThresholdPercent=None) == []
    assert of_pool(imageGCHighThresholdPercent=None) == []


def test_a_gate_is_judged_by_the_release() -> None:
    """1.36 has removed what 1.33 locks; each release has its own."""
    catalogue = load_catalogue()
    gates = {name: fact.value for name, fact in catalogue.feature_gates.items()}
    assert set(gates) == {"1.33", "1.34", "1.35", "1.36"}
    gone = "PodDisruptionConditions"
    assert gone in gates["1.33"].locked_on
    at = f"bedplate_kubernetes.kubelet.featureGates.{gone}"
    for version, value, rules in (
        ("1.33", True, []),
        ("1.33", False, [(VALUE, at)]),
        ("1.36", True, [(VALUE, at)]),
    ):
        assert found(site(version=version, kubelet={"featureGates": {gone: value}})) == rules
    (problem,) = configuration.check(site(kubelet={"featureGates": {gone: True}}), catalogue)
    assert problem.fix.startswith("remove it: 1.3")


def test_a_refusal_names_the_place_and_the_source(tmp_path: Path) -> None:
    files = {
        "hosts.yml": "all: {children: {control_plane: {hosts: {cp1: }}, gpu_pools: {children: "
        "{pool_a: {hosts: {g1: , g2: }}}}}}\n",
        "group_vars/all.yml": "bedplate_host: {os: ubuntu-24.04}\n"
        'bedplate_kubernetes: {version: "1.36", endpoint: "cp1:6443"}\n',
        "group_vars/pool_a.yml": "bedplate_gpu: {model: l40s, count: 4}\nkubernetes_node_kubelet:\n"
        "  topologyManagerPolicy: single-numa\n  evictionHard: {memory.available: 100 Mi}\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    problems = {str(one): one for one in configuration.check(load_site(tmp_path), load_catalogue())}
    pool = f"{tmp_path}/group_vars/pool_a.yml"
    assert list(problems) == [
        (
            f"{pool}:4:18: component does not take this value — "
            "kubernetes_node_kubelet.evictionHard.memory.available — got '100 Mi' / allowed an "
            "amount, or 0% to 100% — correct it"
        ),
        (
            f"{pool}:3:3: component does not take this value — "
            "kubernetes_node_kubelet.topologyManagerPolicy — got single-numa / allowed none, "
            "best-effort, restricted or single-numa-node — write single-numa-node"
        ),
    ]
    (source,) = list(problems.values())[1].sources
    assert source.endswith("v1.36.3/pkg/kubelet/apis/config/validation/validation.go")


def test_each_host_may_differ_and_equal_hosts_are_judged_once() -> None:
    asked = site(nodes=1250, pod_subnet="10.0.0.0/8", service_subnet="172.16.0.0/12")
    fields = {"reservedSystemCPUs": "0-"}
    (first, *_) = [host for host in asked.hosts.values() if host.pool]
    wishes = first.wishes.model_copy(update={"kubernetes_node_kubelet": fields})
    hosts = {
        name: replace(host, wishes=wishes) if host.pool else host
        for name, host in asked.hosts.items()
    }
    at = "kubernetes_node_kubelet.reservedSystemCPUs"
    assert found(replace(asked, hosts=hosts)) == [(VALUE, at)]
