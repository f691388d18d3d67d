"""What one member of a team has at once, by the recorder on the real API server and Kueue."""

from __future__ import annotations

import json
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.accounting.records import USER
from bedplate.components.schedulers.accounting_objects import ARCHIVE, archive, objects
from bedplate.components.schedulers.kueue import person_limits
from bedplate.pods.hub.shares import HELD
from tests.frameworks.test_usage import pod, recorder
from tests.schedulers.api import Api, ApiError, eventually
from tests.schedulers.kubelets import KubeletDouble
from tests.schedulers.kueue import RunningKueue, holds, kueue_of, next_second, running
from tests.schedulers.locks import lock_of
from tests.schedulers.nodes import GPU
from tests.schedulers.workloads import job

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.schedulers.processes import Process

TEAM, EACH = "lab", 2
TEAMS = {
    TEAM: {
        "gpus": {"pool_train": (8, 0)},
        "members": ["alice", "bob"],
        "per_user": {"gpus": EACH},
    },
    "free": {"gpus": {"pool_train": (0, 0)}, "members": ["bob"]},
    "full": {
        "gpus": {"pool_train": (1, 0)},
        "members": ["alice", "bob"],
        "per_user": {"gpus": EACH},
    },
    # Of these seconds a member has used all after some fifteen.
    "week": {
        "gpus": {"pool_train": (1, 0)},
        "members": ["alice", "bob"],
        "per_user": {"hours": 15 / 3600},
    },
}
STORM = 40
JOBSETS = "jobset.x-k8s.io/v1alpha2"
UNITS = {"pool-train": {GPU: 1.0}}


def job_set(name: str, namespace: str) -> dict[str, Any]:
    """Return a set of one job of one GPU."""
    part = {"name": "workers", "replicas": 1, "template": {"spec": job("w", namespace)["spec"]}}
    meta = {"name": name, "namespace": namespace}
    spec = {"replicatedJobs": [part]}
    return {"apiVersion": JOBSETS, "kind": "JobSet", "metadata": meta, "spec": spec}


@pytest.fixture(scope="module")
def kueue() -> Iterator[RunningKueue]:
    """Start a control plane with eight GPUs, and the queue of a team that has a limit."""
    lock = lock_of({"pool_train": [{}, {}]}, TEAMS, gpus=4, addons=["kueue", "jobset"])
    with kueue_of(lock, jobsets=True) as started:
        limits = person_limits.by_namespace(lock.teams)
        for one in objects("", {}, None, limits):
            if one["kind"] != "Deployment":
                started.api.apply(one)
        (started.plane.folder / ARCHIVE).write_bytes(archive())
        (started.plane.folder / "units.json").write_text(json.dumps(UNITS))
        (started.plane.folder / "per_user.json").write_text(json.dumps(limits))
        (started.plane.folder / "hours.json").write_text(json.dumps(person_limits.hours(lock)))
        in_effect(started)
        yield started


def in_effect(kueue: RunningKueue) -> None:
    """Wait until the API server names who asks, and holds it: it takes policies up one by one."""
    alice = kueue.api.acting_as("alice")
    for number in count():
        made = alice.create(job(f"probe-{number}", TEAM))
        (work,) = eventually(lambda: kueue.workloads(TEAM))
        kueue.clear(TEAM)
        named = USER in made["metadata"].get("annotations", {})
        if named and HELD in work["metadata"].get("annotations", {}):
            return


@pytest.fixture
def api(kueue: RunningKueue) -> Iterator[Api]:
    """Return the client; workloads go after the test."""
    with KubeletDouble(kueue.api):
        yield kueue.api
        kueue.plane.processes["recorder"].kill()
        kueue.clear(TEAM)
        kueue.clear("full", "week")


def counting(kueue: RunningKueue, *more: str) -> Process:
    """Start the recorder, which counts."""
    folder = kueue.plane.folder
    return recorder(kueue.plane, f"--per-user={folder / 'per_user.json'}", *more)


