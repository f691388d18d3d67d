"""How long notebooks take to start, as ratios of one run in a demo that is up.

`python -m tests.frameworks.starting [STUDENTS]`: from Kueue's admission to a server that the hub
calls ready, against the same pod made without queue and hub until it answers; then that many
students at once against one.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import requests

from bedplate.pods.api import Api, ApiError
from bedplate.pods.kubeaccess import access_of
from tests.frameworks.hub import Browser
from tests.site.cluster import wait_for
from tests.substrate.commands import SiteCommands
from tests.substrate.demo import DESCRIPTION, SITE, outputs

#: It has room for all.
COURSE = "intro"
PODS = "/api/v1/namespaces/{}/pods"
#: Nanoseconds of CPU that a container has used, by the cgroups of either version.
USAGE = """\
cat /sys/fs/cgroup/cpuacct/cpuacct.usage 2>/dev/null ||
sed -n 's/^usage_usec \\(.*\\)/\\1000/p' /sys/fs/cgroup/cpu.stat"""
ROUNDS = 5
STUDENTS = 20
PAUSE = 0.1
PATIENCE = 600.0


class Teacher:
    """Ada's session: she is an administrator of the demo's hub."""

    def __init__(self, site: SiteCommands, course: str = COURSE) -> None:
        told = outputs(site)
        self._course = course
        self._browser = Browser(f"{told['hub']}/hub")
        until(lambda: self._signed_in(told["hub_passwords"]["ada"]))

    def _signed_in(self, password: str) -> bool:
        """Tell whether the hub takes her password: one that starts again does not answer yet."""
        with contextlib.suppress(requests.RequestException):
            return self._browser.login("ada", password).ok
        return False

    def asks(self, method: str, path: str, body: Any = None) -> Any:
        """Ask the hub's API."""
        session = self._browser.session
        token = next(one.value for one in session.cookies if one.name == "_xsrf")
        done = session.request(
            method,
            f"{self._browser.url}/api/{path}",
            json=body,
            headers={"X-XSRFToken": token},
            timeout=60,
        )
        done.raise_for_status()
        return done.json() if done.content else None

    def enrol(self, names: list[str]) -> None:
        """Make accounts of students of the course."""
        self.asks("POST", "users", {"usernames": names})
        with contextlib.suppress(requests.HTTPError):  # it is there
            self.asks("POST", f"groups/course-{self._course}")
        self.asks("POST", f"groups/course-{self._course}/users", {"users": names})

    def start(self, name: str) -> None:
        """Ask for a student's server."""
        self.asks("POST", f"users/{name}/server", {"profile": f"{self._course}-jax"})

    def ready(self, name: str) -> bool:
        """Tell whether a student's server is there to be used."""
        found = self.asks("GET", f"users/{name}")["servers"].get("")
        return bool(found and found["ready"])

    def stop(self, name: str) -> None:
        """Stop a student's server."""
        self.asks("DELETE", f"users/{name}/server")


