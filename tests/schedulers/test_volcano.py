"""How the real Volcano behaves with the configuration, queues and topology made from a lock."""

from __future__ import annotations

import re
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from bedplate.components.schedulers import dra, topology, volcano_objects
from bedplate.portable.dra import IMPLICIT
from bedplate.site.presets import load_presets
from tests.schedulers import dra as claims
from tests.schedulers.api import ApiError, eventually
from tests.schedulers.control_plane import ControlPlane
from tests.schedulers.kubelets import KubeletDouble
from tests.schedulers.nodes import GPU, add_nodes, node, remove_nodes
from tests.schedulers.volcano import JOBS, Volcano, gang
from tests.schedulers.workloads import pod_spec
from tests.stacks.locks import lock_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bedplate.site.presets import Preset

TRAINING = load_presets()["training"]
PAGE = Path(__file__).parents[2] / "docs/sharing.md"


@pytest.fixture(scope="module")
def volcano() -> Iterator[Volcano]:
    """Volcano with a control plane of its own, and kubelets that say that pods run."""
    with (
        tempfile.TemporaryDirectory(prefix="bedplate-volcano-") as folder,
        ControlPlane(Path(folder)) as control_plane,
        KubeletDouble(control_plane.api),
    ):
        found = Volcano(control_plane)
        for one in volcano_objects.priority_classes(TRAINING):
            control_plane.api.apply(one)
        yield found


@pytest.fixture
def training(volcano: Volcano) -> Volcano:
    """Volcano with the preset `training`: packed, with preemption and reclaim."""
    volcano.configure(TRAINING)
    return volcano


