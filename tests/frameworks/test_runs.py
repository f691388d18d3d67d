"""More students than shares: notebooks without a GPU, whose runs queue for shares and free them."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.pods.hub import magic
from tests.frameworks.hub import SHARE, KubeletLogs, RunningHub, course, hub_of
from tests.schedulers.api import eventually
from tests.schedulers.kubelets import JOB, KubeletDouble
from tests.schedulers.kueue import API
from tests.site.cluster import conditions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.schedulers.control_plane import ControlPlane

COURSE, NODE = "lab", "pool-class-0"
SHARES = 10
STUDENTS = [f"s{number:02}" for number in range(1, 31)]
#: It writes into its directory, which is the notebook's, once the class is queued.
TASK = """
import pathlib, sys, time
here = pathlib.Path.cwd()
print("begun by", (here / "name").read_text(), flush=True)
while not (here.parent / "go").exists():
    time.sleep(0.1)
(here / "result").write_text(" ".join(sys.argv[1:]))
print("done")
"""
IN_A_KERNEL = "import sys, bedplate_share; bedplate_share.share(*sys.argv[1:])"


class RunningKubelets(KubeletDouble):
    """Kubelets that run a share's command as a process, without a container around it."""

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(plane.api, "127.0.0.1")
        self._folder = plane.folder
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        #: Of each share, when its workload came, and when it was admitted.
        self.admitted: dict[str, tuple[str, str]] = {}

    def log(self, path: str) -> str:
        """Return what a container printed, by the path at which its kubelet has it."""
        pod = path.split("/")[3]
        return (self._folder / f"{pod}.log").read_text()

    def _run(self, pod: dict[str, Any]) -> None:
        super()._run(pod)
        meta = pod["metadata"]
        if JOB not in meta.get("labels", {}):
            return
        (owner,) = meta["ownerReferences"]
        for work in self._api.get("workloads", API, meta["namespace"]):
            if work["metadata"]["ownerReferences"][0]["uid"] == owner["uid"]:
                when = conditions(work)["QuotaReserved"]
                self.admitted[owner["name"]] = (work["metadata"]["creationTimestamp"], when)
        (container,) = pod["spec"]["containers"]
        given = {one["name"]: one["value"] for one in container["env"]}
        environment = given | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        with (self._folder / f"{meta['name']}.log").open("w") as log:
            process = subprocess.Popen(container["command"], env=environment, stdout=log)
        self.running[meta["name"]] = process
        threading.Thread(target=self._wait, args=(pod, process), daemon=True).start()

    def _wait(self, pod: dict[str, Any], process: subprocess.Popen[bytes]) -> None:
        if process.wait() == 0:
            self._tolerating(lambda: self._succeed(pod))

    def ends(self, meta: dict[str, Any]) -> None:
        """Kill the process of a share that is released."""
        if process := self.running.get(meta["name"]):
            process.kill()

    def __exit__(self, *reason: object) -> None:
        super().__exit__(*reason)
        for process in self.running.values():
            process.kill()


@pytest.fixture
def hub() -> Iterator[RunningHub]:
    """Start a control plane, Kueue, and the hub of a course of thirty with ten shares for runs."""
    teams = {COURSE: {"gpus": {"pool_class": (SHARES, 0)}, "members": ["ada"]}}
    profiles = [
        {"slug": f"{COURSE}-{name}", "title": name, "about": "", "image": f"x/{name}:1"}
        for name in ("jax", "torch")
    ]
    asked = course(
        COURSE,
        members=STUDENTS,
        profiles=profiles,
        runs=SHARES,
        placed={"node_selector": {"bedplate.io/pool": "pool_class"}},
    )
    with hub_of(teams, {COURSE: asked}, gpus=SHARES, kubelets_of=RunningKubelets) as found:
        found.start()
        yield found


@contextmanager
def ended_with(started: dict[str, subprocess.Popen[str]]) -> Iterator[None]:
    """Kill what still runs of these processes at the end."""
    try:
        yield
    finally:
        for process in started.values():
            process.kill()


@pytest.fixture
def homes(tmp_path: Path) -> Path:
    """Return the folder of the students' homes, each with the task and the student's name."""
    for name in STUDENTS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "task.py").write_text(TASK)
        (tmp_path / name / "name").write_text(name)
    shutil.copy(magic.__file__, tmp_path / "bedplate_share.py")
    return tmp_path


