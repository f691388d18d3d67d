"""Teams' queues on the real API server, controllers, scheduler and Kueue; kubelets are a double."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.components.schedulers.kueue import webhooks
from bedplate.components.schedulers.kueue.objects import HUB_ACCOUNT, QUEUE_LABEL
from tests.schedulers.api import Api, ApiError, eventually
from tests.schedulers.kubelets import KubeletDouble
from tests.schedulers.kueue import (
    API,
    RunningKueue,
    condition,
    evictions,
    holds,
    kueue_of,
    next_second,
    reason,
    reserved,
    running,
    said,
    workload_of,
)
from tests.schedulers.locks import lock_of, queues_of
from tests.schedulers.nodes import GPU
from tests.schedulers.workloads import IMAGE, job, pod_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Two racks with two NVLink domains each, a domain of two nodes, a node of four GPUs: 32 in all.
PLACES = [
    {"rack": f"r{n // 4}", "leaf": f"l{n // 4}", "nvlink_domain": f"d{n // 2}"} for n in range(8)
]
PRESET = {"priorities": {"urgent": 1000, "normal": 0}}
TEAMS = {
    "vision": {"gpus": {"pool_train": (16, None)}, "members": ["alice", "group:students"]},
    "audio": {"gpus": {"pool_train": (8, 8)}, "members": ["bob"]},
}
PRIORITY = "kueue.x-k8s.io/priority-class"
REQUIRED = "kueue.x-k8s.io/podset-required-topology"
PREFERRED = "kueue.x-k8s.io/podset-preferred-topology"
DOMAIN = "topology.bedplate.io/nvlink-domain"
FLAVOR = "pool-train.rack-leaf-nvlink-domain"
LACKS = f"insufficient unused quota for {GPU}"


def lock(**queue: Any) -> Any:
    """Return the lock of the tests with other values of its queues."""
    preset = {**PRESET, "queue": queue}
    return lock_of({"pool_train": PLACES}, TEAMS, gpus=4, preset=preset, addons=["kueue", "jobset"])


@pytest.fixture(scope="module")
def kueue() -> Iterator[RunningKueue]:
    """Start a control plane with eight nodes, Kueue, and the queues of two teams."""
    with kueue_of(lock(), jobsets=True) as started:
        yield started


@pytest.fixture
def kubelets(kueue: RunningKueue) -> Iterator[KubeletDouble]:
    """Let pods run; workloads go after the test."""
    with KubeletDouble(kueue.api) as doubled:
        yield doubled
        kueue.clear("vision", "audio")


@pytest.fixture
def api(kueue: RunningKueue, kubelets: KubeletDouble) -> Api:
    """Return the client."""
    return kueue.api


def urgent(name: str, namespace: str, **options: Any) -> dict[str, Any]:
    """Return a job that comes before others of its team."""
    return job(name, namespace, labels={PRIORITY: "urgent"}, **options)


def submit(api: Api, *jobs: dict[str, Any]) -> None:
    """Create jobs one after the other. Of those of the same second Kueue may take any first."""
    for one in jobs:
        api.create(one)


def places_of(api: Api, namespace: str, name: str) -> list[str]:
    """Return the nodes of a job's pods."""
    return [
        one["spec"].get("nodeName", "")
        for one in api.get("pods", "v1", namespace)
        if one["metadata"]["labels"]["batch.kubernetes.io/job-name"] == name
    ]


def domains_of(api: Api, namespace: str, name: str) -> set[str]:
    """Return the NVLink domains of a job's pods."""
    nodes = {one["metadata"]["name"]: one["metadata"]["labels"] for one in api.get("nodes")}
    return {nodes[place][DOMAIN] for place in places_of(api, namespace, name)}


def test_idle_gpus_are_borrowed_up_to_the_limit(api: Api, kueue: RunningKueue) -> None:
    """Audio gets its 8 and 8 more; vision, which has no limit, all that is left."""
    submit(api, *[job(f"a{n}", "audio", gpus=4) for n in range(5)])
    eventually(lambda: len(running(api, "audio")) == 4)
    submit(api, *[job(f"v{n}", "vision", gpus=4) for n in range(5)])
    eventually(lambda: len(running(api, "vision")) == 4)
    eventually(lambda: reserved(api, "audio"), until=lambda held: held == (GPU, "16", "8"))
    eventually(lambda: reserved(api, "vision"), until=lambda held: held == (GPU, "16", "0"))
    (waits,) = {f"a{n}" for n in range(5)} - set(running(api, "audio"))
    assert reason(kueue, "audio", waits, f"{LACKS} in flavor {FLAVOR}, 4 more needed")
    assert (len(running(api, "audio")), len(running(api, "vision"))) == (4, 4)


