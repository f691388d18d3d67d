"""The recorder on the real API server and Kueue: its sums, idle hours, rights, and idle shares.

What a student or a teacher sees of idle notebooks is in test_hub.py; pure functions of records are
in tests/unit.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import sys
import time
import urllib.parse
from collections import Counter
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from bedplate.accounting import command, ending
from bedplate.accounting.records import seconds
from bedplate.accounting.store import NAMESPACE, Store
from bedplate.accounting.units import units
from bedplate.accounting.usage import Window, path_in, rows
from bedplate.catalogue import load_catalogue
from bedplate.cli.main import main
from bedplate.components.schedulers.accounting_objects import ARCHIVE, NAME, archive, objects
from bedplate.lock.model import Gpu, Quota, Team
from bedplate.pods.api import Access
from bedplate.pods.api import Api as OwnApi
from bedplate.pods.hub import magic, node_use
from bedplate.pods.hub.idle import ENDED, ENDS
from bedplate.pods.hub.shares import Share
from tests.frameworks.programs import Programs
from tests.frameworks.shares import serving
from tests.frameworks.truth import Truth
from tests.schedulers.api import Api, eventually
from tests.schedulers.kubelets import JOB, KubeletDouble
from tests.schedulers.kueue import RunningKueue, holds, kueue_of, next_second, running, workload_of
from tests.schedulers.locks import lock_of
from tests.schedulers.nodes import GPU
from tests.schedulers.processes import Process, free_port
from tests.schedulers.workloads import job, pod_spec
from tests.unit import test_gpu_simulation as simulated
from tests.unit.test_gpu_simulation import LIBRARIES, install_driver, modprobe, paths
from tests.unit.test_gpu_simulation import kernel as gpu_kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.schedulers.control_plane import ControlPlane

host = simulated.host
SHARED = "nvidia.com/gpu.shared"
#: Who held a GPU from one of the API's seconds to the next is counted; for less, not.
SECOND = 1.1
UNITS = {"pool-train": {GPU: 1.0}, "pool-class": {SHARED: 0.25}}
#: Seconds until what is idle ends.
IDLE = {"intro": {"shares": 6.0}, "audio": {"shares": 6.0, "jobs": 6.0}}
TEAMS = {
    "vision": {"gpus": {"pool_train": (4, None)}, "members": ["alice"]},
    "audio": {"gpus": {"pool_train": (4, 4)}, "members": ["bob"]},
}


def lock() -> Any:
    """Return the lock of the tests: eight GPUs of two teams, and one in four shares of a class."""
    found = lock_of({"pool_train": [{}, {}], "pool_class": [{}]}, TEAMS, gpus=4)
    pool = found.pools["pool_class"]
    shared = {
        "gpu": [Gpu(model="v100-sxm2-32gb", pci=["10de:1db5"], count=1)],
        "sharing": pool.sharing.model_copy(update={"mode": "time-slicing", "replicas": 4}),
        "expects": pool.expects.model_copy(update={"resource": SHARED}),
    }
    quota = {"pool_class": {SHARED: Quota(guaranteed=2, borrow=0)}}
    intro = Team(namespaces=["intro"], members=["alice", "bob"], gpus=quota)
    cluster = found.cluster.model_copy(update={"teams": {**found.cluster.teams, "intro": intro}})
    pools = {**found.pools, "pool_class": pool.model_copy(update=shared)}
    return found.model_copy(update={"cluster": cluster, "pools": pools})


@pytest.fixture(scope="module")
def kueue() -> Iterator[RunningKueue]:
    """Start a control plane with two nodes and the queues of two teams."""
    with kueue_of(lock(), places=True) as started:
        plane = started.plane
        for one in objects("", UNITS, IDLE):
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
        kueue.clear("vision", "audio", "intro")
        if "recorder" in kueue.plane.processes:
            kueue.plane.processes["recorder"].kill()
        for one in Store(OwnApi(access(kueue.plane))).names():
            kueue.api.delete(Api.path("configmaps", "v1", NAMESPACE, one))


def access(plane: ControlPlane) -> Access:
    """Return an administrator's access."""
    certificate, key = plane.admin
    return Access(plane.server, plane.authority.path, None, certificate, key)


