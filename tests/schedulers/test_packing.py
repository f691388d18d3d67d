"""The packing extender on the real scheduler: counted at every moment, whoever is killed."""

from __future__ import annotations

import contextlib
import json
import random
import re
import threading
import time
import urllib.request
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Self

import pytest

from bedplate.components.schedulers.packing_objects import RUNTIME_CLASS, objects
from bedplate.pods.packing.shares import GPUS, RESOURCE, WHOLE
from tests.schedulers.api import ApiError, eventually
from tests.schedulers.kubelets import SECONDS, KubeletDouble
from tests.schedulers.nodes import add_nodes, remove_nodes
from tests.schedulers.packing import Packing, install, packed_node, place, pod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.schedulers.control_plane import ControlPlane

NAMESPACE = "packing"
BINDING = next(one for one in objects("", "") if one["kind"] == "ValidatingAdmissionPolicyBinding")
REFUSED: dict[str, dict[str, Any]] = {
    "is a share of one GPU (1 to 1000) or whole GPUs": {"amount": 1500},
    "is counted by scheduler bedplate-packing alone": {"schedulerName": "other"},
    "the scheduler chooses the node": {"nodeName": "b2"},
    "annotation bedplate.io/gpus is written by the binding alone": {"gpus": "0"},
    "comes from annotation bedplate.io/gpus": {"env": "all"},
}
#: More than kube-scheduler's own: who cannot renew it in time ends, and no kubelet is here to start
#: the program again. The takeover waits for all of it.
LEASE = {"leaseDuration": "30s", "renewDeadline": "25s", "retryPeriod": "2s"}
AMOUNTS = [100, 250, 250, 333, 460, 500, 500, 500, 810, 1000, 1000, 2000]


@pytest.fixture(scope="module")
def packing(control_plane: ControlPlane) -> Iterator[Packing]:
    documents, token = install(control_plane)
    runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": RUNTIME_CLASS}
    documents.append({**runtime, "metadata": {"name": RUNTIME_CLASS}})
    control_plane.api.apply(documents[-1])
    one = Packing(control_plane, "first", token, LEASE)
    one.start()
    one.leads()
    control_plane.namespace(NAMESPACE)
    guarded(control_plane)
    yield one
    for part in ("scheduler", "extender"):
        one.process(part).kill()
    for document in reversed(documents):
        control_plane.api.delete(control_plane.api.path_of(document))


def guarded(plane: ControlPlane) -> None:
    """Wait until the policies are in force: the API server takes a moment to see each of them."""
    plain = pod("plain", NAMESPACE, 500)
    del plain["spec"]["schedulerName"]

    def tried(one: dict[str, Any]) -> dict[str, Any] | None:
        with contextlib.suppress(ApiError):
            where = plane.api.path_of(one, named=False)
            return dict(plane.api.call("POST", where, one, params={"dryRun": "All"}))
        return None

    def in_force() -> bool:
        made = tried(plain)
        return (
            made is not None
            and made["spec"].get("runtimeClassName") == RUNTIME_CLASS
            and not any(tried(wrong(change)) for change in REFUSED.values())
        )

    eventually(in_force)


def wrong(change: dict[str, Any]) -> dict[str, Any]:
    """Return a pod with something that would not be counted."""
    notes = {GPUS: str(change["gpus"])} if "gpus" in change else {}
    made = pod("wrong", NAMESPACE, int(change.get("amount", 500)), notes)
    made["spec"] |= {key: change[key] for key in ("schedulerName", "nodeName") if key in change}
    if "env" in change:
        seen = {"name": "NVIDIA_VISIBLE_DEVICES", "value": change["env"]}
        made["spec"]["containers"][0]["env"] = [seen]
    return made


@pytest.fixture
def clean(control_plane: ControlPlane, packing: Packing) -> Iterator[None]:
    """What a test leaves is removed, also when it fails."""
    yield
    control_plane.clear(NAMESPACE)
    remove_nodes(control_plane.api)


@pytest.fixture
def two(control_plane: ControlPlane, clean: None) -> list[str]:
    """One node with two GPUs."""
    return ready_nodes(control_plane, {"b2": 2})


@pytest.fixture
def nodes(control_plane: ControlPlane, clean: None) -> list[str]:
    """Three nodes with eleven GPUs."""
    return ready_nodes(control_plane, {"a1": 1, "b2": 2, "c8": 8})


