"""The recorder on the real API server and Kueue: its sums are the queue's own."""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import requests
import yaml

from bedplate.accounting import command
from bedplate.accounting.records import seconds
from bedplate.accounting.store import NAMESPACE, Store
from bedplate.accounting.usage import Window, rows
from bedplate.packing.api import Access
from bedplate.packing.api import Api as OwnApi
from bedplate.schedulers.accounting_objects import ARCHIVE, NAME, archive, objects
from tests.schedulers.api import Api, ApiError, eventually
from tests.schedulers.control_plane import ControlPlane
from tests.schedulers.kubelets import KubeletDouble
from tests.schedulers.kueue import API, RunningKueue, running
from tests.schedulers.locks import lock_of, nodes_of
from tests.schedulers.nodes import GPU, add_nodes
from tests.schedulers.workloads import job, pod_spec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.schedulers.processes import Process

UNITS = {"pool-train": {GPU: 1.0}}
TEAMS = {
    "vision": {"gpus": {"pool_train": (4, None)}, "members": ["alice"]},
    "audio": {"gpus": {"pool_train": (4, 4)}, "members": ["bob"]},
}


def lock() -> Any:
    """Return the lock of the tests: two nodes of four GPUs for two teams."""
    return lock_of({"pool_train": [{}, {}]}, TEAMS, gpus=4)


@pytest.fixture(scope="module")
def kueue() -> Iterator[RunningKueue]:
    """Start a control plane with two nodes and the queues of two teams."""
    with (
        tempfile.TemporaryDirectory(prefix="bedplate-usage-") as folder,
        ControlPlane(Path(folder)) as plane,
    ):
        started = RunningKueue(plane, lock())
        add_nodes(plane.api, nodes_of(lock()))
        started.configure(lock())
        for one in objects("", UNITS):
            if one["kind"] != "Deployment":
                plane.api.apply(one)
        (plane.folder / ARCHIVE).write_bytes(archive())
        (plane.folder / "units.json").write_text(json.dumps(UNITS))
        yield started


@pytest.fixture
def api(kueue: RunningKueue) -> Iterator[Api]:
    """Return the client; workloads and records go after the test."""
    with KubeletDouble(kueue.api):
        yield kueue.api
        kueue.clear("vision", "audio")
        if "recorder" in kueue.plane.processes:
            kueue.plane.processes["recorder"].kill()
        for one in Store(OwnApi(access(kueue.plane))).names():
            kueue.api.delete(Api.path("configmaps", "v1", NAMESPACE, one))


def access(plane: ControlPlane) -> Access:
    """Return an administrator's access."""
    certificate, key = plane.admin
    return Access(plane.server, plane.authority.path, None, certificate, key)


def recorder(plane: ControlPlane) -> Process:
    """Start the recorder as its pod would: the archive, with the rights of its account."""
    account = f"system:serviceaccount:{NAMESPACE}:{NAME}"
    certificate, key = plane.authority.issue(account, "system:serviceaccounts")
    command = [sys.executable, "-I", "-S", "-B", str(plane.folder / ARCHIVE)]
    command += [f"--server={plane.server}", f"--ca={plane.authority.path}"]
    command += [f"--certificate={certificate}", f"--key={key}"]
    return plane.add("recorder", [*command, f"--units={plane.folder / 'units.json'}"])