def recorder(plane: ControlPlane, *more: str) -> Process:
    """Start the recorder as its pod would: the archive, with the rights of its account."""
    account = f"system:serviceaccount:{NAMESPACE}:{NAME}"
    certificate, key = plane.authority.issue(account, "system:serviceaccounts")
    command = [sys.executable, "-I", "-S", "-B", str(plane.folder / ARCHIVE)]
    command += [f"--server={plane.server}", f"--ca={plane.authority.path}"]
    command += [f"--certificate={certificate}", f"--key={key}"]
    return plane.add("recorder", [*command, f"--units={plane.folder / 'units.json'}", *more])


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


def deployment(name: str, namespace: str) -> dict[str, Any]:
    """Return a Deployment of one pod with a GPU."""
    spec = pod_spec(1) | {"restartPolicy": "Always"}
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
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
        time.sleep(SECOND)
        # Audio takes its guarantee: one of vision is stopped, and comes back when audio is done.
        bob.create(job("a0", "audio", gpus=2, pods=2, seconds=2))
        # To be admitted it has stopped one of vision, which runs again only once it is done.
        eventually(lambda: holds(workload_of(kueue, "audio", "a0"), "Admitted"))
        eventually(lambda: len(running(api, "vision")) == 2)
        time.sleep(SECOND)
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
        site=site, since=None, until=None, by="team", form="json", offline=False
    )
    command.run(options)
    kept = path_in(site).read_bytes()
    command.run(options)
    assert path_in(site).read_bytes() == kept
    book = command.read(site)
    window = Window(0, int(time.time()))
    sums = {row.name: round(row.gpu_hours * 3600) for row in rows(book, window, "team", ())}
    assert sums == {name: truth.seconds(name) for name in TEAMS}
    for name in TEAMS:
        assert abs(truth.sampled[name] - sums[name]) <= truth.rounding(name), (name, sums)
    users = {row.name: row.workloads for row in rows(book, window, "user", ())}
    # Who made a pod that came and went without a recorder is not known; of a Job it is.
    assert users == {"alice": 2, "bob": 3, "(unknown)": 1}


@dataclass
class Reader:
    """A reader over simulated silicon, of all nodes that say so, and the programs of pods."""

    plane: ControlPlane
    programs: Programs
    port: int

    def of(self, node: str) -> None:
        """Make it the reader of a node."""
        labels = {"app.kubernetes.io/name": node_use.USE}
        meta = {"name": f"reader-{node}", "namespace": node_use.USE, "labels": labels}
        spec = {**pod_spec(0), "nodeName": node}
        self.plane.api.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
        path = self.plane.api.path("pods", "v1", node_use.USE, meta["name"])
        status = {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}
        self.plane.api.patch(path, {"status": status}, "status")

    def train(self, uid: str) -> int:
        """Start a program of a pod that uses its GPU."""
        found = self.programs.start(uid, "sleep 10000 > /dev/null")
        paths.write(paths.PLANTED, f"process 0 {found} 512 40\n")
        gpu_kernel.show()
        return found


@pytest.fixture
def reader(
    kueue: RunningKueue, tmp_path: Path, host: Callable[[str, int], Path]
) -> Iterator[Reader]:
    """Start a reader; its pods go after the test."""
    plane, programs, port = kueue.plane, Programs(tmp_path / "of-pods"), free_port()
    root = host("t4-16gb", 1)
    install_driver(root)
    assert modprobe.main(["nvidia"]) == 0
    (nvml,) = (root / LIBRARIES).glob("libnvidia-ml.so.*")
    programs.folder.mkdir()
    where = ["--address", "127.0.0.1", "--port", str(port), "--proc", str(programs.folder)]
    command_line = [sys.executable, node_use.__file__, *where, "--nvml", str(nvml)]
    plane.namespace(node_use.USE)
    running = Process(command_line, plane.folder / "reader.log", dict(os.environ))
    running.start()
    yield Reader(plane, programs, port)
    running.stop()
    programs.end()
    for pod in plane.api.get("pods", "v1", node_use.USE):
        plane.api.delete(plane.api.path("pods", "v1", node_use.USE, pod["metadata"]["name"]))


