"""A class in the hub of a site, as its students' browsers see it.

`python -m tests.frameworks.classroom FOLDER` holds one in the demo, which must be up, and keeps
pictures. No test of the default layer does: on a busy machine kernels and pages take minutes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from zoneinfo import ZoneInfo

from tests.environments import python
from tests.site.cluster import wait_for
from tests.substrate.commands import SiteCommands
from tests.substrate.demo import DESCRIPTION, SITE, outputs

if TYPE_CHECKING:
    from collections.abc import Iterator

COURSE = "seminar"
#: A team, the shares that are its own, and those of the course that it may borrow.
TEAM = "lab"
OWN, LENT = 4, 2
#: Seconds; the machine may be busy.
PATIENCE = 600
HUB = "bedplate-hub"
#: What is killed, as namespace, Deployment and the label of its pods.
KILLED = (
    (HUB, "hub", "app.kubernetes.io/name=bedplate-hub"),
    (HUB, "proxy", "app.kubernetes.io/name=bedplate-proxy"),
    ("kueue-system", "kueue-controller-manager", "control-plane=controller-manager"),
)
#: A kernel that counts on, idle as it is: its process and how far it has come.
COUNT = """\
%load_ext bedplate_share
import os, pathlib, threading, time
def count():
    for number in range(10**6):
        pathlib.Path("count.new").write_text(f"{os.getpid()} {number}")
        os.rename("count.new", "count")
        time.sleep(0.5)
threading.Thread(target=count, daemon=True).start()
learnt = 42
!echo work > kept"""
#: Of the course while idleness is looked at, in seconds.
IDLE = 60
#: A training that says nothing: it uses a part of a core, and its output is in a file.
TRAINING = """\
python3 -c 'import time
while True: print(sum(range(10**6)), flush=True); time.sleep(0.1)' > training.log 2>&1 &"""
#: A student who is asleep: kernel and terminal are busy, nothing is computed.
ASLEEP = "import time; time.sleep(86400)"
DATES = "while :; do date; sleep 30; done &"
#: What a lesson begins with, once for each preparation.
MATERIAL = ["sh", "-c", "echo chapter one >> /home/jovyan/material"]
#: A program of a team.
JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {generateName: borrows-, namespace: lab, labels: {class: borrows}}
spec:
  backoffLimit: 0
  template:
    metadata: {labels: {class: borrows}}
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 1
      containers:
        - name: share
          image: docker.io/library/debian:12-slim
          command: [sh, -c, "nvidia-smi -L; exec sleep 86400"]
          resources: {limits: {nvidia.com/gpu: "1"}}
