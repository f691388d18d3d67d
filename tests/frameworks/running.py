"""Runs by `%%share` in real pods, in a demo that is up.

`python -m tests.frameworks.running [STUDENTS]`: more students than shares each run a cell, and
each gets its turn. Then how long a run takes from
Kueue's admission to the first line that its notebook shows, against the same pod started bare until
its log has that line; the two take turns.
"""

from __future__ import annotations

import contextlib
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
FIRST = "begun"
#: Its first line, its GPU, and a file of the notebook's home.
CELL = f"""\
print("{FIRST}", flush=True)
import subprocess, time
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
            self.lines.append((time.monotonic(), line.rstrip()))

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
        return next((when for when, line in self.lines if line == FIRST), None)


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


class Runs:
    """Students of a course whose notebooks have no GPU, and their runs."""

    def __init__(self, site: SiteCommands, api: Api, students: int) -> None:
        self._site, self._api = site, api
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

    def run(self, name: str) -> tuple[float, dict[str, Any]]:
        """Return the seconds from the admission of a run to its first line, and its pod."""
        typed, since = self.types(name), time.monotonic()
        while True:
            asked = time.monotonic()
            if any(not one["spec"]["suspend"] for one in self._api.call("GET", JOBS)["items"]):
                break
            since = asked  # it was not admitted then
            time.sleep(PAUSE)
        first = until(typed.first)
        chosen = f"?labelSelector=batch.kubernetes.io/job-name={typed.share}"
        (pod,) = self._api.call("GET", PODS.format(COURSE) + chosen)["items"]
        assert typed.ended(), typed.said
        until(lambda: not self._api.call("GET", JOBS)["items"])
        return first - since, pod

    def bare(self, pod: dict[str, Any]) -> float:
        """Return the seconds until the same pod has printed the line, without queue and hub."""
        name = f"bare-{pod['metadata']['name']}"
        spec = unowned(pod["spec"])
        made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        path = f"{PODS.format('default')}/{name}"
        since = time.monotonic()
        self._api.call("POST", PODS.format("default"), made)
        while FIRST not in self._printed(path):
            time.sleep(PAUSE)
        seconds = time.monotonic() - since
        self._api.call("DELETE", path)
        until(lambda: not self._is(path))
        return seconds

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
        for _ in range(ROUNDS):
            seconds, pod = self.run(self.students[0])
            runs.append(seconds)
            bare.append(self.bare(pod))
            print(f"run {runs[-1]:.2f} s, bare {bare[-1]:.2f} s", flush=True)
        return statistics.median(runs), statistics.median(bare)


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
