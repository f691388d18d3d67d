"""GPUs of other nodes, from request to time-out: real API server, scheduler, Kueue and fronts.

The controller is the one of the product, as its own account. Nodes have no hosts and engines are
stand-ins that echo; certificates, connections and time limits are real.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from bedplate.components.frameworks import remote_install as install
from bedplate.components.schedulers.kueue import users
from bedplate.components.schedulers.kueue.tenancy import MEMBER
from bedplate.lock.offers import resources_of
from bedplate.pods.remote import objects, tunnel
from bedplate.pods.remote.claims import API, KIND, PLURAL, USER
from tests.frameworks.fronts import EngineStandIn, FrontKubelets
from tests.schedulers.api import Api, ApiError, eventually
from tests.schedulers.control_plane import ControlPlane
from tests.schedulers.kueue import RunningKueue
from tests.schedulers.locks import lock_of, nodes_of, queues_of
from tests.schedulers.nodes import GPU, add_nodes
from tests.schedulers.workloads import job

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from bedplate.lock import Lock

TEAMS: dict[str, Any] = {
    "vision": {"gpus": {"pool_train": (1, 0)}, "members": ["alice"]},
    "audio": {"gpus": {"pool_train": (1, 0)}, "members": ["bob"]},
}
LOCK = lock_of({"pool_train": [{}]}, TEAMS, gpus=2)
PLACE = "remote-vision"
PATIENCE = 240
#: Seconds in which the one claim that ends by time is opened and used, on a loaded machine too.
LIMIT = 16
EXAMPLE = Path(__file__).parents[2] / "examples/remote-claim.yml"


class Remote:
    """The control plane, its controller, and a claim's client."""

    def __init__(self, plane: ControlPlane, kueue: RunningKueue, kubelets: FrontKubelets) -> None:
        self.plane, self.api, self.kueue, self.kubelets = plane, plane.api, kueue, kubelets
        self.alice = plane.api.acting_as("alice")
        self.bob = plane.api.acting_as("bob")

    def start(self, settings: Path, token: Path, program: Path) -> None:
        self._command = [
            *(sys.executable, "-I", "-B", str(program), "controller", "--pause=0.3"),
            *(f"--server={self.plane.server}", f"--ca={self.plane.authority.path}"),
            *(f"--token={token}", f"--settings={settings}"),
        ]
        self.start_again()

    def start_again(self) -> None:
        self.plane.add("remote-controller", self._command)

    def ask(self, name: str, seconds: int = 300, **spec: Any) -> dict[str, Any]:
        """Ask for a GPU as Alice, and return the claim."""
        return self.alice.create(claim(name, seconds, **spec))

    def claim(self, name: str) -> dict[str, Any]:
        return self.api.get(PLURAL, API, "vision", name)

    def status(self, name: str) -> dict[str, Any]:
        return self.claim(name).get("status", {})

    def reaches(self, name: str, phase: str) -> dict[str, Any]:
        """Wait until a claim has a phase, and return its status."""
        eventually(lambda: self.status(name).get("phase") == phase, PATIENCE)
        return self.status(name)

    def secret(self, name: str, folder: Path) -> Path:
        """Mount a claim's Secret, with the address of the pod that its name leads to."""
        found = self.alice.get("secrets", "v1", "vision", f"remote-{name}")
        folder.mkdir(parents=True)
        for key, content in found["data"].items():
            (folder / key).write_bytes(base64.b64decode(content))
        uid = self.claim(name)["metadata"]["uid"]
        eventually(lambda: uid in self.kubelets.addresses, PATIENCE)
        (folder / "connect").write_text(f"{self.kubelets.addresses[uid]}:{objects.PORT}")
        return folder

    def release(self, name: str) -> None:
        path = self.api.path(PLURAL, API, "vision", name)
        self.alice.patch(path, {"spec": {"release": True}})

    def exists(self, plural: str, version: str, namespace: str, name: str) -> bool:
        return name in [one["metadata"]["name"] for one in self.api.get(plural, version, namespace)]

    def traces(self, uid: str) -> list[str]:
        """Return what of a claim is left on the GPU's side."""
        kinds = (("jobs", "batch/v1"), ("pods", "v1"), ("services", "v1"), ("secrets", "v1"))
        kinds += (("networkpolicies", "networking.k8s.io/v1"),)
        return [
            f"{plural}/{one['metadata']['name']}"
            for plural, version in kinds
            for one in self.api.get(plural, version, PLACE)
            if uid in one["metadata"]["name"]
        ]

    def used(self) -> str:
        """Return what the team's queue counts as used."""
        status = self.api.get("clusterqueues", "kueue.x-k8s.io/v1beta2", None, "vision")["status"]
        return str(status["flavorsReservation"][0]["resources"][0]["total"])


