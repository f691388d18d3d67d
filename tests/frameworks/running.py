"""Runs by `%%share` in real pods, in a demo that is up.

`python -m tests.frameworks.running [STUDENTS]`: more students than shares each run a cell, and
each gets its turn. Then how long a run takes from
Kueue's admission to the first line that its notebook shows, against the same pod started bare until
its log has that line; the two take turns. Of both it prints how many seconds after that start the
pod had its node, its container ran, and the line was written.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bedplate.components.schedulers.topology import POOL_LABEL
from bedplate.pods.api import Api, ApiError
from bedplate.pods.hub import shares
from bedplate.pods.kubeaccess import access_of
from tests.frameworks.classroom import COURSE, Cluster
from tests.frameworks.starting import PODS, Teacher, unowned, until
from tests.site.cluster import conditions
from tests.substrate.commands import SiteCommands
from tests.substrate.demo import DESCRIPTION, SITE

if TYPE_CHECKING:
    from collections.abc import Iterator

SHARES = 2
STUDENTS = 6
ROUNDS = 5
PAUSE = 0.05
PATIENCE = 600.0
JOBS = shares.jobs(COURSE)
WORK = f"{shares.KUEUE}/namespaces/{COURSE}/workloads"
EVERY = "/api/v1/pods"
FIRST = "begun at"
#: All programs are on one machine, with one clock.
WRITTEN = re.compile(rf"^{FIRST} ([\d.]+)$", re.MULTILINE)
STEPS = ("scheduled", "started", "written")
#: Its first line, its GPU, and a file of the notebook's home.
CELL = f"""\
import time
print("{FIRST}", time.time(), flush=True)
import subprocess
print(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout, flush=True)
open("result", "a").write("seen\\n")
time.sleep(SECONDS)
"""
#: Longer than the pod's place can be read.
SECONDS = "3"
LISTED = "%load_ext bedplate_share\nget_ipython().run_line_magic('share', 'list')"
TYPED = "%load_ext bedplate_share\nget_ipython().run_cell_magic('share', '', {!r})"


@dataclass
class Typed:
    """A cell that a student has run in the notebook, and what it shows, line by line."""

    process: subprocess.Popen[str]
    lines: list[tuple[float, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        """Keep what is printed, and when it came."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append((time.time(), line.rstrip()))

    def ended(self) -> bool:
        """Wait for its end, and tell whether that is a success."""
        self._reader.join(PATIENCE)
        return self.process.wait(PATIENCE) == 0

    @property
    def said(self) -> str:
        """Return what was shown until now."""
        return "\n".join(line for _, line in self.lines)

    @property
    def share(self) -> str:
        """Return the name of its share, once it has one."""
        return self.said.partition(":")[0] if self.said.startswith("share-") else ""

    def first(self) -> float | None:
        """Return when the first line of the cell itself came."""
        return next((when for when, line in self.lines if WRITTEN.match(line)), None)


@dataclass(eq=False)
class Admissions(threading.Thread):
    """Looks at the queue: when each Workload came, when it had its share, how many had one."""

    api: Api
    came: dict[str, tuple[str, str]] = field(default_factory=dict)
    most: int = 0
    ended: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    def run(self) -> None:
        """Look until told to end."""
        while not self.ended.wait(PAUSE):
            admitted = 0
            for one in self.api.call("GET", WORK)["items"]:
                if "conditions" not in one.get("status", {}):
                    continue
                found, meta = conditions(one), one["metadata"]
                if "QuotaReserved" in found:
                    self.came[meta["uid"]] = meta["creationTimestamp"], found["QuotaReserved"]
                    admitted += "Finished" not in found
            self.most = max(self.most, admitted)


@dataclass(eq=False)
class Steps(threading.Thread):
    """Watches all pods: when each had its node, and when a container of it ran."""

    api: Api
    seen: dict[str, dict[str, float]] = field(default_factory=dict)
    _socket: socket.socket | None = None

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    def run(self) -> None:
        """Watch until told to end."""
        with contextlib.suppress(ApiError):
            for change in self.api.stream(f"{EVERY}?watch=1", PATIENCE, self._opened):
                pod, now = change["object"], time.time()
                steps = self.seen.setdefault(pod["metadata"]["name"], {})
                if pod["spec"].get("nodeName"):
                    steps.setdefault("scheduled", now)
                states = [one["state"] for one in pod["status"].get("containerStatuses", [])]
                if any("waiting" not in one for one in states):
                    steps.setdefault("started", now)

    def _opened(self, one: socket.socket) -> None:
        self._socket = one

    def end(self) -> None:
        """Stop watching."""
        if self._socket is not None:
            self._socket.shutdown(socket.SHUT_RDWR)
        self.join()

    def after(self, since: float, pod: str, said: str) -> dict[str, float]:
        """Return the seconds from a moment to each step of a pod that has printed its line."""
        found = WRITTEN.search(said)
        assert found, said
        steps = self.seen[pod] | {"written": float(found[1])}
        return {step: steps[step] - since for step in STEPS}


