"""What the extender does when the API server gives no answer, and when it doesn't lead."""

from __future__ import annotations

import json
import threading
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.pods.api import Access, Api
from bedplate.pods.packing.extender import Extender
from bedplate.pods.packing.lease import VALID, Leadership
from bedplate.pods.packing.quantities import milli, of_pod
from bedplate.pods.packing.shares import RESOURCE, ShareError, request
from bedplate.pods.packing.state import LABEL
from bedplate.pods.watching import Watched
from tests.schedulers.api import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

HALF = request(500)
NODE = {
    "metadata": {"name": "a", "labels": {LABEL: "1"}},
    "status": {"allocatable": {"cpu": "4"}},
}
QUESTION = {"PodName": "p", "PodNamespace": "x", "PodUID": "u", "Node": "a"}


class Server:
    """An API server that answers a binding as it is told, and shows the pod as it then is."""

    def __init__(self) -> None:
        self.answers: deque[int | None] = deque()
        self.bound_on: str | None = None
        self.page: dict[str, Any] = {}
        self.bindings: list[dict[str, Any]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.bindings.append(json.loads(body))
                status = outer.answers.popleft()
                if status is None:
                    self.close_connection = True  # written or not: the client can't know
                else:
                    self.answer(status, {"message": f"said {status}"})

            def do_GET(self) -> None:
                pod = {"metadata": {"uid": "u"}, "spec": {"nodeName": outer.bound_on}}
                self.answer(200, outer.page or pod)

            def answer(self, status: int, document: dict[str, Any]) -> None:
                text = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def server() -> Iterator[Server]:
    one = Server()
    yield one
    one.server.shutdown()
    one.server.server_close()


@pytest.fixture
def extender(server: Server, monkeypatch: pytest.MonkeyPatch) -> Extender:
    """One that leads, with one GPU and half of it decided for pod u."""
    address = f"http://127.0.0.1:{server.server.server_port}"
    leadership = Leadership("host", lambda: 0.0)
    one = Extender(Api(Access(address)), leadership, "kube-system/lease")
    monkeypatch.setattr(one, "refusal", lambda: "")
    one.state.set_nodes([NODE])
    assert one.state.decide("u", HALF, ["a"]) is not None
    return one


def free(extender: Extender) -> int:
    return extender.state.packer.nodes[0].free[0]


def test_a_binding_is_one_write_with_node_and_gpu(server: Server, extender: Extender) -> None:
    server.answers.append(201)
    assert extender.bind(QUESTION) == {}
    (binding,) = server.bindings
    assert binding["target"]["name"] == "a"
    assert binding["metadata"]["annotations"] == {"bedplate.io/gpus": "0"}
    assert binding["metadata"]["uid"] == "u", "another pod of the same name is refused by it"
    assert free(extender) == 500


def test_an_answer_that_never_came_is_found_out(server: Server, extender: Extender) -> None:
    server.answers.extend([None, 409])  # written, and refused the second time
    server.bound_on = "a"
    assert extender.bind(QUESTION) == {}
    assert free(extender) == 500


def test_a_refused_binding_gives_the_gpu_back(server: Server, extender: Extender) -> None:
    server.answers.append(409)
    assert extender.bind(QUESTION) == {"Error": "bedplate packing: said 409"}
    assert free(extender) == 1000


def test_without_any_answer_the_gpu_stays_taken_and_the_same_place_is_bound_later(
    server: Server, extender: Extender
) -> None:
    server.answers.extend([None, 503, None])
    assert "has not answered" in extender.bind(QUESTION)["Error"]
    assert free(extender) == 500
    place = extender.state.decide("u", HALF, ["a"])
    assert place is not None
    assert (place.node, place.gpus) == ("a", (0,))
    assert free(extender) == 500, "counted once"
    server.answers.append(201)
    assert extender.bind(QUESTION) == {}
    assert server.bindings[-1] == server.bindings[0]


def test_an_object_that_cannot_be_read_is_no_reason_to_guess(server: Server) -> None:
    def unforeseen(_items: list[dict[str, Any]], _asked: float) -> None:
        raise KeyError("metadata")

    seen = threading.Event()
    watched = Watched(
        Api(Access(f"http://127.0.0.1:{server.server.server_port}")),
        "/api/v1/pods",
        threading.RLock(),
        lambda: 0.0,
        listed=lambda items, asked: (seen.set(), unforeseen(items, asked))[1],
        event=lambda _kind, _object: None,
    )
    server.page = {"metadata": {"resourceVersion": "1"}, "items": []}
    watched.start()
    assert seen.wait(120)
    eventually(lambda: watched.error == "KeyError('metadata')")
    assert not watched.fresh(0.0, 5.0)


def lease(holder: str, renewed: str) -> dict[str, Any]:
    spec = {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15}
    return {"spec": spec}


def test_the_lease_is_relied_on_for_a_part_of_its_duration() -> None:
    now = 0.0
    leadership = Leadership("pod-a", lambda: now)
    assert not leadership.leading()
    leadership.event("MODIFIED", lease("pod-b_1", "t0"))
    assert not leadership.leading()
    leadership.event("MODIFIED", lease("pod-a_1", "t1"))
    assert leadership.leading()
    assert leadership.since == 0.0
    now = 15 * VALID + 0.1
    assert not leadership.leading()
    leadership.event("MODIFIED", lease("pod-a_1", "t1"))  # the same renewal, seen again
    assert not leadership.leading()
    leadership.event("MODIFIED", lease("pod-a_1", "t2"))
    assert leadership.leading()
    assert leadership.since == now, "it lists again: another may have led in between"
    leadership.event("DELETED", lease("pod-a_1", "t2"))
    assert not leadership.leading()


def test_a_host_name_that_only_begins_alike_is_another() -> None:
    leadership = Leadership("pod-a", lambda: 0.0)
    leadership.event("ADDED", lease("pod-ab_1", "t1"))
    assert not leadership.leading()


def test_cpu_is_counted_as_the_scheduler_does() -> None:
    def container(cpu: str, **more: Any) -> dict[str, Any]:
        return {"resources": {"requests": {"cpu": cpu}}, **more}

    spec = {
        "containers": [container("1"), container("500m")],
        "initContainers": [container("200m", restartPolicy="Always"), container("2")],
        "overhead": {"cpu": "50m"},
    }
    assert of_pod(spec).cpu == 2250  # the init container beside the sidecar is the peak
    assert milli("0.0001") == 1


def test_two_containers_that_ask_are_refused() -> None:
    asks = {"resources": {"limits": {RESOURCE: "500"}}}
    with pytest.raises(ShareError, match="2 containers ask for it"):
        of_pod({"containers": [asks, asks]})
