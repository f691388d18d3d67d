"""The service of shares as the hub runs it, behind a double of the hub that knows four users."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from bedplate.components.frameworks import hub_objects
from bedplate.pods.api import Access, Api
from bedplate.pods.hub import share_service
from bedplate.pods.hub.courses import Course, Profile, Settings
from bedplate.pods.hub.share_service import SCOPES
from tests.schedulers.workloads import IMAGE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.schedulers.control_plane import ControlPlane

HUBS = {
    "alice-token": {"name": "ada", "kind": "user", "groups": [], "scopes": list(SCOPES)},
    "bob-token": {"name": "bob", "kind": "user", "groups": ["class"], "scopes": list(SCOPES)},
    "eve-token": {"name": "eve", "kind": "user", "groups": [], "scopes": list(SCOPES)},
    "weak-token": {"name": "ada", "kind": "user", "groups": [], "scopes": ["self"]},
}


class HubDouble(BaseHTTPRequestHandler):
    """A double of the hub: it says whose a token is, as the hub's `/user` does."""

    def do_GET(self) -> None:
        """Answer with the user of the token."""
        found = HUBS.get(self.headers["Authorization"].removeprefix("token "))
        self.send_response(200 if found and self.path == "/hub/api/user" else 403)
        self.end_headers()
        self.wfile.write(json.dumps(found).encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serving(plane: ControlPlane) -> Iterator[str]:
    """Start the service with the rights that the hub's account gets for it; give its address."""
    for one in (hub_objects.namespace(), *hub_objects.rights({"intro": {}})):
        plane.api.apply(one)
    certificate, key = plane.authority.issue(hub_objects.ACCOUNT)
    own = Api(Access(plane.server, plane.authority.path, None, certificate, key), 60.0)
    hub = ThreadingHTTPServer(("127.0.0.1", 0), HubDouble)
    profile = Profile("jax", "JAX", "", IMAGE)
    has = {"nvidia.com/gpu.shared": "1"}
    courses = {
        "intro": Course("intro", "UTC", [profile], has, members=["ada", "group:class"]),
        "other": Course("other", "UTC", [profile], has, members=["zoe"]),
    }
    known = Settings(courses, "native", {}, [], {})
    served = share_service.server(
        share_service.Service(
            lambda method, path, body: own.call(method, path, body),
            lambda path: f"no kubelet is here to read {path} from",
            lambda token: share_service.user_of(
                f"http://127.0.0.1:{hub.server_port}/hub/api", token
            ),
            share_service.course_of(known),
        ),
        ("127.0.0.1", 0),
        "/services/shares/",
    )
    for one in (hub, served):
        threading.Thread(target=one.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{served.server_port}/services/shares/intro"
    for one in (hub, served):
        one.shutdown()
        one.server_close()
