"""A team's quota of each size of a pool, and the class of its work, on the real Kueue; and a stack
that makes all of it and changes nothing when it comes up again.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.lock.model import Lock
from bedplate.schedulers.dra import SHARE, WHOLE
from bedplate.schedulers.kueue.classes import CLASS_LABEL
from bedplate.schedulers.kueue.classes import NAME as CLASS_POLICY
from tests.schedulers.api import Api, eventually
from tests.schedulers.engine import Project
from tests.schedulers.kubelets import KubeletDouble
from tests.schedulers.kueue import RunningKueue, condition, kueue_of, running
from tests.schedulers.locks import lock_of
from tests.schedulers.nodes import GPU
from tests.schedulers.workloads import job, pod_spec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SMALL, LARGE = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"
#: What a node with four GPUs offers, of which one is whole.
OFFERS = {GPU: 1, SMALL: 12, LARGE: 3}
PRESET = {"priorities": {"urgent": 1000}, "queue": {"preemption": "Never"}}


def lock() -> Lock:
    """Return the lock of two teams on one node of three sizes; one of them has a priority."""
    teams = {
        "vision": {"gpus": {"pool_mig": (0, None)}},
        "speech": {"gpus": {"pool_mig": (0, None)}, "priority": 50},
    }
    found = lock_of({"pool_mig": [{}]}, teams, preset=PRESET, addons=["kueue", "jobset"])
    given = found.model_dump()
    given["pools"]["pool_mig"]["expects"].update(
        resource=GPU, count=OFFERS[GPU], also={SMALL: OFFERS[SMALL], LARGE: OFFERS[LARGE]}
    )
    none = {"guaranteed": 0, "borrow": 0}
    given["cluster"]["teams"]["vision"]["gpus"]["pool_mig"] = {
        GPU: none,
        SMALL: {"guaranteed": 4, "borrow": 0},
        LARGE: {"guaranteed": 2, "borrow": None},
    }
    given["cluster"]["teams"]["speech"]["gpus"]["pool_mig"] = {
        GPU: {"guaranteed": 1, "borrow": 0},
        SMALL: {"guaranteed": 8, "borrow": 0},
        LARGE: none,
    }
    return Lock.model_validate(given)


@pytest.fixture(scope="module")
def kueue() -> Iterator[RunningKueue]:
    """Start a control plane with the node, Kueue, and the queues of the two teams."""
    with kueue_of(lock(), jobsets=True) as started:
        yield started


@pytest.fixture
def api(kueue: RunningKueue) -> Iterator[Api]:
    """Return the client; workloads go after the test."""
    with KubeletDouble(kueue.api):
        yield kueue.api
        kueue.clear("vision", "speech")


def test_each_size_of_a_pool_has_a_quota_of_its_own(api: Api, kueue: RunningKueue) -> None:
    """Vision: four small ones, two large ones and the idle third, and no whole GPU."""
    api.create_all(job(f"small{n}", "vision", resource=SMALL) for n in range(5))
    api.create_all(job(f"large{n}", "vision", resource=LARGE) for n in range(4))
    api.create(job("whole", "vision", resource=GPU))
    api.create(job("whole", "speech", resource=GPU))

    def runs() -> list[str]:
        return [name.rstrip("0123456789") for name in running(api, "vision", "speech")]

    expected = ["large"] * 3 + ["small"] * 4 + ["whole"]
    eventually(lambda: runs() == expected)
    assert running(api, "speech") == ["whole"]

    def reasons() -> list[str]:
        found = [condition(one, "QuotaReserved") for one in kueue.workloads("vision")]
        return sorted(one["message"] for one in found if one.get("status") == "False")

    # Of the whole GPU vision has nothing, which Kueue says in its own words.
    eventually(
        reasons,
        until=lambda told: (
            len(told) == 3 and all(any(of in one for one in told) for of in (SMALL, LARGE, GPU))
        ),
    )
    assert (sorted(runs()), running(api, "speech")) == (expected, ["whole"])


def work(labels: dict[str, str]) -> list[dict[str, Any]]:
    """Return a workload of each kind that a queue takes, with labels."""
    spec = job("w", "speech", resource=SMALL)["spec"]
    part = {"name": "workers", "replicas": 1, "template": {"spec": spec}}
    forever = {**pod_spec(1, resource=SMALL), "restartPolicy": "Always"}
    service = {
        "replicas": 1,
        "selector": {"matchLabels": {"app": "w"}},
        "template": {"metadata": {"labels": {"app": "w"}}, "spec": forever},
    }
    meta = {"namespace": "speech", "labels": labels}
    kinds = {
        ("Job", "batch/v1"): spec,
        ("Pod", "v1"): pod_spec(1, resource=SMALL),
        ("Deployment", "apps/v1"): service,
        ("JobSet", "jobset.x-k8s.io/v1alpha2"): {"replicatedJobs": [part]},
    }
    return [
        {
            "apiVersion": version,
            "kind": kind,
            "metadata": {**meta, "name": f"w-{kind.lower()}"},
            "spec": of,
        }
        for (kind, version), of in kinds.items()
    ]


@pytest.mark.parametrize(
    ("labels", "name", "value"),
    [({}, "team-speech", 50), ({CLASS_LABEL: "urgent"}, "urgent", 1000)],
    ids=["none-named", "named"],
)
def test_work_that_names_no_class_has_that_of_its_team(
    api: Api, kueue: RunningKueue, labels: dict[str, str], name: str, value: int
) -> None:
    made = work(labels)
    for one in made:
        api.create(one)
    found = eventually(
        lambda: len(kueue.workloads("speech")) == len(made) and kueue.workloads("speech"), 120
    )
    given = {
        one["metadata"]["name"]: (one["spec"]["priorityClassRef"]["name"], one["spec"]["priority"])
        for one in found
    }
    assert set(given.values()) == {(name, value)}, given
    api.create(job("other", "vision", resource=SMALL))  # whose team has no priority
    (other,) = eventually(lambda: kueue.workloads("vision"))
    assert other["spec"]["priority"] == 0


#: What the stack of schedulers makes, but for the releases of charts: no pod runs here.
PROGRAM = """\
from pathlib import Path

