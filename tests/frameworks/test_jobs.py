"""Jobs in every form on the real API server, Kueue, JobSet and Volcano; kubelets are a double.

No container runs here: what the pods find in them is tested in pods (tests/site).
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from bedplate.components.frameworks import jobs
from bedplate.components.frameworks.jobs import Request
from tests.frameworks import examples, jobsets
from tests.frameworks.whole import PATIENCE, Site
from tests.schedulers.api import eventually
from tests.schedulers.control_plane import ControlPlane
from tests.schedulers.kubelets import KubeletDouble
from tests.schedulers.kueue import holds, reason
from tests.schedulers.volcano import JOBS
from tests.schedulers.workloads import job

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LABEL = re.compile(r"metadata\.labels\['(.+)'\]")
#: By this annotation a pod names its group; groups of jobs that are gone stay for a while.
GROUP = "scheduling.k8s.io/group-name"
VOLCANO = "scheduling.volcano.sh/v1beta1"
QUEUED = [name for name, (_, addons, _) in examples.EXAMPLES.items() if "kueue" in addons]


@pytest.fixture(scope="module")
def whole() -> Iterator[Site]:
    """Start everything once for a file's tests."""
    with (
        tempfile.TemporaryDirectory(prefix="bedplate-jobs-") as folder,
        ControlPlane(Path(folder)) as plane,
        KubeletDouble(plane.api),
    ):
        yield Site(plane)


@pytest.fixture
def site(whole: Site) -> Iterator[Site]:
    """Return the site; the team's work goes after the test."""
    yield whole
    whole.clear()
    eventually(lambda: not whole.pods(), PATIENCE)


def pods_of(name: str) -> int:
    """Return how many pods an example has."""
    return examples.EXAMPLES[name][2].pods


def environment(pod: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables of a pod as its kubelet would give them to the container."""
    found = {}
    for one in pod["spec"]["containers"][0].get("env", []):
        if "value" in one:
            found[one["name"]] = one["value"]
        elif label := LABEL.match(one["valueFrom"].get("fieldRef", {}).get("fieldPath", "")):
            found[one["name"]] = pod["metadata"]["labels"][label[1]]
    return found


def together(site: Site) -> int:
    """Return how many of the team's pods Volcano starts together: they are of one group."""
    (name,) = {pod["metadata"]["annotations"][GROUP] for pod in site.pods()}
    found: int = site.api.get("podgroups", VOLCANO, "vision", name)["spec"]["minMember"]
    return found


def data(site: Site, *claims: str) -> None:
    """Make volumes of the team, each bound to a claim."""
    for claim in claims:
        size = {"storage": "1Gi"}
        modes = {"accessModes": ["ReadOnlyMany"], "storageClassName": ""}
        spec = {**modes, "capacity": size, "hostPath": {"path": "/srv/data"}}
        site.api.apply(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": claim},
                "spec": {**spec, "claimRef": {"name": claim, "namespace": "vision"}},
            }
        )
        site.api.apply(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": claim, "namespace": "vision"},
                "spec": {**modes, "resources": {"requests": size}, "volumeName": claim},
            }
        )


@pytest.mark.parametrize("name", QUEUED)
def test_a_member_applies_the_example_and_it_starts(site: Site, name: str) -> None:
    """It is admitted by the queue, with its time limit, and its pods meet at the first one."""
    asked = examples.EXAMPLES[name][2]
    data(site, *(volume.claim for volume in asked.volumes))
    site.plane.kubectl("apply", "--as=alice", "-f", str(examples.FOLDER / f"{name}.yml"))

    eventually(lambda: site.placed() == pods_of(name), PATIENCE)

    (workload,) = site.kueue.workloads("vision")
    assert holds(workload, "Admitted")
    assert workload["spec"]["maximumExecutionTimeSeconds"] == asked.seconds + 60
    pods = site.pods()
    if asked.pods == 1:
        return
    assert {pod["spec"]["schedulerName"] for pod in pods} == {"volcano"}
    told = [environment(pod) for pod in pods]
    assert sorted(one["NODE_RANK"] for one in told) == [str(n) for n in range(asked.pods)]
    first = next(pod for pod in pods if environment(pod)["NODE_RANK"] == "0")
    names = {one["MASTER_ADDR"] for one in told}
    assert names == {f"{first['spec']['hostname']}.{first['spec']['subdomain']}"}
    # The name is that of a Service without an address, which has the pod.
    service = site.api.get("services", "v1", "vision", first["spec"]["subdomain"])
    assert service["spec"]["clusterIP"] == "None"
    selected = service["spec"]["selector"]
    assert selected.items() <= first["metadata"]["labels"].items()
    assert together(site) == asked.pods