def test_a_guarantee_is_reclaimed_from_who_borrows(api: Api, kueue: RunningKueue) -> None:
    """Vision has all 32; audio's 8 come back at once, and no more than that is stopped."""
    submit(api, *[job(f"v{n}", "vision", gpus=4) for n in range(8)])
    eventually(lambda: len(running(api, "vision")) == 8)
    submit(api, job("a0", "audio", gpus=4, pods=2))
    eventually(lambda: running(api, "audio") == ["a0"])
    eventually(lambda: len(running(api, "vision")) == 6)
    stopped = [one for one in kueue.workloads("vision") if holds(one, "Evicted")]
    assert len(stopped) == 2
    for one in stopped:
        assert condition(one, "Preempted")["reason"] == "InCohortReclamation"
    # What was stopped is not lost: it goes on when there is room.
    api.delete(api.path("jobs", "batch/v1", "audio", "a0"))
    eventually(lambda: len(running(api, "vision")) == 8)


def test_a_guarantee_is_not_reclaimed_for_what_goes_beyond_it(
    api: Api, kueue: RunningKueue
) -> None:
    """Audio may borrow 8, but nobody is stopped for that."""
    submit(api, *[job(f"v{n}", "vision", gpus=4) for n in range(8)])
    eventually(lambda: len(running(api, "vision")) == 8)
    submit(api, *[job(f"a{n}", "audio", gpus=4) for n in range(4)])
    eventually(lambda: len(running(api, "audio")) == 2)
    (first, second) = {f"a{n}" for n in range(4)} - set(running(api, "audio"))
    # Of waiting jobs that are alike Kueue tries one, and writes the reason to that one alone.
    eventually(
        lambda: [said(kueue, "audio", name) for name in (first, second)],
        until=lambda told: any(LACKS in one for one in told),
    )
    assert (len(running(api, "audio")), len(running(api, "vision"))) == (2, 6)


def test_urgent_work_stops_the_teams_own_and_no_other(api: Api, kueue: RunningKueue) -> None:
    """Both teams are at their limit: audio's urgent job stops one of audio."""
    submit(api, *[job(f"v{n}", "vision", gpus=4) for n in range(4)])
    submit(api, *[job(f"a{n}", "audio", gpus=4) for n in range(4)])
    eventually(lambda: len(running(api, "vision", "audio")) == 8)
    submit(api, urgent("now", "audio", gpus=4))
    eventually(lambda: "now" in running(api, "audio"))
    eventually(lambda: len(running(api, "audio")) == 4)
    assert len(running(api, "vision")) == 4
    (stopped,) = [one for one in kueue.workloads("audio", "vision") if holds(one, "Evicted")]
    assert condition(stopped, "Preempted")["reason"] == "InClusterQueue"


def test_a_job_waits_and_is_admitted_when_room_comes(
    api: Api, kueue: RunningKueue, kubelets: KubeletDouble
) -> None:
    """The third of three jobs runs when one is done."""
    submit(api, *[job(f"a{n}", "audio", gpus=4, pods=2) for n in range(2)])
    eventually(lambda: running(api, "audio") == ["a0", "a1"])
    submit(api, job("a2", "audio", gpus=4, pods=2, seconds=1))
    assert reason(kueue, "audio", "a2", LACKS)
    assert running(api, "audio") == ["a0", "a1"]
    kubelets.finish("audio", "a0")
    eventually(lambda: holds(workload_of(kueue, "audio", "a2"), "Finished"))
    assert running(api, "audio") == ["a1"]
    kubelets.finish("audio", "a1")
    eventually(lambda: all(holds(one, "Finished") for one in kueue.workloads("audio")))
    assert not any(evictions(one) for one in kueue.workloads("audio"))


@pytest.mark.parametrize(("order", "passes"), [("StrictFIFO", False), ("BestEffortFIFO", True)])
def test_who_asks_for_less_passes_only_without_strict_order(
    api: Api, kueue: RunningKueue, order: str, passes: bool
) -> None:
    """A job of 16 waits for one of 4; a job of 4 that came later has room."""
    kueue.configure(lock(order=order))
    submit(api, job("first", "audio", gpus=4))
    eventually(lambda: running(api, "audio") == ["first"])
    submit(api, job("large", "audio", gpus=4, pods=4))
    assert reason(kueue, "audio", "large", LACKS)
    next_second()
    submit(api, job("small", "audio", gpus=4))
    if passes:
        eventually(lambda: running(api, "audio") == ["first", "small"])
        return
    eventually(lambda: workload_of(kueue, "audio", "small"))
    # Kueue judges the next of each team at once: whoever is told so of vision has seen audio's.
    submit(api, job("later", "vision", gpus=4, pods=9))
    assert reason(kueue, "vision", "later", "insufficient")
    assert not said(kueue, "audio", "small"), "it is not its turn"
    assert running(api, "audio") == ["first"]
    api.delete(api.path("jobs", "batch/v1", "audio", "first"))
    eventually(lambda: running(api, "audio") == ["large"])
    api.delete(api.path("jobs", "batch/v1", "audio", "large"))
    eventually(lambda: running(api, "audio") == ["small"])