def claim(name: str, seconds: int, namespace: str = "vision", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": API,
        "kind": KIND,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"resource": GPU, "limitSeconds": seconds, **spec},
    }


def echoes(secret: Path, connection: socket.socket | None = None) -> bool:
    """Tell whether the engine answers a client with this Secret."""
    with contextlib.suppress(OSError):
        taken = connection or tunnel.connect(secret)
        taken.settimeout(PATIENCE)
        taken.sendall(b"hello")
        answer = taken.recv(5)
        if connection is None:
            taken.close()
        return answer == b"hello"
    return False


@pytest.fixture(scope="module")
def remote() -> Iterator[Remote]:
    with running(LOCK) as found:
        yield found


@contextlib.contextmanager
def running(lock: Lock) -> Iterator[Remote]:
    """Run a control plane with a lock's teams, their queues, and the controller."""
    with (
        tempfile.TemporaryDirectory(prefix="bedplate-remote-") as folder,
        ControlPlane(Path(folder)) as plane,
        EngineStandIn() as engine,
    ):
        where = Path(folder)
        kueue = RunningKueue(plane, lock)
        add_nodes(plane.api, nodes_of(lock))
        kueue.configure(lock)
        images = ("registry.invalid/engine-stand-in", "registry.invalid/p")
        wanted = install.settings(lock.teams, resources_of(lock), *images)
        for one in [*users.objects(queues_of(lock)), *install.objects(lock.teams, wanted)]:
            if one["kind"] == "ConfigMap":
                (where / "settings.json").write_text(one["data"]["settings.json"])
                (where / "remote.pyz").write_bytes(
                    base64.b64decode(one["binaryData"]["remote.pyz"])
                )
            if one["kind"] != "Deployment":
                eventually(lambda one=one: applied(plane.api, one), PATIENCE, pause=0.3)
        token = where / "remote.token"
        token.write_text(token_of(plane.api))
        with FrontKubelets(plane.api, where, engine.port) as kubelets:
            found = Remote(plane, kueue, kubelets)
            found.start(where / "settings.json", token, where / "remote.pyz")
            eventually(lambda: written(found), PATIENCE, pause=0.5)
            yield found


def applied(api: Api, one: dict[str, Any]) -> bool:
    """Apply, or tell that what it needs is not there yet: a kind, or a webhook."""
    try:
        return bool(api.apply(one))
    except ApiError as error:
        if error.status in {404, 500}:
            return False
        raise


def token_of(api: Api) -> str:
    path = api.path("serviceaccounts", "v1", objects.NAMESPACE, install.NAME)
    ask = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    return str(api.call("POST", f"{path}/token", ask)["status"]["token"])


def written(remote: Remote) -> bool:
    """Tell whether the policies are in force: the API server takes a moment to see them."""
    try:
        probe = remote.api.create(claim("probe", 300, release=True))
    except ApiError:  # the policy does not know the kind yet
        return False
    remote.api.delete(remote.api.path_of(probe))
    return USER in probe["metadata"].get("annotations", {})


@pytest.fixture
def clean(remote: Remote) -> Iterator[Remote]:
    """Claims and workloads go after the test."""
    yield remote
    remote.api.delete(remote.api.path(PLURAL, API, "vision"))
    remote.plane.clear("vision")
    eventually(lambda: not remote.api.get("jobs", "batch/v1", PLACE), PATIENCE)
    remote.kueue.clear(PLACE)