@pytest.mark.prove
def test_a_class_of_thirty_runs_on_ten_shares_in_order(hub: RunningHub, homes: Path) -> None:
    """All have a notebook at once; each run sees its place, and frees its share at its end."""
    kubelets = hub.kubelets
    assert isinstance(kubelets, RunningKubelets)
    hub.api("POST", "users", {"usernames": STUDENTS})
    for name in STUDENTS:
        hub.api("POST", f"users/{name}/server", {"profile": f"{COURSE}-torch"})
    eventually(
        lambda: [one["ready"] for one in hub.servers().values()],
        until=lambda ready: len(ready) == len(STUDENTS) and all(ready),
    )
    tokens = {}
    for pod in hub.plane.api.get("pods", "v1", COURSE):
        (container,) = pod["spec"]["containers"]
        assert SHARE not in container["resources"].get("limits", {})
        assert pod["spec"]["nodeSelector"] == {"bedplate.io/pool": "pool_class"}
        given = {one["name"]: one.get("value", "") for one in container["env"]}
        assert given[magic.PROFILE] == f"{COURSE}-torch"
        tokens[given["JUPYTERHUB_USER"]] = given[magic.TOKEN]
    assert hub.plane.api.get("workloads", API, COURSE) == [], "notebooks are no work of the queue's"
    # A second notebook is one that the plan has not counted.
    hub.api("POST", f"users/{STUDENTS[0]}/servers/second", {"profile": f"{COURSE}-jax"})
    eventually(lambda: "second" not in hub.api("GET", f"users/{STUDENTS[0]}")["servers"])
    assert len(hub.plane.api.get("pods", "v1", COURSE)) == len(STUDENTS)

    address = f"{hub.settings['service']['shares_url']}/services/shares/{COURSE}"

    def begins(name: str, *words: str) -> subprocess.Popen[str]:
        """Start what a student types, as a process of the notebook."""
        environment = {
            magic.ADDRESS: address,
            magic.TOKEN: tokens[name],
            magic.PROFILE: f"{COURSE}-torch",
            "PYTHONPATH": str(homes),
            "PYTHONUNBUFFERED": "1",
        }
        command = [sys.executable, "-c", IN_A_KERNEL, *words]
        return subprocess.Popen(
            command,
            cwd=homes / name,
            env=environment,
            stdout=(homes / name / "said").open("w"),
            stderr=subprocess.STDOUT,
            text=True,
        )

    def said(name: str) -> str:
        return (homes / name / "said").read_text()

    def jobs() -> list[dict[str, Any]]:
        found = hub.plane.api.get("jobs", "batch/v1", COURSE)
        return [one for one in found if "deletionTimestamp" not in one["metadata"]]

    started: dict[str, subprocess.Popen[str]] = {}

    def pods() -> list[str]:
        return [one["metadata"]["name"] for one in hub.plane.api.get("pods", "v1", COURSE)]

    with KubeletLogs(hub.plane, NODE, kubelets.log), ended_with(started):
        for name in STUDENTS:
            started[name] = begins(name, f"run task.py --of {name}")
            eventually(lambda: len(jobs()), until=lambda found: found == len(started))
        waiting = STUDENTS[SHARES:]
        for name in waiting:
            eventually(lambda name=name: said(name), until=lambda told: "waiting, place" in told)
        eventually(lambda: "begun by s01" in said("s01"))
        # What is printed is seen while it runs; who waits may leave, who runs may be interrupted.
        assert "done" not in said("s01")
        left, ended = STUDENTS[-1], STUDENTS[0]
        for name in (left, ended):
            started[name].send_signal(signal.SIGINT)
            assert started[name].wait(120) != 0
        eventually(lambda: len(jobs()), until=lambda found: found == len(STUDENTS) - 2)
        share = said(ended).partition(":")[0]
        eventually(lambda: not any(share in name for name in pods()))
        (homes / "go").touch()
        through = [name for name in STUDENTS if name not in (left, ended)]
        for name in through:
            assert started[name].wait(300) == 0, said(name)
            assert re.search(rf"^begun by {name}\n(share-.*\n)*done\n", said(name), re.MULTILINE)
            assert (homes / name / "result").read_text() == f"--of {name}"
        assert not (homes / left / "result").exists()
        assert not (homes / ended / "result").exists()
    eventually(lambda: jobs() == [])
    spans = [one for one in kubelets.spans.values() if one.job]
    assert len(spans) == len(STUDENTS) - 1, "each run had one pod"
    for other in spans:
        at = [one for one in spans if one.start <= other.start < (one.end or other.start + 1)]
        assert len(at) <= SHARES
    # Kueue orders by whole seconds: who came in an earlier one, was admitted no later.
    came = sorted(kubelets.admitted.values())
    assert len(came) == len(spans)
    assert [since for _, since in came] == sorted(since for _, since in came)