def test_a_gang_waits_and_starts_whole(site: Site) -> None:
    """Twelve of sixteen GPUs are busy: of a gang that asks for eight nothing starts."""
    site.api.create(job("busy", "vision", gpus=4, pods=3))
    eventually(lambda: site.placed() == 3, PATIENCE)

    site.api.create_all(examples.objects("gang"))

    assert reason(site.kueue, "vision", "gang", "insufficient unused quota")
    assert site.placed() == 3
    site.api.delete(site.api.path("jobs", "batch/v1", "vision", "busy"))
    eventually(lambda: site.placed() == pods_of("gang"), PATIENCE)
    nodes = sorted(pod["spec"]["nodeName"] for pod in site.pods())
    assert len(set(nodes)) == 2, "four pods of two GPUs fill two nodes"


def test_volcano_alone_starts_a_gang_whole_in_the_team_s_queue(site: Site) -> None:
    """Where Kueue has no part: seven of sixteen GPUs are free, and the gang asks for eight."""
    space = site.plane.namespace("volcano-alone")
    queue = {
        "apiVersion": VOLCANO,
        "kind": "Queue",
        "metadata": {"name": "vision"},
        "spec": {"reclaimable": True},
    }
    site.volcano.queues([queue])
    (found,) = examples.objects("volcano")
    found["metadata"]["namespace"] = space
    busy = [job(f"busy-{n}", space, gpus=3, pods=1) for n in range(3)]
    site.api.create_all(busy)
    eventually(lambda: len(site.volcano.nodes(space)) == 3, PATIENCE)

    site.api.create(found)

    site.volcano.waits(space, "gang")
    site.volcano.cycles()
    assert site.volcano.nodes(space, "gang") == []
    site.api.delete(site.api.path("jobs", "batch/v1", space, "busy-0"))
    for pod in site.api.get("pods", "v1", space):
        if pod["metadata"]["name"].startswith("busy-0"):
            site.api.delete(site.api.path("pods", "v1", space, pod["metadata"]["name"]))
    eventually(lambda: site.volcano.running(space, "gang") == 4, PATIENCE)
    told = [environment(pod) for pod in site.volcano.pods(space, "gang")]
    assert sorted(one["NODE_RANK"] for one in told) == ["0", "1", "2", "3"]
    site.plane.clear(space, ("jobs", JOBS))


def test_a_job_s_time_is_limited_by_the_job_itself(site: Site) -> None:
    """Kueue's limit needs Kueue; the Job's own holds without it. The time in the queue is free."""
    asked = Request("short", "vision", examples.IMAGE, command=("sleep", "60"), gpus=1, seconds=2)
    known = jobs.jobs_args(site.lock)
    assert jobs.problems(known, asked) == []
    site.api.create_all(jobs.objects(known, asked))

    def failed() -> Any:
        status = site.api.get("jobs", "batch/v1", "vision", "short").get("status", {})
        return [one["reason"] for one in status.get("conditions", []) if one["type"] == "Failed"]

    assert eventually(failed, PATIENCE) == ["DeadlineExceeded"]


def test_the_examples_are_what_the_requests_make() -> None:
    for name in examples.EXAMPLES:
        path = examples.FOLDER / f"{name}.yml"
        command = "python -m tests.frameworks.examples"
        assert path.read_text() == examples.text(name), f"write it again: {command}"
    found = {path.stem for path in examples.FOLDER.glob("*.yml")}
    assert found == set(examples.EXAMPLES)


def test_a_jobset_s_pods_are_those_of_one_job(site: Site) -> None:
    """The controller of the real JobSet makes the Job, and the set ends with it."""
    site.api.create_all(examples.objects("jobset"))
    eventually(lambda: site.placed() == 2, PATIENCE)
    (made,) = site.api.get("jobs", "batch/v1", "vision")
    assert made["metadata"]["name"] == "jobset-workers-0"
    found = site.api.get("jobsets", jobsets.VERSION, "vision", "jobset")
    assert found["spec"]["suspend"] is False


def test_the_gang_of_the_examples_is_one_for_volcano_too(site: Site) -> None:
    found = yaml.safe_load((examples.FOLDER.parent / "gang.yml").read_text())
    found["metadata"]["namespace"] = "vision"
    site.api.create(found)
    eventually(lambda: site.placed() == 4, PATIENCE)
    assert together(site) == 4
