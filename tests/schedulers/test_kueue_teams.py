"""A team's quota of each size of a pool, the class of its work, and what one request may be, on the
real Kueue; and a stack that makes all of it and changes nothing when it comes up again.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.components.schedulers.dra import SHARE, WHOLE
from bedplate.components.schedulers.kueue.classes import CLASS_LABEL
from bedplate.components.schedulers.kueue.classes import NAME as CLASS_POLICY
from bedplate.components.schedulers.kueue.objects import made
from bedplate.components.schedulers.kueue.tenancy import RBAC
from bedplate.lock.model import Lock
from bedplate.pods.remote.claims import API as REMOTE
from bedplate.pods.remote.claims import GROUP, PLURAL, definition
from bedplate.pods.remote.objects import LONGEST_LABEL
from tests.schedulers.api import Api, ApiError, eventually
from tests.schedulers.engine import Project
from tests.schedulers.kubelets import KubeletDouble
from tests.schedulers.kueue import API, RunningKueue, condition, kueue_of, running
from tests.schedulers.locks import lock_of
from tests.schedulers.nodes import GPU
from tests.schedulers.ways import refusal
from tests.schedulers.workloads import job, pod_spec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SMALL, LARGE = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"
#: What a node with four GPUs offers, of which one is whole.
OFFERS = {GPU: 1, SMALL: 12, LARGE: 3}
PRESET = {"priorities": {"urgent": 1000}, "queue": {"preemption": "Never"}}


def lock() -> Lock:
    """Return the lock of three teams on one node of three sizes.

    One has a priority, and requests of one are limited.
    """
    teams = {
        "vision": {"gpus": {"pool_mig": (0, None)}},
        "speech": {"gpus": {"pool_mig": (0, None)}, "priority": 50},
        "thesis": {
            "gpus": {"pool_mig": (0, None)},
            "members": ["carol"],
            "per_request": {"gpus": 2, "time_s": 3600},
            "per_pod": {"memory": "1Gi", "cpu": "1"},
        },
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
    given["cluster"]["teams"]["thesis"]["gpus"]["pool_mig"] = {
        GPU: none,
        SMALL: {"guaranteed": 0, "borrow": None},
        LARGE: none,
    }
    return Lock.model_validate(given)


@pytest.fixture(scope="module")
def kueue() -> Iterator[RunningKueue]:
    """Start a control plane with the node, Kueue, and the queues of the teams."""
    with kueue_of(lock(), jobsets=True) as started:
        yield started


@pytest.fixture
def api(kueue: RunningKueue) -> Iterator[Api]:
    """Return the client; workloads go after the test."""
    with KubeletDouble(kueue.api):
        yield kueue.api
        kueue.clear("vision", "speech", "thesis")


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


def limited(kind: str, gpus: int = 1, pods: int = 1, **more: Any) -> dict[str, Any]:
    """Return a request of the team whose requests are limited, in one of the forms."""
    time = {LONGEST_LABEL: str(more["time"])} if "time" in more else {}
    one = job("w", "thesis", gpus=gpus, pods=pods, labels=time, resource=SMALL)
    if "deadline" in more:
        one["spec"]["activeDeadlineSeconds"] = more["deadline"]
    if kind == "Job":
        return one
    meta = one["metadata"]
    if kind == "Pod":
        spec = {**pod_spec(gpus, resource=SMALL), **more.get("spec", {})}
        return {"apiVersion": "v1", "kind": kind, "metadata": meta, "spec": spec}
    if kind == "JobSet":
        part = {"name": "w", "replicas": more["replicas"], "template": {"spec": one["spec"]}}
        spec = {"replicatedJobs": [part]}
        version = "jobset.x-k8s.io/v1alpha2"
        return {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}
    if kind == "RemoteClaim":
        spec = {"resource": SMALL, "count": gpus, "limitSeconds": more["time"]}
        meta = {"name": "w", "namespace": "thesis"}
        return {"apiVersion": REMOTE, "kind": kind, "metadata": meta, "spec": spec}
    pod = {"name": "main", "count": pods, "template": {"spec": pod_spec(gpus, resource=SMALL)}}
    spec = {"podSets": [pod], "queueName": "default"}
    if "time" in more:
        spec["maximumExecutionTimeSeconds"] = more["time"]
    meta = {"name": "w", "namespace": "thesis"}
    return {"apiVersion": API, "kind": kind, "metadata": meta, "spec": spec}


def together(*gpus: int, stay: bool) -> dict[str, Any]:
    """Return the init containers of a pod, which end one after the other or stay."""
    kept = {"restartPolicy": "Always"} if stay else {}
    found = []
    for number, count in enumerate(gpus):
        (one,) = pod_spec(count, resource=SMALL)["containers"]
        found.append({**one, **kept, "name": f"init{number}"})
    return {"initContainers": found}


LARGER = (
    "larger than one request of team thesis may be — namespace thesis — got {} GPUs or shares / "
    "allowed 2 — ask for less, or ask an administrator for more: "
    "bedplate_teams.thesis.per_request.gpus"
)
LONGER = (
    "longer than one request of team thesis may run — namespace thesis — got {} / allowed 1 to "
    "3600 seconds — ask for less time, or ask an administrator for more: "
    "bedplate_teams.thesis.per_request.time"
)


@pytest.fixture
def carol(kueue: RunningKueue, api: Api) -> Api:
    """Return the member of the team whose requests are limited, who may make remote claims."""
    member = {"kind": "User", "name": "carol", "apiGroup": "rbac.authorization.k8s.io"}
    rules = [{"apiGroups": [GROUP], "resources": [PLURAL], "verbs": ["*"]}]
    role = made("Role", "claims", "Tests.", version=RBAC, namespace="thesis", rules=rules)
    ref = {"kind": "Role", "name": "claims", "apiGroup": "rbac.authorization.k8s.io"}
    bound = made("RoleBinding", "claims", "Tests.", version=RBAC, namespace="thesis")
    for one in (definition(), role, bound | {"subjects": [member], "roleRef": ref}):
        api.apply(one)
    return api.acting_as("carol")


REFUSED = [
    (limited("Job", pods=3), LARGER.format(3)),
    (limited("Job", gpus=3), LARGER.format(3)),
    (limited("JobSet", pods=2, replicas=2), LARGER.format(4)),
    (limited("Pod", gpus=3), LARGER.format(3)),
    (limited("Pod", spec=together(1, 1, stay=True)), LARGER.format(3)),
    (limited("Pod", spec=together(3, stay=False)), LARGER.format(3)),
    (limited("RemoteClaim", gpus=3, time=60), LARGER.format(3)),
    (limited("Workload", pods=3, time=60), LARGER.format(3)),
    (limited("Job", time=7200), LONGER.format(f"{LONGEST_LABEL}: 7200")),
    (limited("Job", time="0"), LONGER.format(f"{LONGEST_LABEL}: 0")),
    (limited("Job", deadline=7200), LONGER.format("activeDeadlineSeconds: 7200")),
    (limited("JobSet", replicas=1, time=7200), LONGER.format(f"{LONGEST_LABEL}: 7200")),
    (limited("Pod", time=7200), LONGER.format(f"{LONGEST_LABEL}: 7200")),
    (limited("RemoteClaim", time=3601), LONGER.format("limitSeconds: 3601")),
    (limited("Workload"), LONGER.format("maximumExecutionTimeSeconds: 0")),
]


def test_one_request_has_at_most_what_its_team_gives(carol: Api, kueue: RunningKueue) -> None:
    """In every form, and by Kueue's own account of it; what is within is admitted, and ends."""
    for wanted, told in REFUSED:
        # Nobody but Kueue makes Workloads; the policy holds whoever does.
        maker = kueue.api if wanted["kind"] == "Workload" else carol
        # A kind that is new, and what was applied just now, is known after a moment.
        eventually(
            lambda maker=maker, wanted=wanted: refusal(maker, wanted),
            until=lambda found, told=told: told in found,
        )
    small = limited("Job", pods=2)
    small["spec"]["parallelism"] = 9  # of which Kueue counts the two that there are
    for within in (
        small,
        limited("JobSet", replicas=2, time=1800),
        limited("Pod", gpus=2, spec=together(2, stay=False)),
        limited("RemoteClaim", gpus=2, time=3600),
        job("plain", "thesis", gpus=0, pods=9),
    ):
        carol.create(within)

    def times() -> set[int]:
        return {
            one["spec"].get("maximumExecutionTimeSeconds", 0) for one in kueue.workloads("thesis")
        }

    eventually(lambda: len(kueue.workloads("thesis")) == 3)
    # The team's where none was said, and none where there are no GPUs.
    assert times() == {3600, 1800}
    plain = kueue.api.get("jobs", "batch/v1", "thesis", "plain")
    assert LONGEST_LABEL not in plain["metadata"].get("labels", {})
    eventually(lambda: {"plain", "w"} <= set(running(kueue.api, "thesis")))