@pytest.fixture
def space(volcano: Volcano, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of a test, which goes with all nodes, queues and HyperNodes."""
    # Of its own for each parameter: Volcano cleans up behind jobs by their names, and late.
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_"))
    name = f"{words[:40]}-{words[-10:]}".strip("-") if len(words) > 50 else words.strip("-")
    yield volcano.control_plane.namespace(name)
    api = volcano.api
    # The garbage collector learns of new kinds twice a minute: pods are deleted here.
    volcano.control_plane.clear(name, ("jobs", JOBS))
    remove_nodes(api)
    api.delete(api.path("hypernodes", volcano_objects.TOPOLOGY))
    for queue in api.get("queues", volcano_objects.BATCH):
        if queue["metadata"]["name"] not in ("default", "root"):
            api.delete(api.path("queues", volcano_objects.BATCH, name=queue["metadata"]["name"]))


def left(volcano: Volcano, space: str, job: str) -> list[dict[str, Any]]:
    """Delete the pods of a job that is deleted, and return those that are still there."""
    for one in volcano.pods(space, job):
        volcano.api.delete(volcano.api.path("pods", "v1", space, one["metadata"]["name"]))
    return volcano.pods(space, job)


def done(volcano: Volcano, space: str) -> set[str]:
    """Return the jobs that are complete."""
    jobs = volcano.api.get("jobs", JOBS, space)
    return {
        one["metadata"]["name"]
        for one in jobs
        if one.get("status", {}).get("state", {}).get("phase") == "Completed"
    }


def test_a_gang_of_nine_on_eight_gpus_holds_nothing_and_starts_whole(
    training: Volcano, space: str
) -> None:
    add_nodes(training.api, [node("a", 4), node("b", 4)])
    training.api.create(gang("nine", space, pods=9))

    training.waits(space, "nine", "9/9 tasks in gang unschedulable")
    # All eight GPUs are still free for somebody else.
    training.api.create(gang("eight", space, pods=8))
    eventually(lambda: training.running(space, "eight") == 8)
    assert training.nodes(space, "nine") == []
    training.api.delete(training.api.path("jobs", JOBS, space, "eight"))
    eventually(lambda: left(training, space, "eight") == [])
    training.cycles()
    assert training.nodes(space, "nine") == []

    add_nodes(training.api, [node("c", 1)])

    eventually(lambda: training.running(space, "nine") == 9)
    assert training.nodes(space, "nine") == ["a"] * 4 + ["b"] * 4 + ["c"]


@pytest.mark.parametrize("together", [6, 1])
def test_gangs_that_would_deadlock_run_one_after_the_other(
    training: Volcano, space: str, together: int
) -> None:
    """Each of two jobs wants six of eight GPUs. Started pod by pod, both get a part."""
    add_nodes(training.api, [node(f"of-{together}", 8)])
    length = 1.0 if together == 6 else None
    training.api.create_all(
        [gang(name, space, pods=6, together=together, seconds=length) for name in ("one", "other")]
    )

    if together == 6:
        eventually(lambda: done(training, space) == {"one", "other"})
        return
    eventually(lambda: len(training.nodes(space)) == 8)
    training.cycles()
    held = [len(training.nodes(space, name)) for name in ("one", "other")]
    assert sum(held) == 8
    assert max(held) <= 6  # neither is whole, or only one of them


@pytest.mark.parametrize(("pods", "free"), [("binpack", 2), ("spread", 0)])
def test_binpack_leaves_the_most_nodes_free_and_spread_the_fewest(
    volcano: Volcano, space: str, pods: Any, free: int
) -> None:
    placement = TRAINING.placement.model_copy(update={"pods": pods})
    volcano.configure(TRAINING.model_copy(update={"placement": placement}))
    names = add_nodes(volcano.api, [node(f"n{number}", 8) for number in range(4)])
    sizes = [2, 1, 3, 1, 4, 2, 1, 2]  # 16 of 32 GPUs
    for number, size in enumerate(sizes):
        volcano.api.create(gang(f"job-{number}", space, pods=1, gpus=size))
        eventually(lambda number=number: volcano.running(space, f"job-{number}") == 1)

    assert len(set(names) - set(volcano.nodes(space))) == free


DOMAINS: Mapping[str, Mapping[str, str]] = {
    f"{domain}{number}": {"leaf": leaf, "nvlink_domain": domain}
    for domain, leaf in (("d", "l1"), ("e", "l2"), ("f", "l1"))
    for number in (1, 2)
}


def domains(volcano: Volcano, taken: Sequence[str], space: str) -> None:
    """Make three NVLink domains of two nodes with four GPUs each, and take two GPUs of nodes."""
    lock = lock_of(DOMAINS)
    labels = topology.node_labels(lock, {})
    add_nodes(volcano.api, [node(name, 4, labels[name]) for name in DOMAINS])
    for one in volcano_objects.hypernodes(topology.places(lock, {}), DOMAINS):
        volcano.api.apply(one)
    volcano.cycles()
    for name in taken:
        job = gang(f"on-{name}", space, pods=1, gpus=2)
        spec = job["spec"]["tasks"][0]["template"]["spec"]
        spec["nodeSelector"] = {"kubernetes.io/hostname": name}
        volcano.api.create(job)
        eventually(lambda name=name: volcano.running(space, f"on-{name}") == 1)


def within(volcano: Volcano, space: str, job: str) -> set[str]:
    """Return the domains that a job's pods are in."""
    return {DOMAINS[name]["nvlink_domain"] for name in volcano.nodes(space, job)}


ONE_DOMAIN = {"mode": "hard", "highestTierAllowed": 1}
ONE_LEAF = {"mode": "hard", "highestTierAllowed": 2}


def test_a_job_of_eight_gpus_is_in_one_nvlink_domain_or_says_why_not(
    training: Volcano, space: str
) -> None:
    """Six GPUs are free in the domains d and f of one leaf, eight in e."""
    domains(training, ["d1", "f1"], space)
    training.api.create(gang("first", space, pods=8, topology=ONE_DOMAIN))
    eventually(lambda: training.running(space, "first") == 8)
    assert within(training, space, "first") == {"e"}

    # Twelve are free, but not in one domain.
    training.api.create(gang("second", space, pods=8, topology=ONE_DOMAIN))
    training.waits(space, "second", "8/8 tasks in gang unschedulable")
    training.cycles()
    assert training.nodes(space, "second") == []

    training.api.create(gang("leaf", space, pods=8, topology=ONE_LEAF))
    eventually(lambda: training.running(space, "leaf") == 8)
    assert within(training, space, "leaf") == {"d", "f"}

    api = training.api
    api.delete(api.path("jobs", JOBS, space, "first"))
    eventually(lambda: training.running(space, "second") == 8)
    assert within(training, space, "second") == {"e"}


def test_the_page_s_example_runs_inside_one_domain(training: Volcano, space: str) -> None:
    blocks = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (job,) = (yaml.safe_load(one) for one in blocks if f"apiVersion: {JOBS}" in one)
    job["metadata"]["namespace"] = space
    add_queues(training, TRAINING)
    domains(training, ["d1", "f1"], space)

    training.api.create(job)

    eventually(lambda: training.running(space, "training") == 8)
    assert within(training, space, "training") == {"e"}


def test_a_soft_topology_prefers_one_domain_and_takes_two(training: Volcano, space: str) -> None:
    domains(training, ["d1"], space)
    soft = {"mode": "soft"}
    training.api.create(gang("fits", space, pods=6, topology=soft))
    eventually(lambda: training.running(space, "fits") == 6)
    assert len(within(training, space, "fits")) == 1

    training.api.create(gang("wide", space, pods=12, topology=soft))
    eventually(lambda: training.running(space, "wide") == 12)


def test_a_gang_of_higher_priority_takes_exactly_what_it_needs(
    training: Volcano, space: str
) -> None:
    add_nodes(training.api, [node("a", 4), node("b", 4)])
    spare = gang("spare", space, pods=8, together=1, priority="spare")
    spare["spec"]["policies"] = []
    training.api.create(spare)
    eventually(lambda: training.running(space, "spare") == 8)
    before = {one["metadata"]["uid"] for one in training.pods(space, "spare")}
    # One of the same class makes nobody go.
    training.api.create(gang("peer", space, pods=4, priority="spare"))
    training.waits(space, "peer")
    training.cycles()
    assert {one["metadata"]["uid"] for one in training.pods(space, "spare")} == before

    training.api.create(gang("urgent", space, pods=4, priority="urgent"))

    eventually(lambda: training.running(space, "urgent") == 4)
    training.cycles()
    assert training.running(space, "spare") == 4
    left = {one["metadata"]["uid"] for one in training.pods(space, "spare")}
    assert len(before - left) == 4
    assert training.nodes(space, "peer") == []


TEAMS: Mapping[str, Mapping[str, Any]] = {
    name: {"namespaces": [name], "gpus": {"pool_class": {GPU: {"guaranteed": 4}}}}
    for name in ("robots", "speech", "vision")
}


def add_queues(volcano: Volcano, preset: Preset) -> None:
    """Make the queues of three teams, with four GPUs guaranteed to each."""
    cluster = lock_of({}, teams=TEAMS).cluster
    assert cluster is not None
    volcano.queues(volcano_objects.queues(cluster.teams, preset))


@pytest.mark.parametrize("reclaim", ["Any", "Never"])
def test_a_team_gets_its_guarantee_back_from_who_borrowed_it(
    volcano: Volcano, space: str, reclaim: Any
) -> None:
    """Eight GPUs, four guaranteed to each: vision's gangs of two have them all."""
    queue = TRAINING.queue.model_copy(update={"reclaim": reclaim})
    preset = TRAINING.model_copy(update={"queue": queue})
    volcano.configure(preset)
    add_queues(volcano, preset)
    add_nodes(volcano.api, [node("a", 4), node("b", 4)])
    volcano.api.create_all(
        [gang(f"vision-{number}", space, pods=2, queue="vision") for number in range(4)]
    )
    eventually(lambda: len(volcano.nodes(space)) == 8)

    volcano.api.create(gang("speech", space, pods=4, queue="speech"))

    def kept() -> int:
        return sum(volcano.running(space, f"vision-{number}") for number in range(4))

    if reclaim == "Never":
        volcano.waits(space, "speech")
        volcano.cycles()
        assert volcano.nodes(space, "speech") == []
        return
    eventually(lambda: volcano.running(space, "speech") == 4)
    # What was stopped is made again, whole gangs of it, and waits.
    eventually(kept, until=lambda count: count == 4)
    # Its guarantee is all that it gets: what is vision's stays vision's.
    volcano.api.create(gang("more", space, pods=2, queue="speech"))
    volcano.waits(space, "more")
    volcano.cycles()
    assert volcano.nodes(space, "more") == []
    assert kept() == 4


def test_who_uses_no_more_than_the_guarantee_is_left_alone(training: Volcano, space: str) -> None:
    """Speech has its four, vision eight: what robots lack is vision's, wherever they ask for it."""
    add_queues(training, TRAINING)
    add_nodes(training.api, [node("a", 4)])
    training.api.create(gang("speech", space, pods=4, queue="speech"))
    eventually(lambda: training.running(space, "speech") == 4)
    own = {one["metadata"]["uid"] for one in training.pods(space, "speech")}
    add_nodes(training.api, [node("b", 4), node("c", 4)])
    training.api.create_all(
        [gang(f"vision-{number}", space, pods=2, queue="vision") for number in range(4)]
    )
    eventually(lambda: len(training.nodes(space)) == 12)

    on_a = gang("on-a", space, pods=4, queue="robots")
    pod = on_a["spec"]["tasks"][0]["template"]["spec"]
    pod["nodeSelector"] = {"kubernetes.io/hostname": "a"}
    training.api.create(on_a)
    training.waits(space, "on-a")
    training.cycles()
    training.api.create(gang("robots", space, pods=4, queue="robots"))

    eventually(lambda: training.running(space, "robots") == 4)
    assert {one["metadata"]["uid"] for one in training.pods(space, "speech")} == own
    assert training.nodes(space, "on-a") == []


@pytest.mark.prove
@pytest.mark.parametrize("seed", [42])
def test_a_storm_of_gangs_ends_and_none_ever_runs_in_part(
    training: Volcano, space: str, seed: int
) -> None:
    """A hundred gangs of one to twelve pods with one to eight GPUs, on 32 GPUs of four nodes."""
    random = Random(seed)  # noqa: S311 a seeded storm
    add_nodes(training.api, [node(f"n{number}", 8) for number in range(4)])
    sizes: dict[str, int] = {}
    jobs = []
    while len(jobs) < 100:
        gpus, pods = random.choice([1, 1, 2, 4, 8]), random.randint(1, 12)
        if gpus * pods <= 32:
            name = f"gang-{len(jobs)}"
            sizes[name] = pods
            seconds = random.uniform(0.5, 2)
            jobs.append(gang(name, space, pods=pods, gpus=gpus, seconds=seconds))
    training.api.create_all(jobs)

    began = time.monotonic()
    partial: dict[str, int] = {}
    while len(finished := done(training, space)) < len(jobs):
        used: Counter[str] = Counter()
        bound: Counter[str] = Counter()
        for pod in training.pods(space):
            where = pod["spec"].get("nodeName")
            bound[pod["metadata"]["labels"]["volcano.sh/job-name"]] += bool(where)
            if where and pod["status"]["phase"] in ("Pending", "Running"):
                limits = pod["spec"]["containers"][0]["resources"]["limits"]
                used[where] += int(limits[GPU])
        assert max(used.values(), default=0) <= 8
        # Pods of one gang are bound one after the other: only what lasts is in part.
        now = {name for name, count in bound.items() if 0 < count < sizes[name]} - finished
        partial = {name: partial.get(name, 0) + 1 for name in now}
        assert max(partial.values(), default=0) < 20, partial
        assert time.monotonic() - began < 900, sorted(set(sizes) - finished)
        time.sleep(0.2)
    print(f"seed {seed}: 100 gangs, {sum(sizes.values())} pods, {time.monotonic() - began:.0f} s")


def test_a_team_s_work_goes_into_the_team_s_queue_alone(training: Volcano, space: str) -> None:
    api = training.api
    for one in volcano_objects.guard([GPU]):
        api.apply(one)
    training.control_plane.namespace(space, **{volcano_objects.TEAM_LABEL: "vision"})

    def refused(one: dict[str, Any]) -> str:
        try:
            api.create(one)
        except ApiError as error:
            return str(error)
        api.delete(api.path_of(one))  # this policy is not in force yet: each comes by itself
        return ""

    assert eventually(lambda: refused(gang("foreign", space, pods=1, queue="speech"))).endswith(
        "another queue than the team's — spec.queue — got speech / allowed vision — "
        "write queue: vision"
    )
    api.create(gang("own", space, pods=1, queue="vision"))
    # Nor round Volcano, to the scheduler that counts nothing.
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "round", "namespace": space}}
    around = "pod with GPUs is not in the queue"
    eventually(lambda: refused({**pod, "spec": pod_spec(1)}), until=lambda said: around in said)
    early = pod_spec(0)
    early["initContainers"] = [{**pod_spec(1)["containers"][0], "name": "early"}]
    by_class = pod_spec(0)
    by_class["containers"][0]["resources"] = {"requests": {f"{IMPLICIT}{dra.WHOLE}": "1"}}
    for spec in (early, by_class):
        with pytest.raises(ApiError, match=around):
            api.create({**pod, "spec": spec})
    api.create({**pod, "spec": pod_spec(0)})
    # Somebody else's namespace is not our business.
    api.create(gang("other", training.control_plane.namespace("nobody-s"), pods=1))