def test_what_was_allocated_and_idle_is_shown_by_person(
    api: Api,
    kueue: RunningKueue,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
    reader: Reader,
) -> None:
    """Alice's job trains, Bob's sleeps; the third is on a node that has no reader."""
    plane = kueue.plane
    site = _site(tmp_path, plane)
    monkeypatch.setattr(command, "load_lock", lambda _: lock())
    store = Store(OwnApi(access(plane), 60.0))
    for name, who, team in (("trains", "alice", "vision"), ("sleeps", "bob", "audio")):
        api.acting_as(who).create(job(name, team, gpus=1))
    api.acting_as("bob").create(job("away", "intro", gpus=1, resource=SHARED))
    of: dict[str, Any] = {}
    for team in ("vision", "audio", "intro"):
        (one,) = eventually(lambda team=team: api.get("pods", "v1", team))
        of[one["metadata"]["labels"]["batch.kubernetes.io/job-name"]] = eventually(
            lambda one=one: api.get("pods", "v1", *_place(one)),
            until=lambda now: now["status"].get("phase") == "Running",
        )
    uids = {name: one["metadata"]["uid"] for name, one in of.items()}
    reader.train(uids["trains"])
    reader.programs.start(uids["sleeps"], "sleep 10000")
    for node in {of[name]["spec"]["nodeName"] for name in ("trains", "sleeps")}:
        reader.of(node)
    recorder(plane, f"--use-port={reader.port}", "--use-every=1")

    def kept() -> dict[str, Any]:
        return {one.workload: one for one in store.everything()}

    found = eventually(
        kept,
        until=lambda now: all(
            now.get(f"Job/{name}") and now[f"Job/{name}"].measured > 3
            for name in ("trains", "sleeps")
        ),
    )
    trains, sleeps, away = (found[f"Job/{name}"] for name in ("trains", "sleeps", "away"))
    assert trains.idle < trains.measured / 2
    assert sleeps.idle == sleeps.measured > 3
    assert (away.measured, away.no_figure.endswith(": no reader runs there")) == (0, True)
    assert main(["usage", str(site), "--by", "user"]) == 0
    told = capsys.readouterr().out
    assert re.search(r"Allocated and idle: \d\.\d\d \(\d+% of \d\.\d\d with a figure\)", told)
    assert f"No figure: {away.no_figure}." in told
    assert main(["usage", str(site), "--by", "user", "--format", "json"]) == 0
    rows_of = {one["name"]: one for one in json.loads(capsys.readouterr().out)["rows"]}
    assert rows_of["bob"]["idle_gpu_hours"] > rows_of["alice"]["idle_gpu_hours"] >= 0


def test_what_the_history_no_longer_has_is_lost_and_says_so(api: Api, kueue: RunningKueue) -> None:
    """The recorder was away too long for the watch's history: what is gone was last seen then."""
    plane, bob = kueue.plane, api.acting_as("bob")
    store = Store(OwnApi(access(plane), 60.0))
    first = recorder(plane)
    for name in ("gone", "stays"):
        bob.create(job(name, "audio", gpus=1))
    eventually(lambda: len([one for one in store.everything() if one.end is None]) == 2)
    first.kill()
    where = api.path("configmaps", "v1", NAMESPACE, "open")
    seen = seconds(api.call("GET", where)["data"]["seen"])
    api.patch(where, {"data": {"resourceVersion": "1"}})
    api.delete(api.path("jobs", "batch/v1", "audio", "gone"))
    eventually(lambda: len(kueue.workloads("audio")) == 1)
    recorder(plane)
    (lost,) = eventually(lambda: [one for one in store.everything() if one.end is not None])
    assert (lost.workload, lost.why, lost.user) == ("Job/gone", "lost", "bob")
    assert seen is not None
    assert lost.end == max(seen, lost.start)
    (stays,) = [one for one in store.everything() if one.end is None]
    assert stays.workload == "Job/stays"


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
    student = "hub.jupyter.org/username"
    alice.patch(where, {"metadata": {"annotations": {"bedplate.io/user": None, student: "ada"}}})
    assert names(where) == {"alice"}
    alice.patch(where, {"metadata": {"annotations": {student: "eve"}}})
    assert api.call("GET", where)["metadata"]["annotations"][student] == "ada", "once named, kept"
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


def _place(one: dict[str, Any]) -> tuple[str, str]:
    return one["metadata"]["namespace"], one["metadata"]["name"]


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
    (folder / ".bedplate").mkdir(exist_ok=True)
    content = yaml.safe_dump(plane.as_kubeconfig(plane.admin))
    (folder / ".bedplate" / "kubeconfig").write_text(content)
    return folder