def created(plane: ControlPlane, one: dict[str, Any]) -> bool:
    """Create a pod, or return False where it is refused."""
    try:
        plane.api.create(one)
    except ApiError:
        return False
    return True


def ready_nodes(plane: ControlPlane, sizes: dict[str, int]) -> list[str]:
    """Add nodes and wait until the extender has written how much they have."""
    names = add_nodes(plane.api, [packed_node(name, gpus) for name, gpus in sizes.items()])

    def written() -> bool:
        found = plane.api.get("nodes")
        offered = [one["status"]["allocatable"].get(RESOURCE, "0") for one in found]
        return len(offered) == len(sizes) and "0" not in offered

    eventually(written)
    return names


class Witness:
    """Follows all pods from the first to the last, and counts each GPU after every change."""

    def __init__(self, plane: ControlPlane) -> None:
        self._api = plane.api
        self.bound: dict[str, tuple[str, str]] = {}
        self.wrong: list[str] = []
        self.changes = 0
        self.halves = 0

    def __enter__(self) -> Self:
        listed = self._api.call("GET", self._api.path("pods", "v1", NAMESPACE))
        self._version = listed["metadata"]["resourceVersion"]
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._api.create(pod("last", NAMESPACE, 0))
        self._thread.join(120)
        assert not self._thread.is_alive(), "the witness saw no end"
        self._api.delete(self._api.path("pods", "v1", NAMESPACE, "last"), gracePeriodSeconds=0)

    def _watch(self) -> None:
        live: dict[str, dict[str, Any]] = {}
        while not self._ended(live):
            pass  # the API server ends a watch whose reader is behind: go on where it ended

    def _ended(self, live: dict[str, dict[str, Any]]) -> bool:
        """Follow one watch, and tell whether the last pod was seen."""
        path = self._api.path("pods", "v1", NAMESPACE)
        for event in self._api.watch(path, self._version):
            assert event["type"] != "ERROR", event
            found = event["object"]
            self._version = found["metadata"]["resourceVersion"]
            uid = found["metadata"]["uid"]
            if found["metadata"]["name"] == "last":
                return True
            self.changes += 1
            ended = found["status"]["phase"] in {"Succeeded", "Failed"}
            if event["type"] == "DELETED" or ended:
                live.pop(uid, None)
            elif place(found):
                live[uid] = found
                where = place(found)
                assert where is not None
                if self.bound.setdefault(uid, where) != where:
                    self.wrong.append(f"{found['metadata']['name']} moved")
            self._count(live)
        return False

    def _count(self, live: dict[str, dict[str, Any]]) -> None:
        shares: dict[tuple[str, str], list[int]] = defaultdict(list)
        for found in live.values():
            where = place(found)
            assert where is not None
            for gpu in where[1].split(","):
                shares[where[0], gpu].append(min(amount(found), WHOLE))
        self.wrong += [f"{gpu}: {taken}" for gpu, taken in shares.items() if sum(taken) > WHOLE]
        pairs = [taken for taken in shares.values() if taken.count(500) == 2]
        self.halves += len(pairs)
        self.wrong += [f"a third beside two halves: {taken}" for taken in pairs if len(taken) > 2]


def amount(found: dict[str, Any]) -> int:
    """Return a pod's thousandths; the API writes 1000 as 1k."""
    text = found["spec"]["containers"][0]["resources"]["requests"][RESOURCE]
    return int(text.replace("k", "000"))


def storm(plane: ControlPlane, count: int, seconds: float) -> list[str]:
    """Create pods of all sizes, each of which runs for a while, and return their names."""
    chance = random.Random(count)  # noqa: S311 - a storm, no secret
    pods = []
    for at in range(count):
        lasts = {SECONDS: f"{chance.uniform(0, seconds):.2f}"}
        pods.append(pod(f"storm-{at}", NAMESPACE, chance.choice(AMOUNTS), lasts))
    plane.api.create_all(pods)
    return [one["metadata"]["name"] for one in pods]


def all_done(plane: ControlPlane, names: list[str], patience: float = 300) -> None:
    """Wait until each pod has succeeded: none is lost."""

    def done() -> bool:
        found = plane.api.get("pods", "v1", NAMESPACE)
        ended = [one for one in found if one["status"]["phase"] == "Succeeded"]
        return {one["metadata"]["name"] for one in ended} == set(names)

    try:
        eventually(done, patience, pause=0.5)
    except AssertionError:
        found = plane.api.get("pods", "v1", NAMESPACE)
        waits = [one for one in found if one["status"]["phase"] != "Succeeded"]
        said = [(place(one), message(plane, one["metadata"]["name"])) for one in waits]
        raise AssertionError(f"{len(waits)} pods are lost: {said[:5]}") from None