import pulumi
import pulumi_kubernetes as kubernetes

from bedplate.lock.model import Lock
from bedplate.schedulers.dra import Dra
from bedplate.schedulers.kueue.component import objects
from bedplate.schedulers.node_labels import NodeLabels
from bedplate.schedulers.runtime_class import GpuRuntime

provider = kubernetes.Provider("cluster", kubeconfig={kubeconfig!r})
below = pulumi.ResourceOptions(providers=[provider])
GpuRuntime("nvidia", {{"handler": "nvidia"}}, below)
labels = NodeLabels("gpus", {{"labels": {{{node!r}: {{"bedplate.io/tests": "labelled"}}}}}}, below)
Dra("dra", {{"limited": True}}, below)
kueue = pulumi.ComponentResource("bedplate:tests:Kueue", "kueue", None, below)
lock = Lock.model_validate_json(Path("lock.json").read_text())
objects(kueue, "kueue", (Path.cwd(), lock), labels)
"""
POLICIES = ("mutatingadmissionpolicies", "admissionregistration.k8s.io/v1")


def names(api: Api, plural: str, version: str) -> set[str]:
    """Return the names of the cluster's objects of a kind."""
    return {one["metadata"]["name"] for one in api.get(plural, version)}


def there(api: Api) -> dict[str, Any]:
    """Return what is to stay as it is: nodes and pods by who they are."""
    return {
        one["metadata"]["name"]: (one["metadata"]["uid"], one["spec"], one["status"].get("phase"))
        for kind in ("nodes", "pods")
        for one in api.get(kind, "v1")
    }


def test_the_second_up_changes_nothing_and_destroy_leaves_nodes_and_pods_alone(
    api: Api, kueue: RunningKueue, tmp_path: Path
) -> None:
    (node,) = names(api, "nodes", "v1")
    kubeconfig = str(kueue.plane.kubeconfig)
    project = Project(tmp_path, "schedulers", PROGRAM.format(kubeconfig=kubeconfig, node=node))
    (project.folder / "lock.json").write_text(lock().model_dump_json())
    others = kueue.plane.namespace("others")
    kueue.forget()
    try:
        project.up()
        assert {WHOLE, SHARE} <= names(api, "deviceclasses", "resource.k8s.io/v1")
        assert {CLASS_POLICY, "gpu-memory-limit"} <= names(api, *POLICIES)
        eventually(lambda: kueue.active("vision"))
        api.create(job("theirs", others, resource=SMALL))
        api.create(job("ours", "vision", resource=SMALL))
        eventually(lambda: running(api, others, "vision") == ["ours", "theirs"])
        eventually(lambda: sum("Running" in one for one in there(api).values()) == 2)
        before = there(api)
        project.up("--expect-no-changes")
        assert there(api) == before
        with ThreadPoolExecutor(1) as pool:
            destroyed = pool.submit(project.destroy)
            try:
                # Kueue's own object stays until the team's work is done.
                eventually(lambda: destroyed.done() or not kueue.stays("vision"))
                assert not destroyed.done(), destroyed.result()
                assert there(api) == before
            finally:
                api.delete(api.path("jobs", "batch/v1", "vision", "ours"))
            destroyed.result()
        ours = {name for name in before if name.startswith("ours-")}
        left = {name: one for name, one in before.items() if name not in ours}
        # The job is gone for Kueue before its pod is for the garbage collector.
        eventually(lambda: there(api), until=lambda found: found == left)
        assert not {WHOLE, SHARE} & names(api, "deviceclasses", "resource.k8s.io/v1")
        assert not {CLASS_POLICY, "gpu-memory-limit"} & names(api, *POLICIES)
        assert {"vision", "speech"} <= names(api, "namespaces", "v1")
    finally:
        kueue.clear(others, "vision")
        kueue.configure(lock())
