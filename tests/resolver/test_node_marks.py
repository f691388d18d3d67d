"""Labels and taints of a pool, from the site to what goes into the cluster."""

from __future__ import annotations

from typing import Any

from bedplate.components.cluster import flannel
from bedplate.components.cluster.wished import cluster_args
from bedplate.components.frameworks import jobs
from bedplate.components.frameworks.jobs.model import Request
from bedplate.components.schedulers.kueue import queues
from bedplate.lock.taints import open_nodes, tolerations
from tests.resolver.test_whole_sites import CP, T4, decide, host, node, planned, rules
from tests.schedulers.locks import queues_of
from tests.stacks.test_components import MANIFEST

GPU = {"key": "example.com/gpu", "effect": "NoSchedule"}
OUT = {"key": "example.com/gpu", "value": "own", "effect": "NoExecute"}
TOLERATED = [
    {"key": "example.com/gpu", "operator": "Equal", "value": "", "effect": "NoSchedule"},
    {"key": "example.com/gpu", "operator": "Equal", "value": "own", "effect": "NoExecute"},
]
ADD_ON: dict[str, Any] = {"bedplate_schedulers": ["volcano"]}
#: A team with a quota of the pool.
TEAMS: dict[str, Any] = {
    "bedplate_schedulers": ["kueue"],
    "bedplate_preset": "research",
    "bedplate_teams": {"lab": {"gpus": {"pool_a": {"guaranteed": 4}}}},
}


def tainted(*taints: dict[str, str], **wishes: Any):
    """A pool of one host with taints."""
    return node("a", T4 | {"bedplate_taints": list(taints)} | wishes)


def plain(name: str = "w"):
    """A worker that takes all pods."""
    return host(name, ["workers"], {})


def test_they_come_to_the_nodes() -> None:
    one = tainted(GPU, OUT, bedplate_labels={"room": "b12"})
    plan = planned(decide(CP, one, plain()))
    assert cluster_args(plan.lock, "", 1)["marks"] == {
        "a": {
            "labels": {"room": "b12"},
            "taints": [GPU, OUT],
        }
    }
    assert open_nodes(plan.lock) == ["w"]
    assert tolerations(plan.lock, ["pool_a"]) == TOLERATED
    assert "marks" not in cluster_args(planned(decide(CP, node("a", T4))).lock, "", 1)


def with_an_add_on(name: str = "cp1", **settings: Any):
    """A control plane of a cluster in which something runs."""
    endpoint = {"bedplate_kubernetes": {"endpoint": "k8s.example:6443"} | settings}
    return host(name, ["control_plane"], endpoint | ADD_ON)


def test_a_cluster_without_room_for_its_own_pods_is_refused() -> None:
    cp, also = with_an_add_on(), node("b", T4 | ADD_ON)
    assert rules(decide(cp, tainted(GPU, **ADD_ON))) == ["taints-leave-room"]
    assert rules(decide(cp, tainted(OUT, **ADD_ON))) == ["taints-leave-room"]
    planned(decide(cp, tainted({**GPU, "effect": "PreferNoSchedule"}, **ADD_ON)))
    planned(decide(cp, tainted(GPU, **ADD_ON), also))
    planned(decide(CP, tainted(GPU)))
    everyone = {"control_plane_taint": False}
    cluster = {"bedplate_kubernetes": {"endpoint": "k8s.example:6443"} | everyone}
    planned(decide(with_an_add_on(**everyone), tainted(GPU, **ADD_ON, **cluster)))


def test_the_plan_says_what_pods_need() -> None:
    plan = planned(decide(CP, tainted(GPU, OUT), plain()))
    said = "\n".join(plan.warnings)
    needed = "pods need a toleration for example.com/gpu:NoSchedule, example.com/gpu:NoExecute"
    assert f"{needed}; nothing adds it" in said
    assert "pulumi up evicts running pods that do not tolerate it" in said


def queued(*taints: dict[str, str]):
    """Return the lock of a site with a team that queues."""
    hosts = [host("cp1", ["control_plane"], TEAMS), host("w", ["workers"], TEAMS)]
    return planned(decide(*hosts, tainted(*taints, **TEAMS))).lock


def test_kueue_gives_the_toleration_to_what_it_admits() -> None:
    """A flavour with a topology cannot change: other taints are another flavour."""
    kinds = {"none": (), "gpu": (GPU,)}
    found = {name: queues_of(queued(*taints)) for name, taints in kinds.items()}
    flavors = {name: next(queues.flavors(of)) for name, of in found.items()}
    assert "tolerations" not in flavors["none"]["spec"]
    assert flavors["gpu"]["spec"]["tolerations"] == TOLERATED[:1]
    names = {one["metadata"]["name"] for one in flavors.values()}
    assert len(names) == 2
    assert queues.flavor_name(found["gpu"], "pool_a") in names
    assert [of.replicas for of in found.values()] == [2, 1]


def test_jobs_of_the_product_tolerate_their_pool() -> None:
    request = Request(name="j", team="lab", image="i", pool="pool_a", gpus=1)
    found = jobs.objects(jobs.jobs_args(queued(GPU)), request)
    (job,) = (one for one in found if one["kind"] == "Job")
    assert job["spec"]["template"]["spec"]["tolerations"] == TOLERATED[:1]


def test_flannel_stays_where_others_are_evicted() -> None:
    kept = flannel.objects(MANIFEST, "10.64.0.0/16", evicting=True)[2]
    there = kept["spec"]["template"]["spec"]["tolerations"]
    assert there == [{"operator": "Exists", "effect": "NoExecute"}]
