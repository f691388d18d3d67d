"""Classes and guard of GPUs by claim, on a real API server and scheduler; slices are by hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from bedplate.components.schedulers.dra import LIMIT, SHARE, WHOLE, objects
from bedplate.components.schedulers.kueue.objects import QUEUE, QUEUE_LABEL
from bedplate.portable.dra import IMPLICIT
from tests.schedulers.api import Api, ApiError, eventually
from tests.schedulers.dra import VERSION, claim, pod, resource_slice, template
from tests.schedulers.kubelets import KubeletDouble
from tests.schedulers.kueue import condition, kueue_of, running
from tests.schedulers.locks import lock_of, nodes_of
from tests.schedulers.nodes import GPU, add_nodes, node, remove_nodes
from tests.schedulers.workloads import job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.schedulers.control_plane import ControlPlane

TEAM = "dra-team"
CARDS, GIB = 4, 15
SIZES = (1, 2, 8, 40)
#: Seconds until pods that wait are made anew. While kube-scheduler writes an allocation it may
#: count it twice, so that the pod with a GPU's last share is refused; it looks again 5 to 5.5
#: minutes later (seen with 1.36.3, 3 times of 200 with two busy cores).
FIRST_LOOK = 30
EXAMPLES = Path(__file__).parents[2] / "examples/shares-by-memory.yml"


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """One node with four GPUs of 15 GiB, and the classes."""
    api = control_plane.api
    for one in objects(limited=False):
        api.apply(one)
    add_nodes(api, [node("gpu-b")])
    api.create(resource_slice("gpu-b", CARDS, f"{GIB}Gi"))
    control_plane.namespace(TEAM)
    for memory in SIZES:
        api.create(template(TEAM, f"share-{memory}gi", f"{memory}Gi"))
    api.create(template(TEAM, "whole", None, WHOLE))
    yield control_plane
    for plural in ("resourceclaimtemplates", "resourceclaims"):
        api.delete(api.path(plural, VERSION, TEAM))
    api.delete(api.path("resourceslices", VERSION))
    for one in objects(limited=False):
        api.delete(api.path_of(one))
    remove_nodes(api)


@pytest.fixture(autouse=True)
def empty(cluster: ControlPlane) -> Iterator[None]:
    yield
    cluster.clear(TEAM, ("resourceclaims", VERSION))


def bound(cluster: ControlPlane, count: int, namespace: str = TEAM, patience: float = 240) -> None:
    """Wait until so many pods have a node."""

    def placed() -> int:
        pods = cluster.api.get("pods", "v1", namespace)
        return sum("nodeName" in one["spec"] for one in pods)

    eventually(placed, patience, until=lambda many: many == count)


def allocated(
    cluster: ControlPlane, namespace: str = TEAM
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the pod of each claim, with the devices that the scheduler chose for it."""
    for made in cluster.api.get("resourceclaims", VERSION, namespace):
        found = made.get("status", {}).get("allocation", {}).get("devices", {})
        yield made["metadata"]["ownerReferences"][0]["name"], found.get("results", [])


def cards(cluster: ControlPlane, namespace: str = TEAM) -> dict[str, list[str]]:
    """Return by pod the GPUs of its claims."""
    found: dict[str, list[str]] = {}
    for owner, devices in allocated(cluster, namespace):
        found.setdefault(owner, []).extend(one["device"] for one in devices)
    return found


def waits(cluster: ControlPlane, name: str) -> None:
    """Wait until the scheduler finds no GPU for a pod: at first it may miss the claim."""

    def said() -> str:
        found = cluster.api.get("pods", "v1", TEAM, name)
        conditions = {one["type"]: one for one in found.get("status", {}).get("conditions", [])}
        scheduled = conditions.get("PodScheduled", {})
        return str(scheduled.get("message", "")) if scheduled.get("status") == "False" else ""

    eventually(said, until=lambda text: "cannot allocate all claims" in text)