def test_quota_alone_admits_nothing_that_fits_no_node(api: Api, kueue: RunningKueue) -> None:
    """Eight GPUs for one pod: the quota is there, no node has as many, and Kueue says so."""
    submit(api, job("wide", "vision", gpus=8))
    assert reason(kueue, "vision", "wide", "doesn't allow to fit any of 1 pod(s)")
    assert not holds(workload_of(kueue, "vision", "wide"), "Admitted")
    # Memory is the nodes' matter, but a pod that no node can hold is not admitted either.
    large = job("heavy", "vision", gpus=1)
    for kind in large["spec"]["template"]["spec"]["containers"][0]["resources"].values():
        kind["memory"] = "9Ti"
    submit(api, large)
    assert reason(kueue, "vision", "heavy", "memory")
    assert not holds(workload_of(kueue, "vision", "heavy"), "Admitted")


def test_a_job_lands_inside_one_nvlink_domain_when_it_can(api: Api, kueue: RunningKueue) -> None:
    """Three domains have a node in use: the eight GPUs of two pods are in the fourth."""
    for number in (0, 2, 6):
        where = {"kubernetes.io/hostname": f"pool-train-{number}"}
        submit(api, job(f"used{number}", "vision", gpus=4, selector=where))
    eventually(lambda: len(running(api, "vision")) == 3)
    submit(api, job("eight", "vision", gpus=4, pods=2, annotations={REQUIRED: DOMAIN}))
    eventually(lambda: len(list(filter(None, places_of(api, "vision", "eight")))) == 2)
    assert domains_of(api, "vision", "eight") == {"d2"}
    # No domain has eight left: who requires one waits with the reason, who prefers one runs.
    submit(api, job("again", "vision", gpus=4, pods=2, annotations={REQUIRED: DOMAIN}))
    assert reason(kueue, "vision", "again", "allows to fit only 1 out of 2 pod(s)")
    submit(api, job("rather", "vision", gpus=4, pods=2, annotations={PREFERRED: DOMAIN}))
    eventually(lambda: len(list(filter(None, places_of(api, "vision", "rather")))) == 2)
    assert len(domains_of(api, "vision", "rather")) == 2


def test_pods_and_deployments_wait_too(api: Api, kueue: RunningKueue) -> None:
    """A plain pod is held until there is quota; so are a Deployment's."""
    submit(api, job("full", "audio", gpus=4, pods=4))
    eventually(lambda: running(api, "audio") == ["full"])
    api.create(pod("shell", "audio", gpus=1))
    service = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "service", "namespace": "audio"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "service"}},
            "template": {
                "metadata": {"labels": {"app": "service"}},
                "spec": {**pod_spec(1), "restartPolicy": "Always"},
            },
        },
    }
    api.create(service)

    def gated() -> list[str]:
        pods = api.get("pods", "v1", "audio")
        return [one["metadata"]["name"] for one in pods if one["spec"].get("schedulingGates")]

    eventually(lambda: len(gated()) == 3)
    assert "shell" in gated()
    assert reason(kueue, "audio", "shell", LACKS)
    assert len(gated()) == 3
    api.delete(api.path("jobs", "batch/v1", "audio", "full"))
    eventually(lambda: not gated())
    api.delete(api.path("deployments", "apps/v1", "audio", "service"))


def test_a_set_of_jobs_is_admitted_whole(api: Api, kueue: RunningKueue) -> None:
    """Three jobs of four GPUs in a JobSet: with room for two the set waits."""
    submit(api, job("other", "audio", gpus=4, pods=2))
    eventually(lambda: running(api, "audio") == ["other"])
    spec = job("w", "audio", gpus=4)["spec"]
    part = {"name": "workers", "replicas": 3, "template": {"spec": spec}}
    made = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "set", "namespace": "audio"},
        "spec": {"replicatedJobs": [part]},
    }
    bob = api.acting_as("bob")
    bob.create(made)
    path = api.path("jobsets", "jobset.x-k8s.io/v1alpha2", "audio", "set")
    assert reason(kueue, "audio", "set", "insufficient")
    with pytest.raises(ApiError, match="set is not started by hand"):
        bob.patch(path, {"spec": {"suspend": False}})
    api.delete(api.path("jobs", "batch/v1", "audio", "other"))
    eventually(lambda: holds(workload_of(kueue, "audio", "set"), "Admitted"))
    eventually(lambda: api.call("GET", path)["spec"]["suspend"] is False)
    api.delete(path)


