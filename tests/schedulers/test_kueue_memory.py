"""What Kueue's quota of GPU memory is today: alpha, and why no site can choose it.

Kueue 0.19.2 charges claims by their memory behind a feature gate. The configuration of this test is
not the product's: it shows what the gate counts, and what gets round it. The last test has the
product's, which counts claims.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.components.frameworks import hub_objects
from bedplate.components.schedulers import dra
from bedplate.components.schedulers.kueue import queues
from bedplate.components.schedulers.kueue.configuration import configuration
from bedplate.components.schedulers.kueue.objects import API, NAMESPACE, QUEUE, QUEUE_LABEL
from bedplate.portable.dra import DRIVER
from tests.frameworks.claims import claimed, claiming, publish, with_claims
from tests.schedulers.api import Api, eventually
from tests.schedulers.control_plane import ControlPlane
from tests.schedulers.dra import VERSION, resource_slice, template
from tests.schedulers.kubelets import KubeletDouble
from tests.schedulers.kueue import RunningKueue, holds, kueue_of, reason
from tests.schedulers.locks import lock_of, nodes_of, queues_of
from tests.schedulers.nodes import GPU, add_nodes
from tests.schedulers.workloads import job

if TYPE_CHECKING:
    from collections.abc import Iterator

MEMORY = "tests.bedplate/gpu-memory"
TEAM = "vision"
GATE = "KueueDRAIntegrationConsumableCapacity"
SELECTOR = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'"
SOURCE = {
    "capacity": {
        "name": "memory",
        "driver": DRIVER,
        "deviceSelector": {"cel": {"expression": SELECTOR}},
    }
}

pytestmark = pytest.mark.prove


class WithMemory(RunningKueue):
    """Kueue with the gate, and shares by memory as a resource."""

    def start(self, lock: Any) -> None:
        self.lock = lock
        given = configuration(queues_of(lock))
        given["resources"]["deviceClassMappings"] = [
            {"name": MEMORY, "deviceClassNames": [dra.SHARE], "sources": [SOURCE]}
        ]
        gates = {"VisibilityOnDemand": False, GATE: True}
        self.run(given | {"namespace": NAMESPACE, "featureGates": gates})


@pytest.fixture(scope="module")
def kueue() -> Iterator[RunningKueue]:
    """Start a control plane with four GPUs of 15 GiB by claim, and a team that has 20 Gi."""
    quota = {"placement": {"pods": "spread"}}
    lock = lock_of({"pool_a": [{}]}, {TEAM: {"gpus": {"pool_a": (0, 0)}}}, gpus=4, preset=quota)
    with (
        tempfile.TemporaryDirectory(prefix="bedplate-memory-") as folder,
        ControlPlane(Path(folder)) as plane,
    ):
        for one in dra.objects(limited=False):
            plane.api.apply(one)
        (made,) = nodes_of(lock)
        del made["status"]["capacity"][GPU]  # the driver offers claims alone
        made["status"]["allocatable"].pop(GPU, None)
        add_nodes(plane.api, [made])
        plane.api.create(resource_slice(made["metadata"]["name"], 4, "15Gi"))
        started = WithMemory(plane, lock)
        plane.namespace(TEAM, **{"bedplate.io/team": TEAM})
        for one in queues.objects(queues_of(lock)):
            if one["kind"] == "ClusterQueue":
                (group,) = one["spec"]["resourceGroups"]
                group["coveredResources"].append(MEMORY)
                quota_of = {"name": MEMORY, "nominalQuota": "20Gi", "borrowingLimit": "0"}
                group["flavors"][0]["resources"].append(quota_of)
            eventually(lambda one=one: started._apply(one), pause=0.3)
        eventually(lambda: started.active(TEAM))
        yield started


@pytest.fixture
def api(kueue: RunningKueue) -> Iterator[Api]:
    with KubeletDouble(kueue.api):
        yield kueue.api
        kueue.clear(TEAM)
        kueue.api.delete(kueue.api.path("resourceclaimtemplates", VERSION, TEAM))


def claims(name: str, of: str) -> dict[str, Any]:
    """Return a job of one pod that claims by a template."""
    made = job(name, TEAM, gpus=0, labels={QUEUE_LABEL: QUEUE})
    spec = made["spec"]["template"]["spec"]
    spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": of}]
    spec["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
    return made


def admitted(kueue: RunningKueue) -> list[str]:
    """Return the jobs that have quota."""
    found = [one for one in kueue.workloads(TEAM) if holds(one, "Admitted")]
    return sorted(one["metadata"]["ownerReferences"][0]["name"] for one in found)


def test_claims_are_charged_by_their_memory(api: Api, kueue: RunningKueue) -> None:
    api.create(template(TEAM, "share-8gi", "8Gi"))
    api.create(template(TEAM, "share-40gi", "40Gi"))
    for name in ("a", "b"):
        api.create(claims(name, "share-8gi"))
    eventually(lambda: admitted(kueue) == ["a", "b"])
    api.create(claims("c", "share-8gi"))
    api.create(claims("d", "share-40gi"))
    assert reason(kueue, TEAM, "c", f"insufficient unused quota for {MEMORY}")
    assert reason(kueue, TEAM, "d", "cannot be satisfied by any matched device")
    api.delete(api.path("jobs", "batch/v1", TEAM, "a"))
    eventually(lambda: admitted(kueue) == ["b", "c"])


def test_a_template_made_again_larger_is_charged_by_its_first_size(
    api: Api, kueue: RunningKueue
) -> None:
    """Why the plan offers no such quota: what was counted is not what the pod then gets."""
    api.create(template(TEAM, "share-8gi", "8Gi"))
    for name in ("a", "b"):
        api.create(claims(name, "share-8gi"))
    eventually(lambda: admitted(kueue) == ["a", "b"])
    api.create(template(TEAM, "changing", "4Gi"))
    api.create(claims("first", "changing"))
    eventually(lambda: "first" in admitted(kueue))
    api.create(claims("second", "changing"))
    assert reason(kueue, TEAM, "second", f"insufficient unused quota for {MEMORY}")
    path = api.path("resourceclaimtemplates", VERSION, TEAM, "changing")
    api.delete(path)
    api.create(template(TEAM, "changing", "15Gi"))
    api.delete(api.path("jobs", "batch/v1", TEAM, "first"))
    eventually(lambda: "second" in admitted(kueue))

    def claimed() -> list[str]:
        found = api.get("resourceclaims", VERSION, TEAM)
        return [
            one["spec"]["devices"]["requests"][0]["exactly"]["capacity"]["requests"]["memory"]
            for one in found
            if one["metadata"]["ownerReferences"][0]["name"].startswith("second")
        ]

    eventually(lambda: claimed() == ["15Gi"])

    def total() -> str:
        (usage,) = api.get("clusterqueues", API, None, TEAM)["status"]["flavorsUsage"]
        return str({one["name"]: one["total"] for one in usage["resources"]}[MEMORY])

    # Of which 31Gi are given.
    eventually(total, until=lambda found: found == "20Gi")


def test_a_class_fills_the_gpus_of_two_nodes_and_the_next_waits_in_the_queue() -> None:
    """What chooses the nodes has to see the memory that is left: Kueue does not."""
    lock = lock_of({"pool_class": [{}]}, {"lab": {"gpus": {"pool_class": (1, 0)}}}, preset={})
    with (
        kueue_of(with_claims(lock, {"seminar": (4, 6144)}, nodes=2)) as started,
        KubeletDouble(started.api) as kubelets,
    ):
        publish(started.api, nodes=2)
        for one in (hub_objects.namespace(), *hub_objects.rights({"seminar": {}})):
            started.api.apply(one)
        hub = started.api.acting_as(hub_objects.ACCOUNT)
        for number in range(5):
            made = claiming("seminar", "share-6144mi", "Job")
            made["metadata"] |= {"name": f"s{number}", "labels": {QUEUE_LABEL: QUEUE}}
            hub.create(made)
        eventually(lambda: len(claimed(started.api, "seminar")) == 4)
        eventually(lambda: len(kubelets.spans) == 4)
        nodes = Counter(span.node for span in kubelets.spans.values())
        assert nodes == {"pool-claims-0": 2, "pool-claims-1": 2}
        eventually(
            lambda: sorted(holds(one, "Admitted") for one in started.workloads("seminar")),
            until=lambda found: found == [False, True, True, True, True],
        )