def test_two_shares_lie_on_one_gpu_and_one_that_is_too_large_says_why(
    cluster: ControlPlane,
) -> None:
    # One after the other: while 8 Gi are written twice over, 2 Gi would go to the next GPU.
    for number, size in enumerate((2, 8)):
        cluster.api.create(pod(TEAM, f"p{size}", f"share-{size}gi"))
        bound(cluster, number + 1)
    cluster.api.create(pod(TEAM, "p40", "share-40gi"))
    found = cards(cluster)
    assert found["p2"] == found["p8"]
    assert len(found["p2"]) == 1
    counted = {
        owner: one["consumedCapacity"]["memory"]
        for owner, devices in allocated(cluster)
        for one in devices
    }
    assert counted == {"p2": "2Gi", "p8": "8Gi"}
    waits(cluster, "p40")


def test_shares_fill_every_gpu_and_the_next_waits_until_one_is_released(
    cluster: ControlPlane,
) -> None:
    full = CARDS * GIB
    cluster.api.create_all(pod(TEAM, f"p{n}", "share-1gi") for n in range(full))
    try:
        bound(cluster, full, patience=FIRST_LOOK)
    except AssertionError:
        for one in cluster.api.get("pods", "v1", TEAM):
            if "nodeName" not in one["spec"]:
                name = one["metadata"]["name"]
                path = cluster.api.path("pods", "v1", TEAM, name)
                cluster.api.delete(path, gracePeriodSeconds=0)
                cluster.api.create(pod(TEAM, name, "share-1gi"))
        bound(cluster, full)
    on = [of[0] for of in cards(cluster).values()]
    assert {card: on.count(card) for card in on} == {f"gpu-{n}": GIB for n in range(CARDS)}
    cluster.api.create(pod(TEAM, "last", "share-1gi"))
    waits(cluster, "last")
    cluster.api.delete(cluster.api.path("pods", "v1", TEAM, "p7"), gracePeriodSeconds=0)
    eventually(lambda: "nodeName" in cluster.api.get("pods", "v1", TEAM, "last")["spec"])