def pod(name: str, namespace: str, gpus: int = 1, **more: Any) -> dict[str, Any]:
    """Return a pod that asks for GPUs."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, **more.pop("metadata", {})},
        "spec": {**pod_spec(gpus), **more},
    }


BY_CLAIM = {
    "resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}],
    "containers": [{"name": "main", "image": IMAGE}],
}


@pytest.mark.parametrize(
    ("what", "told"),
    [
        pytest.param(
            job("j", "vision", labels={QUEUE_LABEL: "audio"}),
            "no such queue — namespace vision — got kueue.x-k8s.io/queue-name: audio / allowed "
            "default — leave the label out, or write the allowed name",
            id="another-queue",
        ),
        pytest.param(
            pod("p", "vision", **BY_CLAIM),
            "pod with resource claims — namespace vision — got gpu / allowed nvidia.com/gpu — "
            "ask for GPUs by the resource: the queue does not count claims",
            id="claim",
        ),
        pytest.param(
            pod("p", "vision", nodeName="pool-train-0"),
            "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared",
            id="node-by-name",
        ),
        pytest.param(
            pod("p", "vision", volumes=[{"name": "all", "hostPath": {"path": "/dev"}}]),
            # The API server's own message: `latest` is the policy's version, not an image's tag.
            'violates PodSecurity "baseline:latest": hostPath volumes',
            id="device-nodes",
        ),
        pytest.param(
            job("j", "audio"),
            'User "alice" cannot create resource "jobs" in API group "batch" in the namespace '
            '"audio"',
            id="another-team",
        ),
        pytest.param(
            {
                "apiVersion": API,
                "kind": "LocalQueue",
                "metadata": {"name": "mine", "namespace": "vision"},
                "spec": {"clusterQueue": "audio"},
            },
            'User "alice" cannot create resource "localqueues"',
            id="queue-of-her-own",
        ),
    ],
)
def test_nobody_gets_round_the_queue(
    api: Api, kueue: RunningKueue, what: dict[str, Any], told: str
) -> None:
    """What a member may not do is refused by the API server, with the way to go."""
    alice = api.acting_as("alice")
    with pytest.raises(ApiError) as refused:
        alice.create(what)
    assert told in str(refused.value)
    assert refused.value.status in (403, 422)


def test_a_pod_of_somebody_elses_job_is_not_let_through(api: Api, kueue: RunningKueue) -> None:
    """Kueue lets the pods of a queued Job go; a member's own pod that names it as owner is none."""
    submit(api, job("real", "vision", gpus=1))
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "real", "controller": True}
    owner["uid"] = api.get("jobs", "batch/v1", "vision", "real")["metadata"]["uid"]
    forged = pod("p", "vision", metadata={"ownerReferences": [owner]})
    with pytest.raises(ApiError) as refused:
        api.acting_as("alice").create(forged)
    assert (
        "pod with GPUs is not in the queue — namespace vision — got no hold by Kueue / allowed "
        "pods that wait for their quota — label it kueue.x-k8s.io/queue-name: default, and give "
        "it no owner and no node"
    ) in str(refused.value)


def test_an_administrator_cannot_mix_up_the_teams(api: Api, kueue: RunningKueue) -> None:
    """Also who has all rights gets a message instead of one team's work in another's quota."""
    wrong = {
        "apiVersion": API,
        "kind": "LocalQueue",
        "metadata": {"name": "wrong", "namespace": "vision"},
        "spec": {"clusterQueue": "audio"},
    }
    with pytest.raises(ApiError) as refused:
        api.create(wrong)
    assert (
        "LocalQueue wrong of another team — namespace vision — got clusterQueue audio / allowed "
        "that of team vision — submit to the queue default, which is there"
    ) in str(refused.value)