def message(plane: ControlPlane, name: str) -> str:
    """Return why a pod isn't scheduled, as `kubectl describe` shows it."""
    found = plane.api.get("pods", "v1", NAMESPACE, name)
    conditions = found["status"].get("conditions") or []
    return next((c["message"] for c in conditions if c.get("reason") == "Unschedulable"), "")


def told(plane: ControlPlane, name: str, words: str) -> None:
    """Wait until a pod isn't scheduled for this reason: an earlier one may be of fewer nodes."""
    eventually(lambda: message(plane, name), until=lambda told: words in told)


def counted(packing: Packing) -> tuple[float, float]:
    """Return the thousandths that are taken and that are free, as the extender counts them."""
    taken, free = (
        packing.metric(f'bedplate_packing_gpu_milli{{state="{state}"}}')
        for state in ("allocated", "free")
    )
    return taken, free


def test_two_halves_share_a_gpu_and_the_third_waits_with_the_reason(
    control_plane: ControlPlane, packing: Packing, two: list[str]
) -> None:
    api = control_plane.api
    api.create_all(pod(f"half-{at}", NAMESPACE, 500) for at in range(2))
    api.create(pod("most", NAMESPACE, 700))
    path = [api.path("pods", "v1", NAMESPACE, name) for name in ("half-0", "half-1", "most")]

    def placed() -> list[tuple[str, str]]:
        found = [place(api.call("GET", one)) for one in path]
        return [one for one in found if one] if all(found) else []

    places = eventually(placed)
    assert places[0] == places[1] != places[2]

    api.create(pod("waits", NAMESPACE, 310))
    told(control_plane, "waits", "0/1 nodes are available: 1 Insufficient bedplate.io/gpu-milli")
    api.delete(path[0], gracePeriodSeconds=0)
    eventually(lambda: place(api.get("pods", "v1", NAMESPACE, "waits")) == places[1])
    api.create(pod("waits-too", NAMESPACE, 450))  # 490 are free in all, 300 and 190
    told(control_plane, "waits-too", "0/1 nodes are available: 1 no GPU has 450 of 1000 free.")