def test_whole_gpus_are_given_once_by_claim_and_by_the_extended_resource(
    cluster: ControlPlane,
) -> None:
    """Manifests that ask for nvidia.com/gpu go on as they are."""
    plain = pod(TEAM, "plain")
    plain["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    cluster.api.create(plain)
    for number in range(CARDS - 1):
        cluster.api.create(pod(TEAM, f"whole{number}", "whole"))
    bound(cluster, CARDS)
    given = sorted(card for of in cards(cluster).values() for card in of)
    assert given == [f"gpu-{number}" for number in range(CARDS)]
    cluster.api.create(pod(TEAM, "small", "share-1gi"))
    waits(cluster, "small")


def test_the_documents_examples_run_as_they_are(cluster: ControlPlane) -> None:
    examples = cluster.namespace("dra-examples")
    pods = 0
    for one in yaml.safe_load_all(EXAMPLES.read_text()):
        cluster.api.create({**one, "metadata": {**one["metadata"], "namespace": examples}})
        pods += one["kind"] == "Pod"
        bound(cluster, pods, examples)
    assert pods == 3
    found = cards(cluster, examples)
    assert found["notebook"] == found["inference"]
    assert found["training"] != found["inference"]
    cluster.clear(examples, ("resourceclaimtemplates", VERSION), ("resourceclaims", VERSION))


@pytest.fixture
def guarded(cluster: ControlPlane) -> Iterator[ControlPlane]:
    """The classes with the guard, once it is in force."""
    guard = objects(limited=True)
    for one in guard:
        cluster.api.apply(one)

    def tried(item: dict[str, Any]) -> dict[str, Any] | None:
        """Return what would be made of an object; None where it is refused."""
        where = cluster.api.path_of(item, named=False)
        try:
            return cluster.api.call("POST", where, item, params={"dryRun": "All"})
        except ApiError:
            return None

    def in_force() -> bool:
        """The API server reads each policy a moment after it is made."""
        written = tried(pod(TEAM, "probe", "share-2gi"))
        return (
            written is not None
            and limits(written) == ["2048"]
            and tried(pod(TEAM, "probe", "share-2gi", **{LIMIT: "1"})) is None
            and tried(template(TEAM, "any", "2Gi")) is None
            and tried(claim(template(TEAM, "any", "2Gi"))) is None
        )

    eventually(in_force)
    yield cluster
    for one in guard[2:]:
        cluster.api.delete(cluster.api.path_of(one))
    # Else the next test would take for its own guard what is still in force of this one.
    eventually(lambda: (made := tried(pod(TEAM, "probe", "share-2gi"))) and not limits(made))
    eventually(lambda: tried(pod(TEAM, "probe", "share-2gi", **{LIMIT: "1"})))
    eventually(lambda: tried(template(TEAM, "any", "2Gi")))
    eventually(lambda: tried(claim(template(TEAM, "any", "2Gi"))))


def limits(of: dict[str, Any]) -> list[str]:
    """Return the limits in a pod's environment."""
    return [
        one["value"]
        for container in of["spec"]["containers"]
        for one in container.get("env", [])
        if one["name"] == LIMIT
    ]


def refused(cluster: ControlPlane, item: dict[str, Any]) -> str:
    """Return why the API refuses an object."""
    with pytest.raises(ApiError) as caught:
        cluster.api.create(item)
    return str(caught.value).partition("denied request: ")[2]


OWN = (
    "a container says its own GPU memory limit — containers main — got NVIDIA_GPU_MEMORY_LIMIT or"
    " NVIDIA_GPU_MEMORY_REQUEST / allowed the limit that the share has by its name, which is"
    " written automatically — remove the variables"
)


def test_the_limit_of_a_share_is_written_and_no_other_is_taken(guarded: ControlPlane) -> None:
    made = guarded.api.create(pod(TEAM, "p2", "share-2gi", OTHER="kept"))
    assert limits(made) == ["2048"]
    assert {"name": "OTHER", "value": "kept"} in made["spec"]["containers"][0]["env"]
    # The right value by oneself, two shares of one size, and a GPU without any size.
    assert limits(guarded.api.create(pod(TEAM, "right", "share-8gi", **{LIMIT: "8192"}))) == [
        "8192"
    ]
    assert limits(guarded.api.create(pod(TEAM, "two", "share-1gi", "share-1gi"))) == ["1024"]
    assert limits(guarded.api.create(pod(TEAM, "whole", "whole"))) == []

    assert refused(guarded, pod(TEAM, "more", "share-2gi", **{LIMIT: "15360"})) == OWN
    assert refused(guarded, pod(TEAM, "more", "whole", **{LIMIT: "15360"})) == OWN
    soft = pod(TEAM, "soft", "share-2gi", NVIDIA_GPU_MEMORY_REQUEST="15360")
    assert refused(guarded, soft) == OWN
    lifted = pod(TEAM, "lifted", "share-2gi")
    source = {"fieldRef": {"fieldPath": "metadata.labels['limit']"}}
    lifted["spec"]["containers"][0]["env"] = [{"name": LIMIT, "valueFrom": source}]
    assert refused(guarded, lifted) == OWN
    mixed = refused(guarded, pod(TEAM, "mixed", "share-2gi", "share-8gi"))
    assert mixed == (
        "the shares of a container differ in size — containers main — allowed shares of one size,"
        " for the limit is one — name templates of one size"
    )


@pytest.mark.parametrize("kind", ["limits", "requests"])
def test_a_share_by_its_classs_own_resource_has_no_size_and_is_refused(
    guarded: ControlPlane, kind: str
) -> None:
    of = pod(TEAM, "plain")
    of["spec"]["containers"][0]["resources"] = {kind: {f"{IMPLICIT}{SHARE}": "1"}}
    assert refused(guarded, of) == (
        "a share of a GPU without a size — containers main — got"
        " deviceclass.resource.kubernetes.io/gpu-memory.nvidia.com / allowed claims, which name"
        " their memory — name a claim's template, or ask for a whole GPU by nvidia.com/gpu"
    )


def test_init_containers_are_limited_too(guarded: ControlPlane) -> None:
    of = pod(TEAM, "first", "share-2gi")
    (main,) = of["spec"]["containers"]
    of["spec"]["initContainers"] = [{**main, "name": "early"}]
    made = guarded.api.create(of)
    assert limits({"spec": {"containers": made["spec"]["initContainers"]}}) == ["2048"]


@pytest.mark.parametrize("kind", ["ResourceClaimTemplate", "ResourceClaim"])
def test_a_name_that_does_not_say_the_size_is_refused(guarded: ControlPlane, kind: str) -> None:
    def named(name: str, memory: str | None, device_class: str = SHARE) -> dict[str, Any]:
        made = template(TEAM, name, memory, device_class)
        return made if kind == "ResourceClaimTemplate" else claim(made)

    for good in (named("a-3gi", "3Gi"), named("b-512mi", "512Mi"), named("c", None, WHOLE)):
        guarded.api.create(good)
    wrong = [
        named("wrong-2gi", "15Gi"),
        named("unnamed", "2Gi"),
        named("unsized", None),
        named("whole-2gi", None, WHOLE),
        named("whole", "15Gi", WHOLE),
    ]
    for one in wrong:
        assert refused(guarded, one).startswith(
            f"the name does not say the size of the share — {one['metadata']['name']} — allowed"
        )
    either = named("either-2gi", "2Gi")
    spec = either["spec"]["spec"] if kind == "ResourceClaimTemplate" else either["spec"]
    (request,) = spec["devices"]["requests"]
    exactly = request.pop("exactly")
    request["firstAvailable"] = [{"name": "one", **exactly}]
    assert refused(guarded, either).startswith("a choice of devices has no one size")


def test_claims_that_the_cluster_makes_for_pods_pass(guarded: ControlPlane) -> None:
    """The controller and the scheduler make up the names of the claims that they make."""
    plain = pod(TEAM, "plain")
    plain["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    guarded.api.create(plain)
    guarded.api.create(pod(TEAM, "p2", "share-2gi"))
    bound(guarded, 2)


def test_a_node_publishes_its_own_gpus_and_no_others(
    start_control_plane: Callable[..., ControlPlane],
) -> None:
    """With kubelet's credentials, which the driver has, on an API server as kubeadm starts it."""
    plane = start_control_plane(api_flags=["--enable-admission-plugins=NodeRestriction"])
    add_nodes(plane.api, [node("gpu-a"), node("gpu-b")])
    plane.api.create(resource_slice("gpu-a", 8))
    certificate = plane.authority.issue("system:node:gpu-b", "system:nodes")
    kubelet = Api(plane.server, plane.authority.path, certificate)
    kubelet.create(resource_slice("gpu-b", 4))
    forged = resource_slice("gpu-a", 4)
    forged["metadata"]["name"] = "forged"
    with pytest.raises(ApiError) as caught:
        kubelet.create(forged)
    assert caught.value.status == 403
    assert str(caught.value).endswith("with the same NodeName as the requesting node")
    where = plane.api.path("resourceslices", VERSION)
    with pytest.raises(ApiError) as caught:
        kubelet.delete(f"{where}/gpu-a-gpus", missing_ok=False)
    assert caught.value.status == 403
    with pytest.raises(ApiError):
        kubelet.call("GET", where)
    mine = kubelet.call("GET", where, params={"fieldSelector": "spec.nodeName=gpu-b"})
    assert [one["metadata"]["name"] for one in mine["items"]] == ["gpu-b-gpus"]
    assert len(plane.api.get("resourceslices", VERSION)) == 2


@pytest.mark.prove
@pytest.mark.parametrize("pods", ["binpack", "spread"])
def test_kueue_finds_whole_gpus_by_claim_where_it_does_not_choose_the_node(pods: str) -> None:
    """Its topology counts what nodes offer, and these offer nothing. The plan refuses the first."""
    placed = {"placement": {"pods": pods}}
    lock = lock_of({"pool_a": [{}]}, {TEAM: {"gpus": {"pool_a": (1, 0)}}}, gpus=1, preset=placed)
    with kueue_of(lock) as kueue, KubeletDouble(kueue.api):
        api = kueue.api
        for one in objects(limited=False):
            api.apply(one)
        (made,) = nodes_of(lock)
        for offered in ("capacity", "allocatable"):
            made["status"][offered].pop(GPU, None)
        remove_nodes(api)
        add_nodes(api, [made])
        api.create(resource_slice(made["metadata"]["name"], 1))
        api.create(job("whole", TEAM, labels={QUEUE_LABEL: QUEUE}))
        if pods == "binpack":
            none = "doesn't allow to fit any of 1 pod(s)"
            eventually(
                lambda: [
                    one
                    for one in kueue.workloads(TEAM)
                    if none in condition(one, "QuotaReserved").get("message", "")
                ]
            )
            return
        eventually(lambda: running(api, TEAM) == ["whole"])
        eventually(
            lambda: [
                one
                for one in api.get("resourceclaims", VERSION, TEAM)
                if one["status"].get("allocation")
            ]
        )