def test_only_the_queue_starts_what_waits(api: Api, kueue: RunningKueue) -> None:
    """A member sees job and pod wait, and can lift neither the suspension nor the hold."""
    alice = api.acting_as("alice")
    submit(api, job("full", "vision", gpus=4, pods=8))
    eventually(lambda: running(api, "vision") == ["full"])
    alice.create(job("mine", "vision", gpus=4))
    alice.create(pod("shell", "vision"))
    with pytest.raises(ApiError) as refused:
        alice.patch(api.path("jobs", "batch/v1", "vision", "mine"), {"spec": {"suspend": False}})
    assert (
        "mine is not started by hand — namespace vision — got suspend: false from alice / "
        "allowed the queue alone — see what it waits for: kubectl -n vision get workloads"
    ) in str(refused.value)
    with pytest.raises(ApiError) as refused:
        alice.patch(api.path("pods", "v1", "vision", "shell"), {"spec": {"schedulingGates": None}})
    assert "pod shell is not started by hand" in str(refused.value)
    # The hub may let go what the queue has admitted, and nothing that waits.
    hub = api.acting_as(HUB_ACCOUNT, "system:masters")
    with pytest.raises(ApiError, match="pod shell is not started by hand"):
        hub.patch(api.path("pods", "v1", "vision", "shell"), {"spec": {"schedulingGates": None}})
    assert {one["kind"] for one in alice.get("workloads", API, "vision")} <= {"Workload"}
    assert [one["metadata"]["name"] for one in alice.get("clusterqueues", API)] == [
        "audio",
        "vision",
    ]


def test_a_member_by_group_may_submit(api: Api, kueue: RunningKueue) -> None:
    """`group:students` are members; a job needs no label, and goes into the team's queue."""
    student = api.acting_as("carol", "students")
    student.create(job("hers", "vision", gpus=1))
    eventually(lambda: running(api, "vision") == ["hers"])
    made = api.get("jobs", "batch/v1", "vision", "hers")
    assert made["metadata"]["labels"][QUEUE_LABEL] == "default"


def test_work_elsewhere_is_not_kueues(api: Api, kueue: RunningKueue) -> None:
    """With Kueue down, only the teams' namespaces are closed."""
    kueue.plane.namespace("others")
    assert kueue.process is not None
    kueue.process.kill()
    try:
        api.create(job("free", "others", gpus=0))
        with pytest.raises(ApiError, match="failed calling webhook"):
            api.create(job("held", "vision", gpus=1))
        eventually(lambda: len(api.get("pods", "v1", "others")) == 1)
    finally:
        kueue.start(lock())
        kueue.plane.clear("others")


def test_work_without_gpus_waits_in_no_queue(api: Api, kueue: RunningKueue) -> None:
    """Kueue that places by topology holds a pod without requests, and all behind it, for ever."""

    def alone(name: str) -> dict[str, Any]:
        meta, spec = {"name": name, "namespace": "vision"}, pod_spec(0)
        del spec["containers"][0]["resources"]
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}

    api.create(alone("pod"))
    api.create(job("job", "vision", gpus=0))
    api.create(job("gpus", "vision", gpus=4))
    eventually(lambda: [one["spec"].get("nodeName", "") != "" for one in pods(api)] == [True] * 3)
    (queued,) = kueue.workloads("vision")
    assert queued["metadata"]["ownerReferences"][0]["name"] == "gpus"
    # The defence off: all are asked about.
    asked = webhooks.patch(queues_of(lock()))
    kueue.ask({**asked, "webhooks": [{"name": one["name"]} for one in asked["webhooks"]]})
    try:
        eventually(lambda: held(api, alone))
        assert reason(kueue, "vision", "held", "no TAS flavor assigned")
    finally:
        kueue.ask(asked)


def pods(api: Api) -> list[dict[str, Any]]:
    """Return the pods of vision."""
    return list(api.get("pods", "v1", "vision"))


def held(api: Api, alone: Callable[[str], dict[str, Any]]) -> bool:
    """Create a pod without GPUs and tell whether it waits; the API server takes a moment."""
    made = api.create(alone("held"))
    if not made["spec"].get("schedulingGates"):
        api.delete(api.path_of(made), gracePeriodSeconds=0)
    return bool(made["spec"].get("schedulingGates"))


EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "queues").glob("*.yml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_are_admitted(api: Api, kueue: RunningKueue, path: Path) -> None:
    """A member applies each example as it is, and it gets its quota and its nodes."""
    kueue.plane.kubectl("apply", "--as=alice", "-f", str(path))

    def placed() -> bool:
        found = api.get("pods", "v1", "vision")
        return bool(found) and all("nodeName" in one["spec"] for one in found)

    eventually(lambda: kueue.workloads("vision"))
    eventually(lambda: all(holds(one, "Admitted") for one in kueue.workloads("vision")))
    if path.stem != "jobset":  # its controller is not there to make pods
        eventually(placed)
    kueue.plane.kubectl("delete", "--as=alice", "--wait=false", "-f", str(path))