@pytest.fixture
def share(kueue: RunningKueue, tmp_path: Path, capsys: Any) -> Any:
    """Return `bedplate share` as run by somebody in the class: exit status, output, errors."""

    def run(user: str, what: str, *arguments: str) -> tuple[int, str, str]:
        path = tmp_path / user
        certificate = kueue.plane.authority.issue(user)
        path.write_text(yaml.safe_dump(kueue.plane.as_kubeconfig(certificate)))
        status = main(["share", what, f"--kubeconfig={path}", "-n", "intro", *arguments])
        told = capsys.readouterr()
        return status, told.out, told.err

    return run


def listed(share: Any, user: str) -> str:
    """Return a line for each share, with who asked for it and for how much."""
    lines = ""
    for one in json.loads(share(user, "list", "-o", "json")[1] or "[]"):
        if places := one.pop("places"):
            one["place"] = (one["place"], places)
        lines += f"{Share(**one)}  [{one['asked']}, {one['user']}]\n"
    return lines


def test_a_share_waits_runs_and_is_released(
    api: Api, kueue: RunningKueue, share: Any, tmp_path: Path
) -> None:
    """Two have room; the third and fourth see their place, which moves when one releases."""
    made = ["--for=1h", "--image=registry.k8s.io/pause:3.10.2"]
    status, told, _ = share("alice", "request", "0.25", *made, "--name=first")
    assert status == 0
    assert "first: 1 nvidia.com/gpu.shared, 0.25 of a GPU, 8Gi, for 1h" in told
    assert re.search(r"first: running, until 20\d\d-", told)
    (tmp_path / "key.pub").write_text("ssh-ed25519 " + "A" * 68 + " bob")
    login = f"--ssh-key={tmp_path / 'key.pub'}"
    status, told, _ = share("bob", "request", "4Gi", *made, "--name=second", login)
    assert status == 0
    assert "ssh -p 2222 share@localhost" in told
    for name in ("third", "fourth"):
        assert share("bob", "request", "0.1", *made, "--name", name, "--no-wait")[0] == 0
        eventually(lambda name=name: name in share("bob", "list")[1])
        next_second()  # who came in the same second is ordered by name
    eventually(lambda: "fourth: waiting, place 2 of 2" in listed(share, "alice"))
    table = share("alice", "list")[1]
    assert re.search(r"^third +waiting +1 of 2 ", table, re.MULTILINE)
    # Who has it is what the API server wrote.
    assert re.search(r"^first +running +- +20\S+Z +0\.25 +alice", table, re.MULTILINE)
    assert share("alice", "release", "first") == (0, "first: released\n", "")
    eventually(lambda: "third: running" in listed(share, "bob"))
    eventually(lambda: "fourth: waiting, place 1 of 1" in listed(share, "bob"))
    assert share("bob", "release", "second", "third", "fourth")[0] == 0
    eventually(lambda: share("bob", "list")[1] == "No shares.\n")


def test_an_idle_share_is_warned_of_then_ended_and_another_takes_its_place(
    api: Api, kueue: RunningKueue, share: Any, reader: Reader
) -> None:
    """Alice's works and goes on; Bob's does nothing for six seconds, and Bob waits for another."""
    made = ["--for=1h", "--image=registry.k8s.io/pause:3.10.2"]
    for user, name in (("alice", "works"), ("bob", "sleeps")):
        assert share(user, "request", "0.25", *made, "--name", name)[0] == 0
    pods = {one["metadata"]["labels"][JOB]: one for one in api.get("pods", "v1", "intro")}
    reader.train(pods["works"]["metadata"]["uid"])
    reader.programs.start(pods["sleeps"]["metadata"]["uid"], "sleep 10000")
    reader.of(pods["works"]["spec"]["nodeName"])
    assert share("bob", "request", "0.25", *made, "--name=next", "--no-wait")[0] == 0
    limits = kueue.plane.folder / "idle.json"
    limits.write_text(json.dumps(IDLE))
    recorder(kueue.plane, f"--use-port={reader.port}", "--use-every=1", f"--idle={limits}")

    told = eventually(
        lambda: listed(share, "bob"),
        until=lambda said: "sleeps: running" in said and "idle" in said,
    )
    assert re.search(
        r"sleeps: running, until \S+, idle, and ends at 20\S+Z unless it is used", told
    )
    assert "next: waiting, place 1 of 1" in told
    eventually(lambda: "sleeps: ended, it was idle for 6 seconds" in listed(share, "bob"))
    eventually(lambda: "next: running" in listed(share, "bob"))
    assert re.search(r"works: running, until \S+  \[", listed(share, "bob"))
    pods_now = api.get("pods", "v1", "intro")
    assert "sleeps" not in {one["metadata"]["labels"][JOB] for one in pods_now}


