"""The client of the API server, with a server that ends idle connections as the real one does."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from bedplate.pods.api import Access, Api

if TYPE_CHECKING:
    from collections.abc import Iterator

IDLE = 0.2


class Handler(BaseHTTPRequestHandler):
    """Answers with the client's port, and closes a connection that was idle for a while."""

    protocol_version = "HTTP/1.1"
    timeout = IDLE

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        content = json.dumps({"port": self.client_address[1]}).encode()
        self.send_response(201)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Say nothing."""


@pytest.fixture
def api() -> Iterator[Api]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Api(Access(f"http://127.0.0.1:{server.server_port}"))
        server.shutdown()


def test_a_connection_that_the_server_has_closed_is_opened_again(api: Api) -> None:
    """The API server closes one after 90 idle seconds; a POST must not be sent twice, nor lost."""
    first, same = (api.call("POST", "/", {})["port"] for _ in range(2))
    time.sleep(3 * IDLE)
    assert first == same != api.call("POST", "/", {})["port"]
