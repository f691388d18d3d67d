"""What a queue counts of the ways to a device, on the real Kueue and scheduler.

As an administrator: no missing right refuses anything here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.schedulers import ways
from tests.schedulers.api import Api, ApiError, eventually
from tests.schedulers.dra import VERSION, resource_slice
from tests.schedulers.kubelets import KubeletDouble
from tests.schedulers.kueue import RunningKueue, kueue_of, reason, reserved, running
from tests.schedulers.locks import nodes_of
from tests.schedulers.nodes import GPU, add_nodes, remove_nodes
from tests.schedulers.test_devices import JOBSETS, LOCK, TEAM, patched
from tests.schedulers.workloads import job, pod_spec

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.prove


@pytest.fixture(scope="module")
def kueue() -> Iterator[RunningKueue]:
    """Start a control plane with GPUs by claim, a class of another chart, and a team's queue."""
    with kueue_of(LOCK, jobsets=True) as started:
        api = started.api
        for one in ways.classes():
            api.apply(one)
        (made,) = nodes_of(LOCK)
        for offered in ("capacity", "allocatable"):
            made["status"][offered].pop(GPU, None)
        remove_nodes(api)
        add_nodes(api, [made])
        api.create(resource_slice(made["metadata"]["name"], 4))
        eventually(lambda: ways.in_force(api, TEAM))
        yield started


@pytest.fixture
def api(kueue: RunningKueue) -> Iterator[Api]:
    with KubeletDouble(kueue.api):
        yield kueue.api
        kueue.clear(TEAM)


def test_job_sets_are_judged_and_begin_suspended(api: Api, kueue: RunningKueue) -> None:
    for spec, said in ways.REFUSED.values():
        assert said in ways.refusal(api, ways.templates(TEAM, spec)[JOBSETS, "jobsets"])
    made = api.create(ways.templates(TEAM, ways.asking({GPU: "1"}))[JOBSETS, "jobsets"])
    assert made["spec"]["suspend"] is True


def pod(name: str, spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    """Return a pod of the team."""
    meta = {"name": name, "namespace": TEAM, **metadata}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def in_use(api: Api) -> tuple[int, int]:
    """Return how many GPUs the team has: as Kueue counts, and as the scheduler has given."""
    claims = api.get("resourceclaims", VERSION, TEAM)
    given = [one.get("status", {}).get("allocation", {}).get("devices", {}) for one in claims]
    return int(reserved(api, TEAM)[1]), sum(len(one.get("results", [])) for one in given)


def test_work_of_every_kind_waits_for_its_quota(api: Api, kueue: RunningKueue) -> None:
    """One GPU for all of them, in init containers too; what makes no pods has no Workload."""
    spec = ways.asking({GPU: "1"}, kind="init")
    spec["containers"][0]["resources"] = {"limits": {GPU: "1"}}
    made = {plural: one for (_, plural), one in ways.templates(TEAM, spec).items()}
    made.pop("jobsets")  # whose controller does not run here
    for plural in ("podtemplates", "cronjobs"):
        api.create(made.pop(plural))
    for plural, one in made.items():
        one["metadata"]["name"] = plural
        api.create(one)

    def waiting() -> int:
        return len(kueue.workloads(TEAM))

    eventually(waiting, until=lambda many: many == len(made))
    eventually(lambda: in_use(api), until=lambda found: found == (1, 1))
    bound = [one for one in api.get("pods", "v1", TEAM) if "nodeName" in one["spec"]]
    assert len(bound) == 1


def test_a_pod_that_is_held_gets_no_node(api: Api, kueue: RunningKueue) -> None:
    """What the API server itself refuses of a pod that waits, or runs without a device."""
    api.create(job("full", TEAM))
    eventually(lambda: running(api, TEAM) == ["full"])
    (node,) = (one["metadata"]["name"] for one in api.get("nodes"))
    asks = ways.asking({GPU: "1"})
    api.create(pod("held", asks))
    api.create(pod("plain", pod_spec(0)))
    assert "until all schedulingGates" in ways.refusal(api, pod("n", {**asks, "nodeName": node}))
    overhead = ways.refusal(api, pod("o", {**pod_spec(0), "overhead": {GPU: "1"}}))
    assert "without corresponding RuntimeClass defined Overhead" in overhead
    level = ways.refusal(api, pod("l", {**pod_spec(0), "resources": {"limits": {GPU: "1"}}}))
    assert 'spec.resources.limits[nvidia.com/gpu]: Unsupported value: "nvidia.com/gpu"' in level

    def tried(method: str, name: str, part: str, body: dict[str, Any]) -> str:
        path = f"{api.path('pods', 'v1', TEAM, name)}/{part}"
        kind = "application/json" if method == "POST" else "application/strategic-merge-patch+json"
        with pytest.raises(ApiError) as caught:
            api.call(method, path, body, content_type=kind)
        return str(caught.value)

    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "held"},
        "target": target,
    }
    assert "non-empty .spec.schedulingGates" in tried("POST", "held", "binding", binding)
    more = [{"name": "main", "resources": {"limits": {GPU: "1"}, "requests": {GPU: "1"}}}]
    resized = tried("PATCH", "plain", "resize", {"spec": {"containers": more}})
    assert "only cpu and memory resources are mutable" in resized
    debug = [{"name": "d", "image": "i", "resources": {"limits": {GPU: "1"}}}]
    added = tried("PATCH", "plain", "ephemeralcontainers", {"spec": {"ephemeralContainers": debug}})
    assert "cannot be set for an Ephemeral Container" in added
    assert in_use(api)[1] == 1


