"""A double of the kubelets: it says of each bound pod that it runs, and later that it is done.

No container is ever started. A pod with the annotation `tests.bedplate/seconds` succeeds after that
time (0: at once); one without runs until it is deleted, or fails when its time is up, as by
`activeDeadlineSeconds` that it gets while it runs. Deleted pods are gone at once.
"""

from __future__ import annotations

import contextlib
import datetime
import heapq
import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import requests

from bedplate.portable.quantities import parse
from tests.schedulers.api import THREADS, Api, ApiError, eventually

if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS = "tests.bedplate/seconds"
JOB = "batch.kubernetes.io/job-name"


def now() -> str:
    """Return the time as the API writes it."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class Span:
    """When a pod ran, by the monotonic clock, and what it held of its node's extended resources.

    `stopped`: it was deleted before it was done.
    """

    namespace: str
    name: str
    job: str | None
    node: str
    devices: int
    start: float
    end: float | None = None
    stopped: bool = False


class KubeletDouble:
    """Watches all pods from entering to leaving.

    Attributes:
        started: by UID, the name of each pod that it has started.
        spans: by UID, when each of them ran; without an end it still does.
    """

    def __init__(self, api: Api, address: str | None = None) -> None:
        self._api, self._address = api, address
        self._stopped = threading.Event()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._changed = threading.Condition()
        self._number = itertools.count()
        self._known: set[str] = set()
        self._pool = ThreadPoolExecutor(THREADS)
        self.started: dict[str, str] = {}
        self.spans: dict[str, Span] = {}

    def __enter__(self) -> Self:
        for work in (self._watch, self._clock):
            threading.Thread(target=work, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        with self._changed:
            self._changed.notify_all()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _watch(self) -> None:
        path = self._api.path("pods")
        while not self._stopped.is_set():
            with contextlib.suppress(ApiError, requests.RequestException):
                listed = self._api.call("GET", path)
                for pod in listed["items"]:
                    self._seen(pod)
                for event in self._api.watch(path, listed["metadata"]["resourceVersion"]):
                    if self._stopped.is_set() or event["type"] == "ERROR":
                        break
                    if event["type"] != "DELETED":
                        self._seen(event["object"])
            self._stopped.wait(0.2)

    def _seen(self, pod: dict[str, Any]) -> None:
        meta = pod["metadata"]
        uid = meta["uid"]
        if not pod["spec"].get("nodeName"):
            return
        if "deletionTimestamp" in meta and f"{uid} gone" not in self._known:
            self._known.add(f"{uid} gone")
            self._ended(uid, stopped=True)
            self._do(lambda: self._delete(meta))
        elif uid not in self._known and pod["status"]["phase"] == "Pending":
            self._known.add(uid)
            self.started[uid] = meta["name"]
            self.spans[uid] = span(pod)
            self._do(lambda: self._run(pod))
        elif pod["spec"].get("activeDeadlineSeconds") and f"{uid} late" not in self._known:
            self._known.add(f"{uid} late")
            self._after(pod["spec"]["activeDeadlineSeconds"], lambda: self._fail(pod))

    def _do(self, work: Callable[[], None]) -> None:
        if not self._stopped.is_set():
            with contextlib.suppress(RuntimeError):  # stopped in between
                self._pool.submit(self._tolerating, work)

    @staticmethod
    def _tolerating(work: Callable[[], None]) -> None:
        with contextlib.suppress(ApiError, requests.RequestException):  # the pod is gone
            work()

    def begins(self, pod: dict[str, Any]) -> str | None:  # noqa: ARG002 - for who overrides it
        """Return the pod's address. A double that runs something starts it here."""
        return self._address

    def ends(self, meta: dict[str, Any]) -> None:
        """End what `begins` has started for the pod of this metadata: here nothing."""

    def _run(self, pod: dict[str, Any]) -> None:
        address = self.begins(pod)
        if address:
            pod = {**pod, "status": {**pod["status"], "podIP": address}}
        seconds = pod["metadata"].get("annotations", {}).get(SECONDS)
        if seconds is None or float(seconds) > 0:
            self._status(pod, "Running", ready=True)
        if seconds is not None:
            self._after(float(seconds), lambda: self._succeed(pod))

    def _succeed(self, pod: dict[str, Any]) -> None:
        self._ended(pod["metadata"]["uid"])
        self._status(pod, "Succeeded", ready=False)

    def _fail(self, pod: dict[str, Any]) -> None:
        self._ended(pod["metadata"]["uid"], stopped=True)
        self._status(pod, "Failed", ready=False)

    def finish(self, namespace: str, job: str) -> None:
        """Let the pods of a job succeed that run until they are deleted, once all of them run."""
        wanted = self._api.get("jobs", "batch/v1", namespace, job)["spec"]["parallelism"]

        def running() -> list[dict[str, Any]]:
            return [
                one
                for one in self._api.get("pods", "v1", namespace)
                if one["metadata"].get("labels", {}).get(JOB) == job
                and one["status"]["phase"] == "Running"
            ]

        for pod in eventually(running, until=lambda found: len(found) == wanted):
            self._succeed(pod)

    def _ended(self, uid: str, *, stopped: bool = False) -> None:
        if uid in self.spans and self.spans[uid].end is None:
            self.spans[uid].end, self.spans[uid].stopped = time.monotonic(), stopped

    def _status(self, pod: dict[str, Any], phase: str, *, ready: bool) -> None:
        meta = pod["metadata"]
        state: dict[str, Any] = {"running": {"startedAt": now()}}
        if phase in {"Succeeded", "Failed"}:
            code = {"Succeeded": 0, "Failed": 137}[phase]
            state = {"terminated": {"exitCode": code, "reason": phase, "finishedAt": now()}}
        status = {
            "phase": phase,
            "startTime": now(),
            **{key: pod["status"][key] for key in ("podIP",) if key in pod["status"]},
            "conditions": [
                {"type": kind, "status": str(ready), "lastTransitionTime": now()}
                for kind in ("Ready", "ContainersReady")
            ],
            "containerStatuses": [
                {
                    "name": one["name"],
                    "image": one["image"],
                    "imageID": "",
                    "ready": ready,
                    "restartCount": 0,
                    "state": state,
                }
                for one in pod["spec"]["containers"]
            ],
        }
        path = self._api.path("pods", "v1", meta["namespace"], meta["name"])
        change = {"metadata": {"uid": meta["uid"]}, "status": status}
        self._api.patch(path, change, "status")

    def _delete(self, meta: dict[str, Any]) -> None:
        self.ends(meta)
        path = self._api.path("pods", "v1", meta["namespace"], meta["name"])
        self._api.delete(path, gracePeriodSeconds=0, preconditions={"uid": meta["uid"]})

    def _after(self, seconds: float, work: Callable[[], None]) -> None:
        with self._changed:
            heapq.heappush(self._due, (time.monotonic() + seconds, next(self._number), work))
            self._changed.notify()

    def _clock(self) -> None:
        with self._changed:
            while not self._stopped.is_set():
                wait = self._due[0][0] - time.monotonic() if self._due else None
                if wait is None or wait > 0:
                    self._changed.wait(wait)
                else:
                    self._do(heapq.heappop(self._due)[2])


def span(pod: dict[str, Any]) -> Span:
    """Return the span of a pod that starts now."""
    meta = pod["metadata"]
    job = meta.get("labels", {}).get(JOB)
    node = pod["spec"]["nodeName"]
    return Span(meta["namespace"], meta["name"], job, node, devices(pod), time.monotonic())


def devices(pod: dict[str, Any]) -> int:
    """Return how many devices a pod of the API server holds, where each claim is for one."""
    spec = pod["spec"]
    early = spec.get("initContainers", [])
    sidecars = [one for one in early if one.get("restartPolicy") == "Always"]
    together = sum(_devices(one) for one in (*spec["containers"], *sidecars))
    most = max([together, *(_devices(one) for one in early)])
    return most + len(spec.get("resourceClaims", []))


def _devices(container: dict[str, Any]) -> int:
    # The API server writes a request for each limit; some names have requests alone.
    requests = container.get("resources", {}).get("requests", {})
    return sum(int(parse(n)) for name, n in requests.items() if "/" in name)
