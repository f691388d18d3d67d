"""Kube-scheduler's two questions: where may this pod go, and bind it there."""

from __future__ import annotations

import http
import logging
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from bedplate.pods.api import ApiError
from bedplate.pods.packing.quantities import of_pod
from bedplate.pods.packing.shares import GPUS, RESOURCE, ShareError
from bedplate.pods.packing.state import RefusalError, State
from bedplate.pods.watching import Watched

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bedplate.pods.api import Api
    from bedplate.pods.packing.lease import Leadership

FREED = "bedplate.io/packing-freed"
"""Annotation of nodes, the time at which one got room."""

GRACE = 5.0
"""Seconds that a broken watch is relied on."""

PUSH = 1.0
"""Seconds at least between changes of FREED, each of which has all waiting pods tried again."""

PAUSE = 0.2
"""Seconds between looks at the lease and at nodes' capacity."""

ATTEMPTS = 3
"""Times that a binding is sent when no answer comes. It is the same each time."""


class Extender:
    """Decides and binds from what it watches; refuses while it doesn't lead or doesn't see."""

    def __init__(self, api: Api, leadership: Leadership, lease: str) -> None:
        namespace, _, name = lease.partition("/")
        self._api = api
        self.lock = threading.RLock()
        self._clock = time.monotonic
        self.leadership = leadership
        self.state = State(self._clock)
        self.counts: Counter[tuple[str, str]] = Counter()
        self.seconds: Counter[str] = Counter()
        state, lock, clock = self.state, self.lock, self._clock
        leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._nodes = Watched(
            api,
            "/api/v1/nodes",
            lock,
            clock,
            listed=lambda nodes, _asked: state.set_nodes(nodes),
            event=state.node_event,
        )
        self._pods = Watched(
            api, "/api/v1/pods", lock, clock, listed=state.set_pods, event=state.pod_event
        )
        self._lease = Watched(
            api,
            f"{leases}?fieldSelector=metadata.name%3D{name}",
            lock,
            clock,
            listed=leadership.listed,
            event=leadership.event,
        )

    def start(self) -> None:
        """Begin to watch, and to do what only the leader does."""
        for watched in (self._lease, self._nodes, self._pods):
            watched.start()
        threading.Thread(target=self._lead, name="leader", daemon=True).start()

    def refusal(self) -> str:
        """Return why nothing can be decided now, or an empty text. The lock is held."""
        since = self.leadership.since
        if since is None or not self.leadership.leading():
            return f"not the leader: the lease is held by {self.leadership.holder or 'nobody'}"
        for watched in (self._nodes, self._pods):
            if not watched.fresh(since, GRACE):
                return f"state is stale: {watched.error}"
        return ""

    def ready(self) -> str:
        """Return why nothing can be decided now, or an empty text."""
        with self.lock:
            return self.refusal()

    def filter(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Answer kube-scheduler's ExtenderArgs with one node, or with each node's reason."""
        started = self._clock()
        try:
            return self._filter(question)
        finally:
            self.seconds["filter"] += self._clock() - started  # type: ignore[assignment]

    def _filter(self, question: Mapping[str, Any]) -> dict[str, Any]:
        pod, names = question["Pod"], question.get("NodeNames") or []
        try:
            request = of_pod(pod["spec"])
        except ShareError as error:
            self.counts["filter", "impossible"] += 1
            return {"NodeNames": [], "FailedAndUnresolvableNodes": dict.fromkeys(names, str(error))}
        with self.lock:
            refusal = self.refusal()
            if refusal:
                return self._refused("filter", refusal)
            try:
                place = self.state.decide(pod["metadata"]["uid"], request, names)
            except RefusalError as error:
                return self._refused("filter", str(error))
            if place is not None:
                self.counts["filter", "placed"] += 1
                return {"NodeNames": [place.node]}
            reasons = {name: self.state.reason(name, request) for name in names}
        self.counts["filter", "full"] += 1
        return {"NodeNames": [], "FailedNodes": reasons}

    def bind(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Answer ExtenderBindingArgs: write node and GPUs in one Binding."""
        started = self._clock()
        try:
            return self._bind(question)
        finally:
            self.seconds["bind"] += self._clock() - started  # type: ignore[assignment]

    def _bind(self, question: Mapping[str, Any]) -> dict[str, Any]:
        uid, node = question["PodUID"], question["Node"]
        namespace, name = question["PodNamespace"], question["PodName"]
        with self.lock:
            refusal = self.refusal()
            if refusal:
                return self._refused("bind", refusal)
            try:
                held = self.state.begin(uid, node)
            except RefusalError as error:
                return self._refused("bind", str(error))
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        binding: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        if held.gpus:  # the API server writes node and annotations in one update of the pod
            binding["metadata"]["annotations"] = {GPUS: ",".join(map(str, held.gpus))}
        failure = self._write(path, binding)
        if failure is None:
            self.counts["bind", "bound"] += 1
            return {}
        return self._refused("bind", failure)

    def _write(self, path: str, binding: dict[str, Any]) -> str | None:
        """Send a binding until its outcome is known. Return what went wrong, or None."""
        uid, node = binding["metadata"]["uid"], binding["target"]["name"]
        failure = ""
        for _ in range(ATTEMPTS):
            try:
                self._api.call("POST", f"{path}/binding", binding)
            except ApiError as error:
                failure = str(error)
                if not _settled(error):
                    continue
                written = self._bound(path, uid, node)
                if written is None:
                    continue
            else:
                written = True
            with self.lock:
                self.state.end(uid, written=written)
            return None if written else failure
        return f"the API server has not answered: {failure}"

    def _bound(self, path: str, uid: str, node: str) -> bool | None:
        """Return whether an attempt before, which had no answer, was written; None: unknown."""
        try:
            pod = self._api.call("GET", path)
        except ApiError as error:
            return False if error.status == http.HTTPStatus.NOT_FOUND else None
        return bool(pod["metadata"]["uid"] == uid and pod["spec"].get("nodeName") == node)

    def _refused(self, verb: str, reason: str) -> dict[str, Any]:
        self.counts[verb, "refused"] += 1
        return {"Error": f"bedplate packing: {reason}"}

    def _lead(self) -> None:
        """List again whenever leading begins; keep nodes' capacity as their labels say.

        And make the scheduler ask again where it was refused by a state that was a moment behind
        its own: it asks again after a change of the cluster, and then there would be none.
        """
        listed: float | None = None
        pushed = float("-inf")
        while True:
            freed = ""
            with self.lock:
                since = self.leadership.since
                nodes = {} if self.refusal() else dict(self.state.unpublished)
                if self.state.freed and self._clock() - pushed > PUSH:
                    freed, self.state.freed = self.state.freed, ""
                    pushed = self._clock()
            if since is not None and since != listed:
                self._nodes.again()
                self._pods.again()
                listed = since
            for name, milli in nodes.items():
                amount = {RESOURCE: str(milli)}
                self._patch(name, {"status": {"capacity": amount, "allocatable": amount}})
            if freed and since is not None:
                self._patch(freed, {"metadata": {"annotations": {FREED: f"{time.time():.3f}"}}})
            threading.Event().wait(PAUSE)

    def _patch(self, node: str, change: Mapping[str, Any]) -> None:
        """Change a node's object. What fails is due again, or the scheduler's own retry does."""
        try:
            self._api.call("PATCH", f"/api/v1/nodes/{node}/status", change, "merge-patch+json")
        except ApiError as error:
            logging.getLogger(__name__).warning("node %s: %s", node, error)


def _settled(error: ApiError) -> bool:
    """Return whether an answer says for certain that this attempt wrote nothing."""
    too_many = http.HTTPStatus.TOO_MANY_REQUESTS
    return (
        http.HTTPStatus.BAD_REQUEST <= error.status < http.HTTPStatus.INTERNAL_SERVER_ERROR
        and error.status != too_many
    )