def test_a_pod_with_claims_is_refused_because_volcano_would_leave_them_without_a_device(
    training: Volcano, space: str
) -> None:
    api = training.api
    add_nodes(api, [node("a")])
    api.apply(dra.objects(limited=False)[1])
    api.create(claims.resource_slice("a", 1))
    api.create(claims.template(space, "share-2gi", "2Gi"))

    def made(name: str) -> dict[str, Any]:
        one = claims.pod(space, name, "share-2gi")
        return {**one, "spec": {**one["spec"], "schedulerName": volcano_objects.SCHEDULER}}

    api.create(made("before"))
    eventually(lambda: training.nodes(space) == ["a"])
    (claim,) = eventually(lambda: api.get("resourceclaims", claims.VERSION, space))
    assert "allocation" not in claim.get("status", {}), "Volcano has learnt to allocate claims"

    for one in volcano_objects.claims_guard():
        api.apply(one)

    def refused() -> str:
        try:
            api.create(made("after"))
        except ApiError as error:
            return str(error)
        api.delete(api.path("pods", "v1", space, "after"), gracePeriodSeconds=0)
        return ""

    assert eventually(refused).endswith(
        "pod with resource claims at a scheduler that allocates none — spec.schedulerName — got"
        " volcano / allowed default-scheduler — leave schedulerName out, or ask for GPUs by"
        " nvidia.com/gpu"
    )
    api.create(claims.pod(space, "by-default", "share-2gi"))
    eventually(lambda: len(training.nodes(space)) == 2)
    allocated = [
        one
        for one in api.get("resourceclaims", claims.VERSION, space)
        if one.get("status", {}).get("allocation")
    ]
    assert [one["metadata"]["ownerReferences"][0]["name"] for one in allocated] == ["by-default"]
    training.control_plane.clear(space, ("resourceclaims", claims.VERSION))
    for path in (
        api.path("resourceslices", claims.VERSION),
        api.path("deviceclasses", claims.VERSION),
    ):
        api.delete(path)