def test_a_pod_needs_to_name_its_share_alone(
    control_plane: ControlPlane, packing: Packing, two: list[str]
) -> None:
    plain = pod("plain", NAMESPACE, 500)
    del plain["spec"]["schedulerName"]
    made = control_plane.api.create(plain)
    assert made["spec"]["schedulerName"] == "bedplate-packing"
    assert made["spec"]["runtimeClassName"] == RUNTIME_CLASS
    (env,) = made["spec"]["containers"][0]["env"]
    assert env["name"] == "NVIDIA_VISIBLE_DEVICES"
    assert env["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.annotations['bedplate.io/gpus']"
    eventually(
        lambda: place(control_plane.api.get("pods", "v1", NAMESPACE, "plain")) == ("b2", "0")
    )


@pytest.mark.parametrize("reason", REFUSED)
def test_what_would_not_be_counted_is_refused(
    control_plane: ControlPlane, packing: Packing, reason: str
) -> None:
    with pytest.raises(ApiError, match=re.escape(reason)):
        control_plane.api.create(wrong(REFUSED[reason]))


def test_nobody_changes_which_gpus_a_pod_has(
    control_plane: ControlPlane, packing: Packing, two: list[str]
) -> None:
    api = control_plane.api
    api.create(pod("half", NAMESPACE, 500))
    path = api.path("pods", "v1", NAMESPACE, "half")
    eventually(lambda: place(api.call("GET", path)))
    for subresource in ("", "status"):
        with pytest.raises(ApiError, match="is written by the binding alone"):
            api.patch(path, {"metadata": {"annotations": {GPUS: "1"}}}, subresource)


def test_a_pod_that_was_bound_uncounted_shuts_its_node(
    control_plane: ControlPlane, packing: Packing, two: list[str]
) -> None:
    api = control_plane.api
    stranger = pod("stranger", NAMESPACE, 300)
    api.delete(api.path_of(BINDING))  # bound when the guard was not there yet
    stranger["spec"]["nodeName"] = "b2"
    eventually(lambda: created(control_plane, stranger))
    api.apply(BINDING)
    guarded(control_plane)
    eventually(lambda: packing.metric("bedplate_packing_nodes_excluded") == 1)
    api.create(pod("waits", NAMESPACE, 500))
    uncounted = "1 GPUs can't be counted: packing/stranger: bedplate.io/gpu-milli without GPUs"
    told(control_plane, "waits", uncounted)
    api.delete(api.path("pods", "v1", NAMESPACE, "stranger"), gracePeriodSeconds=0)
    eventually(lambda: place(api.get("pods", "v1", NAMESPACE, "waits")))


@pytest.mark.parametrize(
    ("count", "kills"), [(200, 3), pytest.param(2000, 20, marks=pytest.mark.prove)]
)
def test_a_storm_with_the_extender_killed_loses_nothing(
    control_plane: ControlPlane, packing: Packing, nodes: list[str], count: int, kills: int
) -> None:
    with Witness(control_plane) as witness, KubeletDouble(control_plane.api) as kubelets:
        names = storm(control_plane, count, seconds=1.5)
        for _ in range(kills):
            time.sleep(1.5)
            packing.process("extender").kill()
            packing.start_extender()
        all_done(control_plane, names, 300 + count / 4)
    assert witness.wrong == []
    assert witness.halves > 0, "the storm had no two halves on one GPU"
    assert len(witness.bound) == len(names)
    assert sorted(kubelets.started.values()) == sorted(names), "each started once"
    # An extender that has only just started again counts nothing yet, neither taken nor free.
    eventually(lambda: counted(packing), until=lambda found: found == (0, 11 * WHOLE))


def test_what_is_taken_is_rebuilt_from_the_api(
    control_plane: ControlPlane, packing: Packing, nodes: list[str]
) -> None:
    api = control_plane.api
    api.create_all(pod(f"kept-{at}", NAMESPACE, share) for at, share in enumerate([460, 810, 3000]))
    eventually(lambda: all(place(one) for one in api.get("pods", "v1", NAMESPACE)))
    packing.process("extender").kill()
    packing.start_extender()
    packing.leads()
    eventually(lambda: counted(packing), until=lambda found: found == (4270, 11 * WHOLE - 4270))


def test_one_instance_decides_and_the_other_takes_over(
    control_plane: ControlPlane, packing: Packing, nodes: list[str]
) -> None:
    second = Packing(control_plane, "second", packing.token, LEASE)
    second.start()
    eventually(lambda: "lease is held by first_" in second.page("/readyz"))
    question = {"Pod": pod("asked", NAMESPACE, 500), "NodeNames": nodes}
    question["Pod"]["metadata"]["uid"] = "asked"
    assert "not the leader" in ask(second, "filter", question)["Error"]
    assert "Error" not in ask(packing, "filter", question), "the leader answers it"

    api = control_plane.api
    api.create_all(pod(f"before-{at}", NAMESPACE, 500) for at in range(4))
    eventually(lambda: all(place(one) for one in api.get("pods", "v1", NAMESPACE)))
    packing.process("scheduler").kill()
    api.create_all(pod(f"after-{at}", NAMESPACE, 500) for at in range(18))
    eventually(lambda: all(place(one) for one in api.get("pods", "v1", NAMESPACE)))
    eventually(lambda: packing.page("/readyz"), until=lambda said: "held by second_" in said)
    assert "not the leader" in ask(packing, "filter", question)["Error"]
    taken = sorted(place(one) or () for one in api.get("pods", "v1", NAMESPACE))
    assert len(taken) == 22
    assert all(taken.count(gpu) == 2 for gpu in taken), "eleven GPUs, two halves on each"
    second.process("scheduler").stop()  # and gives its Lease up
    second.process("extender").kill()
    packing.process("extender").kill()
    packing.start()
    packing.leads()


def test_a_binding_that_was_not_decided_here_is_refused(
    control_plane: ControlPlane, packing: Packing, nodes: list[str]
) -> None:
    question = {"PodName": "x", "PodNamespace": NAMESPACE, "PodUID": "x", "Node": nodes[0]}
    assert ask(packing, "bind", question) == {
        "Error": f"bedplate packing: nothing is decided for this pod on {nodes[0]}"
    }


def ask(one: Packing, verb: str, question: dict[str, Any]) -> dict[str, Any]:
    """Ask an extender as its scheduler does."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{one.port}/{verb}", json.dumps(question).encode()
    )
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
        return dict(json.load(answer))