class Runs:
    """Students of a course whose notebooks have no GPU, and their runs."""

    def __init__(self, site: SiteCommands, api: Api, students: int) -> None:
        self._site, self._api, self._steps = site, api, Steps(api)
        mark = f"{datetime.now(UTC):%H%M%S}"
        self.students = [f"r{mark}n{number}" for number in range(students)]

    @contextlib.contextmanager
    def notebooks(self) -> Iterator[None]:
        """Start a notebook for each student, all at once; none waits for a share."""
        teacher = Teacher(self._site, COURSE)
        teacher.enrol(self.students)
        try:
            for name in self.students:
                teacher.start(name)
            for name in self.students:
                until(lambda name=name: teacher.ready(name))
            until(lambda: self._answered(self.students[0]))
            yield
        finally:
            self._api.call("DELETE", PODS.format(COURSE))

    def _answered(self, name: str) -> bool:
        """Tell whether the service for shares answers a student: the hub has just started."""
        typed = self._types(name, LISTED)
        return typed.ended() and "No shares." in typed.said

    def types(self, name: str) -> Typed:
        """Run a cell in a share, as the student's notebook does."""
        return self._types(name, TYPED.format(CELL.replace("SECONDS", SECONDS)))

    def _types(self, name: str, code: str) -> Typed:
        command = ["exec", "-n", COURSE, f"jupyter-{name}", "-c", "notebook", "--"]
        command += ["python3", "-u", "-m", "IPython", "--HistoryManager.enabled=False", "-c", code]
        process = subprocess.Popen(
            ["kubectl", *command],
            env=self._site.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return Typed(process)

    def in_order(self) -> None:
        """All students run a cell at once: each has its turn, and frees its share at its end."""
        seen = Admissions(self._api)
        seen.start()
        typed = {}
        for name in self.students:
            typed[name] = self.types(name)
            until(lambda name=name: typed[name].share or typed[name].process.poll() is not None)
            assert typed[name].share, typed[name].said
        for name in self.students[SHARES + 1 :]:
            until(lambda name=name: "waiting, place" in typed[name].said)
        for name in self.students:
            assert typed[name].ended(), typed[name].said
            assert typed[name].said.count("GPU 0: Tesla T4") == 1, typed[name].said
            assert typed[name].said.endswith("its command has ended"), typed[name].said
        until(lambda: not self._api.call("GET", JOBS)["items"])
        seen.ended.set()
        seen.join()
        came = sorted(seen.came.values())
        assert len(came) == len(self.students), came
        # Kueue orders by whole seconds.
        assert [when for _, when in came] == sorted(when for _, when in came), came
        assert seen.most == SHARES

    def run(self, name: str) -> tuple[dict[str, float], dict[str, Any]]:
        """Return the seconds from the admission of a run to each step, and its pod."""
        typed, since = self.types(name), time.time()
        while True:
            asked = time.time()
            if any(not one["spec"]["suspend"] for one in self._api.call("GET", JOBS)["items"]):
                break
            since = asked  # it was not admitted then
            time.sleep(PAUSE)
        first = until(typed.first)
        chosen = f"?labelSelector=batch.kubernetes.io/job-name={typed.share}"
        (pod,) = self._api.call("GET", PODS.format(COURSE) + chosen)["items"]
        assert typed.ended(), typed.said
        until(lambda: not self._api.call("GET", JOBS)["items"])
        steps = self._steps.after(since, pod["metadata"]["name"], typed.said)
        return steps | {"shown": first - since}, pod

    def bare(self, pod: dict[str, Any]) -> dict[str, float]:
        """Return the seconds to each step of the same pod, without queue and hub."""
        name = f"bare-{pod['metadata']['name']}"
        spec = unowned(pod["spec"])
        made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        path = f"{PODS.format('default')}/{name}"
        since = time.time()
        self._api.call("POST", PODS.format("default"), made)
        while not WRITTEN.search(said := self._printed(path)):
            time.sleep(PAUSE)
        shown = time.time() - since
        self._api.call("DELETE", path)
        until(lambda: not self._is(path))
        return self._steps.after(since, name, said) | {"shown": shown}

    def _printed(self, path: str) -> str:
        """Return what a pod has printed: text, which is no document."""
        with contextlib.suppress(ApiError):  # it has not begun
            return str(self._api.call("GET", f"{path}/log?container=share").get("message", ""))
        return ""

    def _is(self, path: str) -> bool:
        with contextlib.suppress(ApiError):
            return bool(self._api.call("GET", path))
        return False

    def compared(self) -> tuple[float, float]:
        """Return the medians of runs and of bare pods."""
        runs, bare = [], []
        self._steps.start()
        for _ in range(ROUNDS):
            load = os.getloadavg()[0]
            steps, pod = self.run(self.students[0])
            runs.append(steps)
            bare.append(self.bare(pod))
            print(f"run {_told(steps)}; bare {_told(bare[-1])}; load {load:.0f}", flush=True)
        self._steps.end()
        for name, found in (("run", runs), ("bare", bare)):
            medians = {step: statistics.median(one[step] for one in found) for step in found[0]}
            print(f"median {name} {_told(medians)}")
        run, alone = (statistics.median(one["shown"] for one in found) for found in (runs, bare))
        return run, alone


def _told(steps: dict[str, float]) -> str:
    return ", ".join(f"{step} {seconds:.2f}" for step, seconds in steps.items())


def hold_runs(site: SiteCommands, students: int = STUDENTS) -> None:
    """Let more students than shares run a cell each, and print how long one takes."""
    path = Path(site.environment()["KUBECONFIG"])
    placed = {"node_selector": {POOL_LABEL: "pool_class"}}
    with access_of(path) as entry, Cluster(site).altered(runs=SHARES, placed=placed):
        runs = Runs(site, Api(entry.access, 60.0), students)
        with runs.notebooks():
            runs.in_order()
            print(f"{students} students ran a cell on {SHARES} shares, in order", flush=True)
            run, bare = runs.compared()
    print(f"admission to first line / bare pod: {run / bare:.2f} ({run:.2f} s, {bare:.2f} s)")


if __name__ == "__main__":
    hold_runs(SiteCommands(SITE, DESCRIPTION), int(sys.argv[1]) if len(sys.argv) > 1 else STUDENTS)