def test_one_pod_has_at_most_what_its_team_gives(carol: Api) -> None:
    """Each of its containers, and all together."""

    def of(*memory: str) -> list[dict[str, Any]]:
        (one,) = pod_spec(1, resource=SMALL)["containers"]
        asked = [{**one["resources"]["limits"], "memory": each} for each in memory]
        return [
            {**one, "name": f"c{number}", "resources": {"requests": each, "limits": each}}
            for number, each in enumerate(asked)
        ]

    for containers, told in (
        (of("1025Mi"), "maximum memory usage per Container is 1Gi, but limit is 1025Mi"),
        (of("600Mi", "600Mi"), "maximum memory usage per Pod is 1Gi, but limit is 1200Mi"),
    ):
        assert told in refusal(carol, limited("Pod", time=60, spec={"containers": containers}))


def test_a_request_that_is_there_does_not_grow_beyond_its_teams_limit(
    carol: Api, kueue: RunningKueue
) -> None:
    kueue.api.create(job("full", "speech", gpus=1, pods=8, resource=SMALL))
    kueue.api.create(job("full", "vision", gpus=1, pods=4, resource=SMALL))
    eventually(lambda: running(kueue.api, "speech", "vision") == ["full", "full"])
    waits = limited("Job", pods=2)
    waits["spec"]["completions"] = 4
    carol.create(waits)
    path = carol.path("jobs", "batch/v1", "thesis", "w")
    for change, told in (
        ({"spec": {"parallelism": 3}}, LARGER.format(3)),
        (
            {"metadata": {"labels": {LONGEST_LABEL: "7200"}}},
            LONGER.format(f"{LONGEST_LABEL}: 7200"),
        ),
        ({"metadata": {"labels": {LONGEST_LABEL: None}}}, LONGER.format(f"{LONGEST_LABEL}: 0")),
    ):
        with pytest.raises(ApiError) as refused:
            carol.patch(path, change)
        assert told in str(refused.value)
    carol.patch(path, {"metadata": {"labels": {LONGEST_LABEL: "60", "mine": "yes"}}})


#: What the stack of schedulers makes, but for the releases of charts: no pod runs here.
PROGRAM = """\
from pathlib import Path

import pulumi
import pulumi_kubernetes as kubernetes

from bedplate.catalogue import load_catalogue
from bedplate.lock.model import Lock
from bedplate.components.schedulers.dra import Dra
from bedplate.components.schedulers.kueue.args import queues_args
from bedplate.components.schedulers.kueue.component import objects
from bedplate.components.schedulers.node_labels import NodeLabels
from bedplate.components.schedulers.runtime_class import GpuRuntime

provider = kubernetes.Provider("cluster", kubeconfig={kubeconfig!r})
below = pulumi.ResourceOptions(providers=[provider])
GpuRuntime("nvidia", {{"handler": "nvidia"}}, below)
labels = NodeLabels("gpus", {{"labels": {{{node!r}: {{"bedplate.io/tests": "labelled"}}}}}}, below)
Dra("dra", {{"limited": True}}, below)
kueue = pulumi.ComponentResource("bedplate:tests:Kueue", "kueue", None, below)
lock = Lock.model_validate_json(Path("lock.json").read_text())
objects(kueue, "kueue", queues_args(lock, load_catalogue()), labels)
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