class Witness(threading.Thread):
    """Looks all the time at how much each person's requests hold of the quota."""

    def __init__(self, api: Api, kueue: RunningKueue) -> None:
        super().__init__(daemon=True)
        self._api, self._kueue, self._ended = api, kueue, threading.Event()
        self.most: dict[str, int] = {}
        self.looks = 0

    def run(self) -> None:
        """Look until told to end."""
        while not self._ended.is_set():
            has: dict[str, int] = {}
            for one in self._kueue.workloads(TEAM):
                if "admission" in one.get("status", {}) and not holds(one, "Finished"):
                    told = one["spec"]["podSets"][0]["template"]["metadata"]["annotations"]
                    count = one["status"]["admission"]["podSetAssignments"][0]["resourceUsage"]
                    gpus = int(count[GPU])
                    has[told[USER]] = has.get(told[USER], 0) + gpus
            for name, gpus in has.items():
                self.most[name] = max(self.most.get(name, 0), gpus)
            self.looks += 1

    def end(self) -> None:
        """Stop looking."""
        self._ended.set()
        self.join()


@pytest.mark.prove
def test_a_member_has_what_the_site_gives_one(api: Api, kueue: RunningKueue) -> None:
    """More waits outside of the queue and says why; another's is not held up by it."""
    counting(kueue)
    alice, bob = api.acting_as("alice"), api.acting_as("bob")
    alice.create(job("a-first", TEAM, gpus=2))
    eventually(lambda: running(api, TEAM) == ["a-first"])
    next_second()
    alice.create(job("a-large", TEAM, gpus=2))
    alice.create(pod("a-pod", TEAM))
    next_second()
    alice.create(job("a-small", TEAM, gpus=1))
    bob.create(job("b-first", TEAM, gpus=1))
    bob.create(job("no-gpu", TEAM, gpus=0, pods=3))
    eventually(lambda: {"b-first", "no-gpu"} <= set(running(api, TEAM)))

    def held() -> dict[str, str]:
        return {
            one["metadata"]["ownerReferences"][0]["name"]: told
            for one in kueue.workloads(TEAM)
            if (told := one["metadata"].get("annotations", {}).get(HELD))
        }

    waits = {"a-large", "a-pod", "a-small"}
    eventually(held, until=lambda found: set(found) == waits)
    assert held()["a-large"] == (
        "one person has at most 2 GPUs or shares of team lab at once: this waits until enough of "
        "theirs have ended"
    )
    assert "a-small" not in running(api, TEAM)
    # What came first is next, and nothing smaller passes it.
    alice.delete(api.path("jobs", "batch/v1", TEAM, "a-first"))
    eventually(held, until=lambda found: set(found) == {"a-pod", "a-small"})
    eventually(lambda: "a-large" in running(api, TEAM))
    with pytest.raises(ApiError, match=r"got 3 GPUs or shares / allowed 2 — .*lab\.per_user\.gpus"):
        alice.create(job("too-large", TEAM, gpus=3))


@pytest.mark.prove
def test_who_waits_in_the_queue_is_counted_again_when_a_job_grows(
    api: Api, kueue: RunningKueue
) -> None:
    """A Job may change its size while it waits; Kueue writes that into the Workload that it has."""
    counting(kueue)
    alice, bob = api.acting_as("alice"), api.acting_as("bob")
    bob.create(job("b", "full", gpus=1))
    eventually(lambda: running(api, "full") == ["b"])

    def waiting() -> dict[str, tuple[bool, bool]]:
        return {
            one["metadata"]["ownerReferences"][0]["name"]: (
                one["spec"].get("active", True),
                HELD in one["metadata"].get("annotations", {}),
            )
            for one in kueue.workloads("full")
        }

    alice.create(job("a-first", "full", gpus=1))
    next_second()
    grows = job("a-grows", "full", gpus=1, pods=2)
    grows["spec"]["parallelism"] = 1
    alice.create(grows)
    let_in = {"b": (True, False), "a-first": (True, False), "a-grows": (True, False)}
    eventually(lambda: waiting() == let_in)
    path = api.path("jobs", "batch/v1", "full", "a-grows")
    alice.patch(path, {"spec": {"parallelism": 2}})
    eventually(lambda: waiting() == let_in | {"a-grows": (False, True)})
    alice.patch(path, {"spec": {"parallelism": 1}})
    eventually(lambda: waiting() == let_in)