def test_from_request_to_time_out(clean: Remote, tmp_path: Path) -> None:
    """One GPU, held by a job: the claim waits, opens, is used, ends; the next one opens then.

    The controller is killed while the first is open: it ends without it.
    """
    remote = clean
    remote.api.create(job("busy", "vision", gpus=1))
    eventually(lambda: remote.used() == "1", PATIENCE)
    asked = remote.ask("first", LIMIT)
    uid = asked["metadata"]["uid"]
    assert asked["metadata"]["annotations"][USER] == "alice"
    eventually(lambda: "insufficient" in remote.status("first").get("message", ""), PATIENCE)
    # Before admission: the Job is there, held by the queue, and nothing that would open it.
    assert remote.status("first")["phase"] == "Queued"
    assert remote.api.get("jobs", "batch/v1", PLACE, f"claim-{uid}")["spec"]["suspend"] is True
    assert not remote.exists("secrets", "v1", "vision", "remote-first")
    assert not remote.exists("secrets", "v1", PLACE, f"claim-{uid}")
    assert not [trace for trace in remote.traces(uid) if trace.startswith("pods/")]
    remote.plane.clear("vision")
    status = remote.reaches("first", "Open")
    secret = remote.secret("first", tmp_path / "first")
    assert (secret / "address").read_text() == status["address"]
    held = tunnel.connect(secret)
    assert echoes(secret, held)
    (pod,) = remote.api.get("pods", "v1", PLACE)
    assert pod["metadata"]["annotations"][USER] == "alice", "usage is counted to who asked"
    eventually(lambda: remote.status("first").get("bytesIn") == 5, PATIENCE)
    eventually(lambda: remote.used() == "1", PATIENCE)
    remote.plane.processes["remote-controller"].kill()
    held.settimeout(PATIENCE)
    with contextlib.suppress(OSError):
        assert held.recv(1) == b""
    late = time.time() - until(status)
    assert -1 < late < PATIENCE, f"closed {late} s after its time"
    assert not echoes(secret)
    eventually(lambda: remote.used() == "0", PATIENCE)  # the share is back, without the controller
    remote.start_again()
    ended = remote.reaches("first", "Ended")
    assert ended["message"] == "time is up"
    assert (ended["bytesIn"], ended["bytesOut"], ended["connections"]) == (5, 5, 1)
    assert ended["usedSeconds"] == LIMIT
    assert 0 < ended["seconds"] <= LIMIT + 1
    eventually(lambda: not remote.traces(uid), PATIENCE)
    assert not remote.exists("secrets", "v1", "vision", "remote-first")


def until(status: dict[str, Any]) -> float:
    return datetime.datetime.fromisoformat(status["until"]).timestamp()


def test_a_release_closes_and_its_certificate_opens_nothing_again(
    clean: Remote, tmp_path: Path
) -> None:
    """The second claim waits behind the first and opens when that is released."""
    remote = clean
    first = remote.ask("first")["metadata"]["uid"]
    remote.reaches("first", "Open")
    old = remote.secret("first", tmp_path / "first")
    assert echoes(old)
    second = remote.ask("second")["metadata"]["uid"]
    eventually(lambda: "insufficient" in remote.status("second").get("message", ""), PATIENCE)
    remote.release("first")
    assert remote.reaches("first", "Ended")["message"] == "released"
    assert remote.status("first")["bytesIn"] == 5
    eventually(lambda: not remote.traces(first), PATIENCE)
    assert not echoes(old)
    remote.reaches("second", "Open")
    new = remote.secret("second", tmp_path / "second")
    assert echoes(new)
    # The first's certificate at the second's front, and a client without any.
    (old / "connect").write_text((new / "connect").read_text())
    (old / "address").write_text((new / "address").read_text())
    (old / "ca.crt").write_bytes((new / "ca.crt").read_bytes())
    assert not echoes(old)
    path = remote.api.path(PLURAL, API, "vision", "first")
    with pytest.raises(ApiError, match="a released claim stays released"):
        remote.alice.patch(path, {"spec": {"release": False}})
    remote.alice.delete(remote.api.path(PLURAL, API, "vision", "second"))
    eventually(lambda: not remote.traces(second), PATIENCE)
    eventually(lambda: remote.used() == "0", PATIENCE)


def test_what_the_queue_stops_is_closed_and_opens_with_other_certificates(
    clean: Remote, tmp_path: Path
) -> None:
    """A course's end stops its queue: the claim waits again, with what is left of its time."""
    remote = clean
    uid = remote.ask("first", 3600)["metadata"]["uid"]
    before = remote.reaches("first", "Open")
    old = remote.secret("first", tmp_path / "old")
    assert echoes(old)
    eventually(lambda: remote.status("first").get("bytesIn") == 5, PATIENCE)
    queue = remote.api.path("clusterqueues", "kueue.x-k8s.io/v1beta2", None, "vision")
    remote.api.patch(queue, {"spec": {"stopPolicy": "HoldAndDrain"}})
    try:
        waiting = remote.reaches("first", "Queued")
        assert "until" not in waiting
        assert not remote.exists("secrets", "v1", "vision", "remote-first")
        eventually(lambda: uid not in remote.kubelets.addresses, PATIENCE)
        assert not echoes(old)
    finally:
        remote.api.patch(queue, {"spec": {"stopPolicy": "None"}})
    again = remote.reaches("first", "Open")
    new = remote.secret("first", tmp_path / "new")
    assert echoes(new)
    for name in ("ca.crt", "connect"):
        (old / name).write_bytes((new / name).read_bytes())
    assert not echoes(old)
    eventually(lambda: remote.status("first").get("bytesIn") == 10, PATIENCE)
    left = until(again) - datetime.datetime.fromisoformat(again["since"]).timestamp()
    assert again["usedSeconds"] > 0
    assert abs(left - (3600 - again["usedSeconds"])) <= 1
    assert until(before) > until(again) - 60, "the pause counts for nothing"


