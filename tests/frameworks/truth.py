"""What Kueue says of its Workloads and queues, written down apart from the recorder."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import defaultdict
from typing import Any

import requests

from bedplate.accounting.records import seconds
from tests.schedulers.api import Api, ApiError
from tests.schedulers.kueue import API
from tests.schedulers.nodes import GPU


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
            for event in self._api.watch(self._api.path("workloads", API), version):
                if self._stopped.is_set():
                    return
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