class Truth:
    """What Kueue says, written down apart: each change of a Workload, and the queues' use."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._stopped = threading.Event()
        self.ends: dict[tuple[str, int], int] = {}
        self.gpus: dict[tuple[str, int], tuple[str, int]] = {}
        self.sampled: dict[str, float] = defaultdict(float)

    def __enter__(self) -> Truth:
        listed = self._api.call("GET", self._api.path("workloads", API))
        version = listed["metadata"]["resourceVersion"]
        self._threads = [
            threading.Thread(target=self._watch, args=(version,), daemon=True),
            threading.Thread(target=self._sample, daemon=True),
        ]
        for one in self._threads:
            one.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._threads[1].join()

    def _watch(self, version: str) -> None:
        with contextlib.suppress(requests.RequestException):
            for event in self._api.watch(self._api.path("workloads", API), version, 120):
                self._see(event["object"], deleted=event["type"] == "DELETED")

    def _see(self, one: dict[str, Any], *, deleted: bool) -> None:
        conditions = {of["type"]: of for of in one.get("status", {}).get("conditions", [])}
        admitted = conditions.get("Admitted")
        if admitted is None:
            return
        uid, at = one["metadata"]["uid"], seconds(admitted["lastTransitionTime"])
        assert at is not None
        open_now = [key for key in self.gpus if key[0] == uid and key not in self.ends]
        if admitted["status"] == "False":
            self.ends.update(dict.fromkeys(open_now, at))
            return
        if (uid, at) not in self.gpus:
            (used,) = one["status"]["admission"]["podSetAssignments"]
            count = int(used["resourceUsage"][GPU])
            self.gpus[uid, at] = one["status"]["admission"]["clusterQueue"], count
        if conditions.get("Finished", {}).get("status") == "True":
            self.ends.setdefault((uid, at), seconds(conditions["Finished"]["lastTransitionTime"]))
        elif deleted:
            self.ends.setdefault((uid, at), seconds(one["metadata"]["deletionTimestamp"]))

    def _sample(self) -> None:
        before = time.monotonic()
        while not self._stopped.wait(0.1):
            with contextlib.suppress(ApiError, requests.RequestException):
                queues = self._api.get("clusterqueues", API)
                lasted, before = time.monotonic() - before, time.monotonic()
                for one in queues:
                    for flavor in one["status"].get("flavorsUsage", []):
                        (used,) = flavor["resources"]
                        self.sampled[one["metadata"]["name"]] += int(used["total"]) * lasted

    def seconds(self, team: str) -> int:
        """Return the GPU-seconds of a team; all has ended."""
        return sum(
            count * (self.ends[key] - key[1])
            for key, (queue, count) in self.gpus.items()
            if queue == team
        )

    def rounding(self, team: str) -> int:
        """Return the GPU-seconds by which times in whole seconds may be off."""
        return sum(2 * count for queue, count in self.gpus.values() if queue == team)


def pod(name: str, namespace: str) -> dict[str, Any]:
    """Return a pod that runs until it is deleted."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": {"bedplate.io/user": "mallory"},
        },
        "spec": pod_spec(1),
    }