def test_an_idle_job_of_a_team_is_warned_of_then_stopped_and_the_next_runs(
    api: Api, kueue: RunningKueue, reader: Reader
) -> None:
    """Of eight GPUs a Job works on three; others, a pod and a Deployment sleep, one waits for four.

    The pod fails and keeps its log. The Deployment would make another pod: it is scaled to none.
    """
    bob = api.acting_as("bob")
    for name in ("works", "sleeps"):
        bob.create(job(name, "audio", gpus=3))
    bob.create(pod("alone", "audio"))
    bob.create(deployment("web", "audio"))

    def pods_now() -> dict[str, Any]:
        found = [one for one in api.get("pods", "v1", "audio") if one["spec"].get("nodeName")]
        found = [one for one in found if one["status"]["phase"] == "Running"]
        return {
            meta.get("labels", {}).get(JOB) or meta["name"].partition("-")[0]: one
            for one in found
            for meta in [one["metadata"]]
        }

    pods = eventually(pods_now, until=lambda found: len(found) == 4)
    reader.train(pods["works"]["metadata"]["uid"])
    for name in ("sleeps", "alone", "web"):
        reader.programs.start(pods[name]["metadata"]["uid"], "sleep 10000")
    for node in {one["spec"]["nodeName"] for one in pods.values()}:
        reader.of(node)
    bob.create(job("next", "audio", gpus=4))
    limits = kueue.plane.folder / "idle.json"
    limits.write_text(json.dumps(IDLE))
    recorder(kueue.plane, f"--use-port={reader.port}", "--use-every=1", f"--idle={limits}")

    def notes(name: str) -> dict[str, str]:
        meta = bob.get("jobs", "batch/v1", "audio", name)["metadata"]
        return {**meta.get("annotations", {}), **meta.get("labels", {})}

    warned = eventually(lambda: notes("sleeps"), until=lambda has: ENDS in has)
    eventually(lambda: notes("sleeps").get(ENDED))
    assert warned[ending.LABEL] == "warned"
    assert notes("sleeps")[ENDED].startswith("it was idle for 6 seconds; to run it again, ")
    eventually(lambda: set(pods_now()) == {"works", "next"})
    said = [
        one["message"]
        for one in bob.get("events", "v1", "audio")
        if one["reason"] == "Idle" and one["involvedObject"]["name"] == "sleeps"
    ]
    assert len(said) == 2
    assert f"it ends at {warned[ENDS]} unless it is used" in said[0] + said[1]
    assert bob.get("jobs", "batch/v1", "audio", "sleeps")["spec"]["suspend"]
    stopped = workload_of(kueue, "audio", "sleeps")
    assert not stopped["spec"]["active"]
    assert holds(stopped, "Evicted")
    assert ENDS not in notes("works")
    again = "it was idle for 6 seconds; to run it again, "
    alone = bob.get("pods", "v1", "audio", "alone")
    assert alone["status"]["phase"] == "Failed"
    assert alone["metadata"]["annotations"][ENDED] == f"{again}delete it and submit it again"
    web = bob.get("deployments", "apps/v1", "audio", "web")
    assert web["spec"]["replicas"] == 0
    assert web["metadata"]["annotations"][ENDED] == f"{again}scale it up"


def test_a_share_ends_by_itself_and_is_counted(
    api: Api, kueue: RunningKueue, share: Any, tmp_path: Path
) -> None:
    """Three seconds, kept by Kubernetes' own controller; a quarter of a GPU is counted."""
    image = "--image=registry.k8s.io/pause:3.10.2"
    # On a busy machine its end may come before it was seen to run: 2.
    assert share("alice", "request", "0.25", "--for=3s", image, "--name=brief")[0] in (0, 2)
    eventually(lambda: "brief: ended, its time was up" in listed(share, "alice"))
    eventually(lambda: all(holds(one, "Finished") for one in kueue.workloads("intro")))
    book = command.read(tmp_path)
    command.merge(
        OwnApi(access(kueue.plane), 60.0), book, units(lock(), load_catalogue()), int(time.time())
    )
    (one,) = book
    assert (one.user, one.queue, one.why) == ("alice", "intro", "finished")
    assert [(of.resource, of.count, of.gpus) for of in one.amounts] == [(SHARED, 1, 0.25)]
    assert 3 <= (one.end or 0) - one.start < 300
    assert share("alice", "release", "brief")[0] == 0