@pytest.mark.prove
def test_who_has_used_the_hours_of_the_week_gets_nothing_more(
    api: Api, kueue: RunningKueue
) -> None:
    """What runs goes on; what waits in the queue, and what is submitted then, waits for Monday."""
    file = kueue.plane.folder / "hours.json"
    options = (f"--hours={file}", "--use-every=1")
    first = counting(kueue, *options)
    alice, bob = api.acting_as("alice"), api.acting_as("bob")
    alice.create(job("a-runs", "week", gpus=1))
    eventually(lambda: running(api, "week") == ["a-runs"])
    next_second()
    alice.create(job("a-waits", "week", gpus=1))
    alice.create(pod("a-pod", "week"))
    alice.create(job_set("a-set", "week"))
    next_second()
    bob.create(job("b-first", "week", gpus=1))

    def known() -> dict[str, str]:
        return {
            one["metadata"]["ownerReferences"][0]["name"]: one["metadata"]
            .get("annotations", {})
            .get(HELD, "")
            for one in kueue.workloads("week")
        }

    def held() -> dict[str, str]:
        return {name: told for name, told in known().items() if told}

    eventually(known, 60, until=lambda found: len(found) == 5 and not any(found.values()))
    eventually(held, until=lambda found: set(found) == {"a-waits", "a-pod", "a-set"})
    pattern = (
        r"alice has used 0\.00 of 0\.00416667 GPU-hours of team week in this week: "
        r"this waits until Monday, \d+ \w+, 00:00 UTC"
    )
    assert all(re.fullmatch(pattern, told) for told in held().values()), held()
    alice.create(job("a-new", "week", gpus=1))
    eventually(held, until=lambda found: re.fullmatch(pattern, found.get("a-new", "")))
    assert running(api, "week") == ["a-runs"]
    # It was first in the queue, and holds up nobody.
    alice.delete(api.path("jobs", "batch/v1", "week", "a-runs"))
    eventually(lambda: running(api, "week") == ["b-first"])
    assert "a-pod" in {one["metadata"]["name"] for one in api.get("pods", "v1", "week")}
    # A recorder that starts again knows what has ended by what it has kept.
    first.kill()
    second = counting(kueue, *options)
    bob.delete(api.path("jobs", "batch/v1", "week", "b-first"))
    bob.create(job("b-next", "week", gpus=1))
    eventually(lambda: running(api, "week") == ["b-next"])
    assert set(held()) == {"a-waits", "a-pod", "a-set", "a-new"}
    second.kill()
    file.write_text(json.dumps({"week": ["week", 40]}))
    counting(kueue, *options)
    eventually(lambda: held() == {})
    bob.delete(api.path("jobs", "batch/v1", "week", "b-next"))
    eventually(lambda: running(api, "week") == ["a-waits"])
    api.delete(api.path("pods", "v1", "week", "a-pod"))
    api.delete(api.path("jobs", "batch/v1", "week", "a-waits"))
    path = api.path("jobsets", JOBSETS, "week", "a-set")
    eventually(lambda: api.call("GET", path)["spec"]["suspend"] is False)


@pytest.mark.prove
def test_the_limit_holds_in_a_storm(api: Api, kueue: RunningKueue) -> None:
    """Two people submit at the same moment; the recorder is killed in between; all ends."""
    first = counting(kueue)
    witness = Witness(api, kueue)
    witness.start()
    users = {name: api.acting_as(name) for name in ("alice", "bob")}
    made = [(name, f"{name}-{number}") for number in range(STORM // 2) for name in users]

    def submit(what: tuple[str, str]) -> None:
        name, called = what
        users[name].create(job(called, TEAM, gpus=1 + int(called[-1]) % 2, seconds=0.5))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(submit, made))
    eventually(lambda: any(holds(one, "Finished") for one in kueue.workloads(TEAM)))
    first.kill()
    time.sleep(3)
    counting(kueue)
    done = eventually(
        lambda: [one for one in kueue.workloads(TEAM) if holds(one, "Finished")],
        until=lambda found: len(found) == STORM,
    )
    witness.end()
    assert len(done) == STORM
    assert witness.most == {"alice": EACH, "bob": EACH}
    assert witness.looks > STORM