class Starts:
    """Starts of notebooks, timed by this machine's clock."""

    def __init__(self, site: SiteCommands, teacher: Teacher, api: Api) -> None:
        self._site, self._teacher, self._api = site, teacher, api
        mark = f"{datetime.now(UTC):%H%M%S}"
        self.students = [f"s{mark}n{number}" for number in range(STUDENTS + 1)]

    def __enter__(self) -> Self:
        self._teacher.enrol(self.students)
        return self

    def __exit__(self, *_: object) -> None:
        self._api.call("DELETE", PODS.format(COURSE))

    def _pod(self, name: str) -> dict[str, Any] | None:
        with contextlib.suppress(ApiError):
            found: dict[str, Any] = self._api.call("GET", f"{PODS.format(COURSE)}/jupyter-{name}")
            return found
        return None

    def _admitted(self, name: str) -> dict[str, Any] | None:
        pod = self._pod(name)
        return None if pod is None or pod["spec"].get("schedulingGates") else pod

    def queued(self, name: str) -> tuple[float, dict[str, Any]]:
        """Return the seconds from the admission of a student's pod to its notebook, and the pod."""
        self._teacher.start(name)
        pod = until(lambda: self._admitted(name))
        since = time.monotonic()
        until(lambda: self._teacher.ready(name))
        return time.monotonic() - since, pod

    def bare(self, pod: dict[str, Any]) -> float:
        """Return the seconds in which the same pod answers, made without queue and hub."""
        spec = unowned(pod["spec"])
        name = f"bare-{pod['metadata']['name']}"
        made = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "annotations": pod["metadata"].get("annotations", {})},
            "spec": spec,
        }
        (notebook,) = (one for one in spec["containers"] if one["name"] == "notebook")
        values = {one["name"]: one.get("value", "") for one in notebook["env"]}
        path = f"{PODS.format('default')}/{name}"
        address = f"{path}:8888/proxy{values['JUPYTERHUB_SERVICE_PREFIX']}api"
        since = time.monotonic()
        self._api.call("POST", PODS.format("default"), made)
        until(lambda: self._answers(address))
        seconds = time.monotonic() - since
        self._api.call("DELETE", path)
        until(lambda: not self._answers(path))
        return seconds

    def _answers(self, path: str) -> bool:
        with contextlib.suppress(ApiError):
            return bool(self._api.call("GET", path))
        return False

    def compared(self) -> tuple[float, float]:
        """Return the medians of queued and bare starts, which take turns."""
        queued, bare = [], []
        name = self.students[0]
        for _ in range(ROUNDS):
            seconds, pod = self.queued(name)
            queued.append(seconds)
            self._teacher.stop(name)
            until(lambda: self._pod(name) is None)
            bare.append(self.bare(pod))
            print(f"queued {queued[-1]:.2f} s, bare {bare[-1]:.2f} s", flush=True)
        return statistics.median(queued), statistics.median(bare)

    def at_once(self, count: int) -> tuple[float, float]:
        """Return the seconds until the last of some students is ready, and of CPU of one."""
        names = self.students[1 : count + 1]
        since = time.monotonic()
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(self._teacher.start, names))
        for name in names:
            until(lambda name=name: self._teacher.ready(name))
        seconds = time.monotonic() - since
        used = [self._cpu(name) for name in names]
        for name in names:
            self._teacher.stop(name)
        for name in names:
            until(lambda name=name: self._pod(name) is None)
        return seconds, statistics.median(used)

    def _cpu(self, name: str) -> float:
        command = ["exec", "-n", COURSE, f"jupyter-{name}", "-c", "notebook", "--"]
        text = self._site.kubectl(*command, "sh", "-c", USAGE).stdout
        return int(text) / 1e9


def unowned(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a pod's specification for another namespace: its home is an empty folder, not kept."""
    found = {key: value for key, value in spec.items() if key != "nodeName"}
    found["volumes"] = [
        {"name": one["name"], "emptyDir": {}} if "persistentVolumeClaim" in one else one
        for one in spec["volumes"]
    ]
    return found


def until(condition: Any) -> Any:
    """Wait until something is there, and return it."""
    found: list[Any] = []

    def holds() -> bool:
        found[:] = [condition()]
        return bool(found[0])

    wait_for("a notebook starts or stops", holds, PATIENCE, PAUSE)
    return found[0]


def main(count: int) -> None:
    """Measure, and print ratios."""
    site = SiteCommands(SITE, DESCRIPTION)
    path = Path(site.environment()["KUBECONFIG"])
    with (
        access_of(path) as entry,
        Starts(site, Teacher(site), Api(entry.access, 60.0)) as starts,
    ):
        queued, bare = starts.compared()
        print(f"admission to notebook / bare pod: {queued / bare:.2f} ({queued:.2f} s)")
        one, cpu = starts.at_once(1)
        many, loaded = starts.at_once(count)
    print(
        f"{count} students at once / one: {many / one:.1f} ({many:.0f} s, {one:.1f} s); "
        f"CPU of a notebook until it is ready: {cpu:.1f} s alone, {loaded:.1f} s"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else STUDENTS)