"""
#: A cell that runs in the share that it asks for.
SHARE = """\
%%share 0.1 10m
!nvidia-smi -L; ls /dev/nvidia[0-9]*"""
ASK = """\
import sys, urllib.error, urllib.request
asked = urllib.request.Request(sys.argv[1], headers={"Authorization": f"token {sys.argv[2]}"})
try:
    print(urllib.request.urlopen(asked, timeout=30).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""


class Students:
    """The browsers of all students, driven by one process in an environment of its own."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> Self:
        script = Path(__file__).with_name("browse.py")
        interpreter = python(Path(__file__).with_name("browser.txt"))
        self._process = subprocess.Popen(
            [str(interpreter), str(script), self._url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def do(self, what: str, *given: str) -> Any:
        """Do one thing of `browse.py`, and return its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": what, "with": given}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the browser has ended"
        answer = json.loads(line)
        assert "error" not in answer, answer["error"]
        return answer["answer"]


def ended() -> list[str]:
    """Return hours that are over: a lesson of an hour, some days ago."""
    return [f"{datetime.now(UTC) - timedelta(days=3):%a} 10:00-11:00"]


def soon(zone: str) -> list[str]:
    """Return hours of a lesson that begins in some minutes."""
    begin = datetime.now(ZoneInfo(zone)) + timedelta(minutes=25)
    end = "24:00" if begin.hour == 23 else f"{begin.hour + 1}:00"
    return [f"{begin:%a %H:%M}-{end}"]


@dataclass(frozen=True)
class Cluster:
    """What the class looks at and does in the cluster."""

    site: SiteCommands

    def _json(self, *command: str) -> Any:
        done = self.site.kubectl(*command, "-o", "json")
        assert done.returncode == 0, done.stdout
        return json.loads(done.stdout)

    def pods(self) -> dict[str, dict[str, Any]]:
        """Return the course's pods by name, those that end left out."""
        listed = self._json("get", "pods", "-n", COURSE)["items"]
        return {
            one["metadata"]["name"]: one
            for one in listed
            if "deletionTimestamp" not in one["metadata"]
        }

    def identities(self) -> dict[str, str]:
        """Return the UIDs of the course's pods and Workloads by name."""
        work = self._json("get", "workloads", "-n", COURSE)["items"]
        found = [*self.pods().values(), *work]
        return {one["metadata"]["name"]: one["metadata"]["uid"] for one in found}

    def inside(self, pod: str, *command: str) -> str:
        """Run a command in a student's pod, past the hub, and return what it prints."""
        start = ["exec", "-n", COURSE, pod, "-c", "notebook", "--"]
        return str(self.site.kubectl(*start, *command).stdout).strip()

    def counted(self, pod: str) -> tuple[int, int]:
        """Return the process of the kernel that counts in a pod, and how far it is."""
        process, number = self.inside(pod, "cat", "count").split()
        return int(process), int(number)

    def status(self, pod: str, url: str, secret: str) -> str:
        """Return what an address answers to a program in a pod that has a token."""
        return self.inside(pod, "python3", "-c", ASK, url, secret)

    def kill(self, *which: tuple[str, str, str]) -> None:
        """Kill pods at once, without notice; wait for those that take their places."""
        for namespace, _, label in which:
            command = ["delete", "pods", "-l", label, "-n", namespace, "--wait=false"]
            done = self.site.kubectl(*command, "--grace-period=0", "--force")
            assert "force deleted" in done.stdout, done.stdout
        for namespace, name, _ in which:
            command = ["rollout", "status", f"deployment/{name}", "-n", namespace]
            done = self.site.kubectl(*command, "--timeout=600s")
            assert done.returncode == 0, done.stdout

    @contextmanager
    def altered(self, **course: Any) -> Iterator[None]:
        """Run the hub with other settings of the course, and with its own again afterwards."""
        text = self._json("get", "configmap", "hub", "-n", HUB)["data"]["hub.json"]
        other = json.loads(text)
        other["courses"][COURSE] |= course
        self._set(json.dumps(other, indent=1, sort_keys=True))
        try:
            yield
        finally:
            self._set(text)

    def zone(self) -> str:
        """Return the time zone of the course."""
        text = self._json("get", "configmap", "hub", "-n", HUB)["data"]["hub.json"]
        return str(json.loads(text)["zone"])

    @contextmanager
    def lending(self) -> Iterator[None]:
        """Let the team borrow what the course does not use: the only shares that are left over."""
        quota = "/spec/resourceGroups/0/flavors/0/resources/0/"
        self._quota("intro", quota + "nominalQuota", "0")
        self._quota(TEAM, quota + "borrowingLimit", str(LENT))
        try:
            yield
        finally:
            self.site.kubectl("delete", "jobs", "-l", "class=borrows", "-n", TEAM)
            self._quota(TEAM, quota + "borrowingLimit", "0")
            self._quota("intro", quota + "nominalQuota", "34")

    def _quota(self, queue: str, path: str, value: str) -> None:
        patch = json.dumps([{"op": "replace", "path": path, "value": value}])
        done = self.site.kubectl("patch", "clusterqueue", queue, "--type=json", "-p", patch)
        assert done.returncode == 0, done.stdout

    def submit(self, jobs: Path, count: int) -> None:
        """Submit programs of the team, each with one share."""
        jobs.write_text("---\n".join([JOB] * count))
        done = self.site.kubectl("create", "-f", str(jobs))
        assert done.returncode == 0, done.stdout

    def working(self) -> dict[str, str]:
        """Return the team's programs that run, and what each has printed."""
        listed = self._json("get", "pods", "-n", TEAM, "-l", "class=borrows")["items"]
        live = (one for one in listed if "deletionTimestamp" not in one["metadata"])
        names = [one["metadata"]["name"] for one in live if one["status"]["phase"] == "Running"]
        return {one: self.site.kubectl("logs", "-n", TEAM, one).stdout for one in names}

    def preempted(self) -> list[str]:
        """Return why Kueue took shares from programs of the team."""
        found = self._json("get", "workloads", "-n", TEAM)["items"]
        every = (one for work in found for one in work["status"].get("conditions", []))
        return [
            one["reason"] for one in every if (one["type"], one["status"]) == ("Preempted", "True")
        ]

    def prepared(self) -> dict[str, str]:
        """Return the state of each pod that prepares a home, by the student's name."""
        listed = self._json("get", "pods", "-n", COURSE, "-l", "bedplate.io/prepares")["items"]
        return {
            one["metadata"]["annotations"]["hub.jupyter.org/username"]: one["status"]["phase"]
            for one in listed
        }

    def _set(self, text: str) -> None:
        patch = json.dumps({"data": {"hub.json": text}})
        done = self.site.kubectl("patch", "configmap", "hub", "-n", HUB, "-p", patch)
        assert done.returncode == 0, done.stdout
        self.kill(KILLED[0])


def token(pod: dict[str, Any]) -> str:
    """Return the token that a notebook has of the hub."""
    (notebook,) = (one for one in pod["spec"]["containers"] if one["name"] == "notebook")
    (found,) = (one["value"] for one in notebook["env"] if one["name"] == "JUPYTERHUB_API_TOKEN")
    return str(found)


class Class:
    """Ann, Ben and Cat in a course with room for two. Each step begins where the last one ended.

    Names carry a mark of the run: a demo that has held a class can hold another one.
    """

    def __init__(self, site: SiteCommands, students: Students, pictures: Path) -> None:
        self.cluster, self.do, self.pictures = Cluster(site), students.do, pictures
        mark = f"{datetime.now(UTC):%H%M%S}"
        self.ann, self.ben, self.cat = (f"{name}{mark}" for name in ("ann", "ben", "cat"))
        self.started = time.monotonic()

    def said(self, text: str) -> None:
        """Print what was seen, and when."""
        print(f"{time.monotonic() - self.started:6.1f} s: {text}", flush=True)

    def picture(self, user: str, name: str) -> None:
        """Keep what a student sees."""
        self.do("picture", user, str(self.pictures / f"hub-{name}.png"))

    def signed_up(self, code: str) -> None:
        """All three sign up with the course's code, and sign in."""
        for name in (self.ann, self.ben, self.cat):
            assert "successful" in self.do("sign_up", name, code)
            assert "/hub/login" not in self.do("login", name)
        self.said("three students signed up and in")

    def first_student(self) -> None:
        """A notebook with a share sees the one GPU that it shares, and nothing of the cluster."""
        offered = self.do("offers", self.ann)
        assert "0 of 2 in use: starts at once" in offered.lower()
        assert "intro" not in offered
        self.do("start", self.ann)
        self.do("notebook", self.ann)
        seen = self.do(
            "cell", self.ann, "!NVIDIA_VISIBLE_DEVICES=all nvidia-smi -L; ls /dev/nvidia[0-9]*"
        )
        assert seen.count("GPU-") == 1, seen
        assert "Tesla T4" in seen
        assert seen.count("/dev/nvidia") == 1, seen
        account = "/var/run/secrets/kubernetes.io"
        assert "No such file" in self.do("cell", self.ann, f"!ls {account}")
        self.do("cell", self.ann, COUNT)
        said = self.do("cell", self.ann, "%share request 8 7d")
        assert "larger than a share of seminar — got 8 / allowed 0.1" in said, said
        said = self.do("cell", self.ann, SHARE)
        assert f"one share more than {COURSE} gives — got your notebook already" in said, said
        with self.cluster.altered(shares=2):
            wait_for(
                "the service for shares answers",
                lambda: "No shares." in self.do("cell", self.ann, "%share list"),
                PATIENCE,
            )
            said = self.do("cell", self.ann, SHARE)
        assert "ended, its command has ended" in said, said
        assert said.count("GPU 0: Tesla T4") == 1, said
        assert said.count("/dev/nvidia") == 1, said
        assert self.cluster.pods()[f"jupyter-{self.ann}"]["spec"]["nodeName"] == "gpu-b"
        self.said("the first has a notebook with one GPU and one device node, and no account")

    def full(self) -> None:
        """The second takes the last share, the third sees place 1, and nobody gets in elsewhere."""
        self.do("start", self.ben)
        self.do("notebook", self.ben)
        assert self.do("cell", self.ben, "!nvidia-smi -L").count("GPU-") == 1
        self.said("the second has a notebook with one GPU")
        assert "you would wait in place 1" in self.do("offers", self.cat)
        self.do("start", self.cat)
        assert "place 1 of 1" in self.do("shows", self.cat, "place 1")
        self.picture(self.cat, "queue")
        self.said("the third reads place 1 of 1")
        status, where = self.do("visit", self.ben, f"/user/{self.ann}/lab")
        assert status in (403, 404), (status, where)
        # Past the proxy, from pod to pod: the network lets it through here, the notebook does not.
        found = self.cluster.pods()
        ann, ben = (found[f"jupyter-{name}"] for name in (self.ann, self.ben))
        kernels = f"http://{ann['status']['podIP']}:8888/user/{self.ann}/api/kernels"
        assert self.cluster.status(f"jupyter-{self.ben}", kernels, token(ben)) == "403"
        assert self.cluster.status(f"jupyter-{self.ben}", kernels, token(ann)) == "200"
        self.said(f"the second gets {status} for the first's notebook, and 403 past the proxy")

    def killed(self) -> None:
        """Hub, proxy and Kueue die: kernels run on, who waits keeps the place, none is doubled."""
        before = self.cluster.identities()
        process, number = self.cluster.counted(f"jupyter-{self.ann}")
        self.cluster.kill(*KILLED)
        assert self.cluster.identities() == before
        kept, further = self.cluster.counted(f"jupyter-{self.ann}")
        assert kept == process
        assert further > number

        def routed() -> bool:
            status, where = self.do("visit", self.ann, f"/user/{self.ann}/lab")
            return status == 200 and f"/user/{self.ann}/lab" in where

        wait_for("ann's notebook is behind the new proxy", routed, PATIENCE)
        assert self.do("cell", self.ann, "print(learnt)") == "42\n"
        self.do("visit", self.cat, f"/hub/spawn-pending/{self.cat}")
        assert "place 1 of 1" in self.do("shows", self.cat, "place 1")
        assert self.cluster.identities() == before
        self.said(
            "hub, proxy and Kueue's controllers killed: the same pods and Workloads, the first's "
            f"kernel counted from {number} to {further}, the third still reads place 1 of 1"
        )

    def idle_gives_way(self) -> None:
        """Ann sleeps and is warned, Ben trains and says nothing: Cat gets Ann's share."""
        self.do("visit", self.ben, f"/user/{self.ben}/lab")
        self.do("terminal", self.ben, TRAINING)
        begun = time.monotonic()
        self.do("visit", self.ann, f"/user/{self.ann}/lab")
        self.do("begin", self.ann, ASLEEP)
        self.do("terminal", self.ann, DATES)
        with self.cluster.altered(idle_timeout=IDLE):
            warned = self.do("notified", self.ann, "stops this server at")
            assert "its GPU is not used and no program runs" in warned, warned
            assert f"jupyter-{self.ann}" in self.cluster.pods()
            self.picture(self.ann, "warned")
            wait_for(
                "ann's server is gone",
                lambda: f"jupyter-{self.ann}" not in self.cluster.pods(),
                PATIENCE,
            )
            self.said("the first was asleep, read that it ends, and lost the share")
            self.do("visit", self.cat, "/hub/spawn")
            self.do("notebook", self.cat)
            assert self.do("cell", self.cat, "!nvidia-smi -L").count("GPU-") == 1
            self.do("terminal", self.cat, TRAINING)
            self.said("the third has a notebook with one GPU")
            time.sleep(max(0.0, begun + 3.5 * IDLE - time.monotonic()))
            assert set(self.cluster.pods()) == {f"jupyter-{name}" for name in (self.ben, self.cat)}
        self.said(f"a quiet training has lived for {time.monotonic() - begun:.0f} s of {IDLE} idle")

    def class_ends(self) -> None:
        """Everything stops, also who waits; files stay, and are there in the next class."""
        self.do("visit", self.ann, "/hub/home")
        self.do("start", self.ann)
        self.do("shows", self.ann, "place 1")
        with self.cluster.altered(hours=ended()):
            wait_for("nothing of the class is left", lambda: not self.cluster.pods(), PATIENCE)
            policy = ["get", "clusterqueue", COURSE, "-o", "jsonpath={.spec.stopPolicy}"]
            assert self.cluster.site.kubectl(*policy).stdout == "HoldAndDrain"
            self.said("the class has ended: no pod is left, the queue is held and drained")
        with self.cluster.altered(hours=soon(self.cluster.zone()), material=MATERIAL):
            every = {self.ann, self.ben, self.cat}
            wait_for(
                "each home is prepared",
                lambda: {"Succeeded"} == {self.cluster.prepared().get(one) for one in every},
                PATIENCE,
            )
        self.said("before the next lesson a pod without a GPU has prepared each student's home")
        self.do("start", self.ann)
        self.do("notebook", self.ann)
        self.do("forget", self.ann)
        assert self.do("cell", self.ann, "!cat material").split("\n")[0].strip() == "chapter one"
        wait_for("what prepared is gone", lambda: not self.cluster.prepared(), PATIENCE)
        assert "work" in self.do("cell", self.ann, "!cat kept")
        self.said("in the next class the first finds her file, and the material")

    def takes_back(self) -> None:
        """A team's programs run in shares that the course lent: students get them back at once."""
        self.dismissed()
        wait_for("the course is empty", lambda: not self.cluster.pods(), PATIENCE)
        with self.cluster.lending():
            self.cluster.submit(self.pictures / "jobs.yml", OWN + LENT)
            wait_for("all run", lambda: len(self.cluster.working()) == OWN + LENT, PATIENCE)
            assert all("GPU 0: Tesla T4" in text for text in self.cluster.working().values())
            for name in (self.ben, self.cat):
                self.do("visit", name, "/hub/home")
                self.do("start", name)
                self.do("notebook", name)
                self.do("forget", name)
                assert self.do("cell", name, "!nvidia-smi -L").count("GPU-") == 1
            assert len(self.cluster.working()) == OWN
            assert self.cluster.preempted() == ["InCohortReclamation"] * LENT
            self.said(f"{LENT} students start, {LENT} of {OWN + LENT} running programs gave way")

    def dismissed(self) -> None:
        """Leave nothing of the run in the course."""
        self.cluster.site.kubectl("delete", "pods", "--all", "-n", COURSE)


def hold_class(site: SiteCommands, pictures: Path) -> None:
    """Hold a class from sign-up to its end, and keep what students saw."""
    hub = outputs(site)
    pictures.mkdir(parents=True, exist_ok=True)
    with Students(hub["hub"]) as students:
        held = Class(site, students, pictures)
        try:
            held.signed_up(hub["hub_codes"][COURSE])
            held.first_student()
            held.full()
            held.killed()
            held.idle_gives_way()
            held.class_ends()
            held.takes_back()
        finally:
            held.dismissed()


if __name__ == "__main__":
    hold_class(SiteCommands(SITE, DESCRIPTION), Path(sys.argv[1]))