def test_a_job_that_runs_gets_no_more_pods(api: Api, kueue: RunningKueue) -> None:
    mine = job("mine", TEAM)
    # Four pods at a time for one completion are one: both numbers make it grow.
    mine["spec"] |= {"completionMode": "Indexed", "parallelism": 4}
    api.create(mine)
    eventually(lambda: in_use(api), until=lambda found: found == (1, 1))
    assert (
        "job mine grows while it runs — namespace devices — got 4 pods at a time / allowed 1, which"
        " the queue has counted — submit another job for the rest"
    ) in patched(api, "jobs", "batch/v1", "mine", {"spec": {"completions": 4}})
    assert in_use(api)[1] == 1


def test_no_label_frees_the_quota_of_a_pod_that_runs(api: Api, kueue: RunningKueue) -> None:
    api.create(pod("mine", ways.asking({GPU: "1"})))
    eventually(lambda: in_use(api), until=lambda found: found == (1, 1))
    gone = {"labels": None, "annotations": None}
    patched(api, "pods", "v1", "mine", {"metadata": gone})
    api.create(pod("next", ways.asking({GPU: "1"})))
    assert reason(kueue, TEAM, "next", "insufficient unused quota")
    assert in_use(api) == (1, 1)


def test_a_hold_of_any_kind_is_lifted_by_the_queue_alone(api: Api, kueue: RunningKueue) -> None:
    """Also that of the pods which an elastic Job gets while it runs."""
    gates = [{"name": "kueue.x-k8s.io/elastic-job"}, {"name": "mine.example/gate"}]
    api.create(pod("held", {**ways.asking({GPU: "1"}), "schedulingGates": gates}))
    mine = [{"name": "kueue.x-k8s.io/admission"}, gates[1]]
    said = patched(api, "pods", "v1", "held", {"spec": {"schedulingGates": mine}})
    assert "pod held is not started by hand" in said
    left = [*api.get("pods", "v1", TEAM, "held")["spec"]["schedulingGates"]]
    other = [one for one in left if one != gates[1]]
    assert patched(api, "pods", "v1", "held", {"spec": {"schedulingGates": other}}) == ""