def test_sums_are_the_queues_own(
    api: Api, kueue: RunningKueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two teams, evictions, deletions, and a recorder that is killed and started again."""
    plane = kueue.plane
    alice, bob = api.acting_as("alice"), api.acting_as("bob")
    store = Store(OwnApi(access(plane), 60.0))
    with Truth(api) as truth:
        first = recorder(plane)
        eventually(lambda: store.load()[1])
        for n in range(2):
            alice.create(job(f"v{n}", "vision", gpus=4))
        eventually(lambda: len(running(api, "vision")) == 2)
        # Audio takes its guarantee: one of vision is stopped, and comes back when audio is done.
        bob.create(job("a0", "audio", gpus=2, pods=2, seconds=2))
        eventually(lambda: running(api, "audio") == ["a0"])
        eventually(lambda: len(running(api, "vision")) == 2)
        first.kill()
        # Without a recorder: one job is deleted, a pod comes and goes, a job ends and is deleted.
        api.delete(api.path("jobs", "batch/v1", "vision", "v0"))
        bob.create(pod("shell", "audio"))
        eventually(lambda: _phase(api, "shell") == "Running")
        bob.create(job("a1", "audio", gpus=1, seconds=1))
        eventually(lambda: _done(api, "a1"))
        api.delete(api.path("pods", "v1", "audio", "shell"))
        api.delete(api.path("jobs", "batch/v1", "audio", "a1"))
        eventually(lambda: len(kueue.workloads("audio")) == 1)
        recorder(plane)
        bob.create(job("a2", "audio", gpus=1, seconds=1))
        eventually(lambda: _done(api, "a2"))
        api.delete(api.path("jobs", "batch/v1", "vision", "v1"))
        eventually(lambda: not kueue.workloads("vision"))
        eventually(lambda: set(truth.ends) == set(truth.gpus))
        ended = eventually(lambda: _all(store, set(truth.gpus)))
    # One of vision was admitted twice.
    assert len(truth.gpus) == 7
    whys = Counter(one.why for one in ended)
    # Whether Kueue says `finished` of a Job that is deleted before it is gone is a matter of luck.
    assert whys["evicted"] == 1
    assert whys["finished"] + whys["deleted"] == 6
    assert whys["finished"] >= 2
    assert all(one.placed for one in ended)
    site = _site(tmp_path, plane)
    monkeypatch.setattr(command, "load_lock", lambda _: lock())
    options = SimpleNamespace(
        site=site, since=None, until=None, by="team", format="json", offline=False
    )
    command.run(options)
    kept = command.path_in(site).read_bytes()
    command.run(options)
    assert command.path_in(site).read_bytes() == kept
    book = command.read(site)
    window = Window(0, int(time.time()))
    sums = {row.name: round(row.gpu_hours * 3600) for row in rows(book, window, "team", ())}
    assert sums == {name: truth.seconds(name) for name in TEAMS}
    for name in TEAMS:
        assert abs(truth.sampled[name] - sums[name]) <= truth.rounding(name), (name, sums)
    users = {row.name: row.workloads for row in rows(book, window, "user", ())}
    # Who made a pod that came and went without a recorder is not known; of a Job it is.
    assert users == {"alice": 2, "bob": 3, "(unknown)": 1}


def test_who_submits_is_written_by_the_api_server(api: Api, kueue: RunningKueue) -> None:
    """Nobody submits in another's name, neither at first nor by a change."""
    alice = api.acting_as("alice")

    def names(path: str) -> set[str]:
        found = api.call("GET", path)
        template = found["spec"].get("template", found["spec"].get("jobTemplate", {}))
        inner = template.get("spec", {}).get("template", {})
        places = [one.get("metadata", {}) for one in (found, template, inner)]
        all_of = [place.get("annotations", {}).get("bedplate.io/user") for place in places]
        return {one for one in all_of if one is not None}

    forged = {"bedplate.io/user": "mallory"}
    made = job("j", "vision", gpus=1, annotations=forged)
    made["metadata"]["annotations"] = forged
    alice.create(made)
    where = api.path("jobs", "batch/v1", "vision", "j")
    assert names(where) == {"alice"}
    alice.patch(where, {"metadata": {"annotations": forged}})
    assert names(where) == {"alice"}
    alice.create(pod("p", "vision"))
    where = api.path("pods", "v1", "vision", "p")
    assert names(where) == {"alice"}
    alice.patch(where, {"metadata": {"annotations": {"bedplate.io/user": None}}})
    assert names(where) == {"alice"}
    spec = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": made["spec"]}}
    metadata = {"name": "c", "namespace": "vision"}
    kind = {"apiVersion": "batch/v1", "kind": "CronJob"}
    alice.create({**kind, "metadata": metadata, "spec": spec})
    where = api.path("cronjobs", "batch/v1", "vision", "c")
    assert names(where) == {"alice"}
    api.delete(where)
    # What a controller makes has the name of its template.
    eventually(lambda: [one for one in api.get("pods", "v1", "vision") if _of_job(one)])
    (one,) = [one for one in api.get("pods", "v1", "vision") if _of_job(one)]
    assert one["metadata"]["annotations"]["bedplate.io/user"] == "alice"


def _of_job(pod: dict[str, Any]) -> bool:
    return "batch.kubernetes.io/job-name" in pod["metadata"].get("labels", {})


def _phase(api: Api, name: str) -> str:
    return str(api.get("pods", "v1", "audio", name)["status"].get("phase"))


def _done(api: Api, name: str) -> bool:
    return bool(api.get("jobs", "batch/v1", "audio", name)["status"].get("completionTime"))


def _all(store: Store, keys: set[tuple[str, int]]) -> list[Any]:
    """Return the records once all of them have ended."""
    found = [one for one in store.everything() if one.end is not None]
    assert {one.key for one in found} <= keys, "a record that the queue does not know"
    return found if {one.key for one in found} == keys else []


def _site(folder: Path, plane: ControlPlane) -> Path:
    (folder / ".bedplate").mkdir()
    content = yaml.safe_dump(plane.as_kubeconfig(plane.admin))
    (folder / ".bedplate" / "kubeconfig").write_text(content)
    return folder