def test_who_is_not_asked_to(clean: Remote) -> None:
    """Members ask in their own namespace; what is on the GPU's side is no member's."""
    remote = clean
    remote.api.create(job("busy", "vision", gpus=1))
    eventually(lambda: remote.used() == "1", PATIENCE)
    uid = remote.ask("first")["metadata"]["uid"]
    eventually(lambda: "insufficient" in remote.status("first").get("message", ""), PATIENCE)
    mine = remote.api.path(PLURAL, API, "vision", "first")
    held = remote.api.path("jobs", "batch/v1", PLACE, f"claim-{uid}")
    for who, do in {
        "another team's member": lambda: remote.bob.create(claim("mine", 60)),
        "another team's Secret": lambda: remote.bob.get("secrets", "v1", "vision"),
        "another team's release": lambda: remote.bob.patch(mine, {"spec": {"release": True}}),
        "the front's Secret": lambda: remote.alice.get("secrets", "v1", PLACE),
        "the Job's start": lambda: remote.alice.patch(held, {"spec": {"suspend": False}}),
        "the controller's settings": lambda: remote.alice.get("secrets", "v1", objects.NAMESPACE),
        "the record": lambda: remote.alice.patch(mine, {"status": {"phase": "Open"}}, "status"),
        "more time": lambda: remote.alice.patch(mine, {"spec": {"limitSeconds": 9999}}),
        "another's name": lambda: remote.alice.patch(
            mine, {"metadata": {"annotations": {USER: "bob"}}}
        ),
        "a longer time than any": lambda: remote.ask("long", 10**7),
        "nothing": lambda: remote.ask("none", count=0),
        "no resource": lambda: remote.ask("bare", resource="gpu"),
    }.items():
        with pytest.raises(ApiError) as refused:
            do()
        assert refused.value.status in {403, 422}, (who, refused.value)
    forged = claim("forged", 60)
    forged["metadata"]["annotations"] = {USER: "root"}
    assert remote.alice.create(forged)["metadata"]["annotations"][USER] == "alice"


def test_what_the_queue_does_not_count_is_refused(clean: Remote) -> None:
    """The example's GPU is admitted; shares by another name are not those of this cluster."""
    example = yaml.safe_load(EXAMPLE.read_text())
    example["metadata"]["namespace"] = "vision"
    clean.alice.create(example)
    clean.reaches("train", "Open")
    clean.alice.delete(clean.api.path(PLURAL, API, "vision", "train"))
    example["spec"]["resource"] = "nvidia.com/gpu.shared"
    clean.alice.create(example)
    assert clean.reaches("train", "Ended")["message"] == (
        "the queue does not count this resource — spec.resource — got nvidia.com/gpu.shared / "
        "allowed nvidia.com/gpu — make another claim"
    )


def test_a_job_started_by_hand_opens_no_front(clean: Remote) -> None:
    """The defences off, one after the other: rights, then policy; certificates are the last."""
    remote = clean
    remote.api.create(job("busy", "vision", gpus=1))
    eventually(lambda: remote.used() == "1", PATIENCE)
    uid = remote.ask("first")["metadata"]["uid"]
    eventually(lambda: "insufficient" in remote.status("first").get("message", ""), PATIENCE)
    held = remote.api.path("jobs", "batch/v1", PLACE, f"claim-{uid}")
    start = {"spec": {"suspend": False}}
    entered = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "entered", "namespace": PLACE},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": MEMBER,
        },
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}],
    }
    remote.api.apply(entered)
    guard = remote.api.path(
        "validatingadmissionpolicybindings",
        "admissionregistration.k8s.io/v1",
        None,
        "bedplate-queue-starts-jobs",
    )
    binding = remote.api.call("GET", guard)
    try:
        with pytest.raises(ApiError, match="is not started by hand"):
            remote.alice.patch(held, start)
        remote.api.delete(guard)
        eventually(lambda: started(remote.alice, held, start), PATIENCE)
        # Kueue suspends it again. In between there was no front: nobody signed anything for it.
        eventually(lambda: remote.api.call("GET", held)["spec"]["suspend"], PATIENCE)
        assert remote.status("first")["phase"] == "Queued"
        assert uid not in remote.kubelets.addresses
        assert not remote.exists("secrets", "v1", PLACE, f"claim-{uid}")
    finally:
        remote.api.delete(remote.api.path_of(entered))
        for field in ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"):
            binding["metadata"].pop(field, None)
        remote.api.apply(binding)


def started(api: Api, path: str, change: dict[str, Any]) -> bool:
    try:
        return bool(api.patch(path, change))
    except ApiError:
        return False