@pytest.mark.parametrize(
    ("user", "arguments", "said"),
    [
        (
            "alice",
            ["request", "0.5", "--image=i"],
            "no such share in this queue — namespace intro — got 0.5 / allowed 0.25 (8Gi) — ask",
        ),
        (
            "alice",
            ["request", "9Gi", "--image=i"],
            "no such share in this queue — namespace intro — got 9Gi / allowed 0.25 (8Gi)",
        ),
        (
            "alice",
            ["request", "half", "--image=i"],
            "no share of a GPU — namespace intro — got half / allowed a part (0.1), whole GPUs",
        ),
        (
            "alice",
            ["request", "0.1", "--image=i", "--for=8d"],
            "no time for a share — namespace intro — got 8d / allowed 1s to 7d, as 30m or 1h30m",
        ),
        ("alice", ["release", "other"], "no such share — namespace intro — got other / allowed"),
        (
            "eve",
            ["list"],
            'the API refuses — namespace intro — got jobs.batch is forbidden: User "',
        ),
    ],
)
def test_what_cannot_be_had_is_refused(
    api: Api, share: Any, user: str, arguments: list[str], said: str
) -> None:
    status, _, told = share(user, *arguments)
    assert status == 3
    assert said in told


@pytest.fixture
def service(kueue: RunningKueue) -> Iterator[str]:
    """Return the address of the service of shares."""
    with serving(kueue.plane) as address:
        yield address


def test_a_notebook_has_a_share_by_the_magic(
    api: Api,
    kueue: RunningKueue,
    service: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
) -> None:
    """The student's own is seen and released; another student's is neither."""
    monkeypatch.setenv(magic.ADDRESS, service)
    monkeypatch.setattr(magic, "PAUSE", 0.2)

    def does(token: str, line: str) -> str:
        monkeypatch.setenv(magic.TOKEN, token)
        magic.share(line)
        return str(capsys.readouterr().out)

    told = does("alice-token", "request 0.1 1h")
    assert re.search(r"(share-\w+): 1 nvidia.com/gpu.shared, 0.25 of a GPU, 8Gi, for 1h", told)
    assert "running, until 20" in told
    name = told.partition(":")[0]
    assert f"one share more than intro gives — got {name} already / allowed 1 for each" in does(
        "alice-token", "request 0.1 1h"
    )
    assert does("bob-token", "list") == "No shares.\n"
    assert "no such share of yours — got" in does("bob-token", f"release {name}")
    assert name in does("alice-token", "list")
    # It is the student's in the accounts too, though the hub made it.
    book = command.read(tmp_path)
    command.merge(
        OwnApi(access(kueue.plane), 60.0), book, units(lock(), load_catalogue()), int(time.time())
    )
    assert [(one.user, one.queue) for one in book] == [("ada", "intro")]
    assert does("alice-token", f"release {name}") == f"{name}: released\n"
    eventually(lambda: does("alice-token", "list") == "No shares.\n")
    assert "no share of a GPU — got half" in does("alice-token", "request half")
    assert does("alice-token", "ask") == magic.USAGE + "\n"


@pytest.mark.parametrize(
    ("token", "course", "status", "said"),
    [
        ("eve-token", "intro", 403, "intro is no course of eve"),
        ("bob-token", "other", 403, "other is no course of bob"),
        ("bob-token", "kube-system", 403, "kube-system is no course of bob"),
        ("none", "intro", 403, "the hub does not know the token"),
        ("weak-token", "intro", 403, "the token is not of a user with the scope access:services!"),
        ("", "intro", 401, "send a token of the hub"),
        ("bob-token", "intro/../other/x", 404, "no such address"),
    ],
)
def test_the_service_answers_only_whom_it_should(
    api: Api, service: str, token: str, course: str, status: int, said: str
) -> None:
    address = urllib.parse.urlsplit(service)
    connection = http.client.HTTPConnection(address.netloc, timeout=120)
    headers = {"Authorization": f"token {token}"} if token else {}
    connection.request("GET", f"/services/shares/{course}", headers=headers)
    answer = connection.getresponse()
    assert (answer.status, said in json.load(answer)["error"]) == (status, True)
    connection.close()
