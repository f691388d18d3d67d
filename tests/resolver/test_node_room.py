"""What nodes have for pods of courses: places, memory and CPUs, by kubelet's settings."""

from __future__ import annotations

from typing import Any

import pytest

from bedplate.catalogue import load_catalogue
from bedplate.resolver import course_fit
from bedplate.resolver.node_pods import for_users
from tests.resolver.test_course_fit import MANY, TIMES, board, course, said
from tests.resolver.test_whole_sites import decide, host, planned


def crowd(students: int, of_pool: dict[str, Any] | None = None, **kubelet: int) -> Any:
    """Decide a class on two hosts of four GPUs that are each shared by fifty."""
    asked = course(students, 0.02, hours=["Mon 10:00-12:00"])
    cluster = {"version": "1.36", "endpoint": "192.0.2.1:6443", "kubelet": kubelet}
    everywhere = {
        "bedplate_preset": "classroom",
        "bedplate_courses": [asked],
        "bedplate_kubernetes": cluster,
    }
    gpus = board("l40s", 4) | {"bedplate_sharing": MANY} | everywhere
    gpus |= {"kubernetes_node_kubelet": of_pool or {}}
    nodes = [host(name, ["gpu_pools", "pool_a"], gpus) for name in ("n1", "n2")]
    return decide(host("cp1", ["control_plane"], everywhere), *nodes)


def test_a_class_needs_places_for_its_pods() -> None:
    """Of 220 pods on two nodes 17 are the cluster's own; on one node all that it has once.

    On each node: kube-proxy, flannel, the device plugin, the notebooks' images, the reader. Once:
    CoreDNS (2), Kueue (2), hub, proxy and the recorder of usage.
    """
    text = said(crowd(240))
    assert f"got intro 240 {TIMES} 0.02 at once, Mon 10:00" in text
    assert "allowed 203 students of intro on 8 l40s of pool_a: bound by pods: " in text
    assert "a node takes 110, and 17 of them are the cluster's own" in text
    fixes = text.partition(" own \N{EM DASH} ")[2]
    assert fixes == "write students: 203; or write bedplate_kubernetes.kubelet.maxPods: 129"
    planned(crowd(203))
    assert "students: 239; or" in said(crowd(240, maxPods=128))
    plan = planned(crowd(240, maxPods=129))
    assert course_fit.lines(plan.lock, load_catalogue())[0][1].endswith("; 1 left")


def test_one_node_has_all_that_the_cluster_has_once() -> None:
    """Of 200 places of its GPUs 188 are left then, and 195 of the other's."""
    text = said(crowd(392, maxPods=200))
    assert "write students: 383; or write bedplate_kubernetes.kubelet.maxPods: 205" in text
    # A node's subnet has 253 addresses, which is more than its GPUs have shares.
    assert "bound by compute" in said(crowd(401, maxPods=253))


def test_a_pools_own_number_of_pods_counts() -> None:
    text = said(crowd(240, {"maxPods": 100}, maxPods=250))
    assert "a node takes 100, and 17 of them are the cluster's own" in text
    assert "write students: 183; or write kubernetes_node_kubelet.maxPods: 129" in text
    planned(crowd(240, {"maxPods": 129}))


@pytest.mark.parametrize(
    ("of_cluster", "of_pool", "memory", "cpu"),
    [
        # 330 MiB and 5 % of 100 GiB in whole 64 MiB, and 100 MiB before kubelet evicts.
        ({}, {}, 5504 + 100, 80 + 160),
        ({}, {"systemReserved": {"memory": "10Gi"}}, 10 * 1024 + 100, 0),
        ({"kubeReserved": {"memory": "2Gi", "cpu": "1"}}, {}, 2048 + 100, 1000),
        # null takes a field back, as kubelet does it.
        ({"kubeReserved": {"memory": "2Gi", "cpu": "1"}}, {"kubeReserved": None}, 100, 0),
        (
            {"kubeReserved": {"memory": "2Gi", "cpu": "1"}},
            {"kubeReserved": {"memory": "3Gi"}, "evictionHard": {"memory.available": "1Gi"}},
            3072 + 1024,
            1000,
        ),
    ],
)
def test_what_a_pool_reserves_is_no_pods(
    of_cluster: dict[str, Any], of_pool: dict[str, Any], memory: int, cpu: int
) -> None:
    cluster = {"endpoint": "192.0.2.1:6443", "kubelet": of_cluster}
    size = {"os": "ubuntu-24.04", "memory": "100Gi", "cpus": 16}
    wishes = board("l40s", 4) | {"bedplate_kubernetes": cluster, "bedplate_host": size}
    node = host("n1", ["gpu_pools", "pool_a"], wishes | {"kubernetes_node_kubelet": of_pool})
    of_control_plane = {"bedplate_kubernetes": cluster, "bedplate_host": size}
    lock = planned(decide(host("cp1", ["control_plane"], of_control_plane), node)).lock
    catalogue = load_catalogue()
    free, own = for_users(lock, catalogue)["n1"], catalogue.own_pods
    parts = ["kube-proxy", "flannel", "device-plugin"]
    each = [own[name].value for name in parts]
    once = [own[name].value for name in ("coredns",)]
    pods_memory = sum(one.each * one.memory for one in each) + sum(
        one.once * one.memory for one in once
    )
    pods_cpu = sum(one.each * one.cpu for one in each) + sum(one.once * one.cpu for one in once)
    assert free.memory == 100 * 1024 - memory - pods_memory
    assert free.cpu == 16_000 - cpu - pods_cpu


def test_more_shares_than_pods_is_told() -> None:
    wishes = board("l40s", 4) | {"bedplate_sharing": MANY}
    told = [
        str(one)
        for one in planned(
            decide(host("cp1", ["control_plane"], {}), host("n1", ["gpu_pools", "pool_a"], wishes))
        ).notices
    ]
    (notice,) = [one for one in told if "shares on a node" in one]
    assert "200 shares on a node, which takes 105 pods and the cluster's own" in notice
