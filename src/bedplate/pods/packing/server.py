"""Two HTTP servers: the scheduler's questions on the loopback address, health for everybody."""

from __future__ import annotations

import http
import json
import logging
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from bedplate.pods.packing import metrics

if TYPE_CHECKING:
    from collections.abc import Callable

    from bedplate.pods.packing.extender import Extender

LOG = logging.getLogger(__name__)
#: More than the scheduler sends: the names of 5,000 nodes, or their objects, are 100 MB.
LARGEST = 256 << 20


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[_Handler], extender: Extender):
        super().__init__(address, handler)
        self.extender = extender


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    # Header and body leave in one segment: in two the second waits 40 ms for the first's delayed
    # acknowledgement, and a scheduler gets 14 answers a second instead of hundreds.
    wbufsize = -1
    disable_nagle_algorithm = True

    def answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def length(self) -> int | None:
        """Return the body's length; where there is none that can be read, that is the answer."""
        said = self.headers.get("Content-Length") or "0"
        length = int(said) if re.fullmatch("[0-9]{1,9}", said, re.ASCII) else -1
        if "Transfer-Encoding" in self.headers:
            length = -1
        if 0 <= length <= LARGEST:
            return length
        # Where the next request begins is not known: the connection ends with the answer.
        self.close_connection = True
        text = f"no length of the body — allowed 0 to {LARGEST} bytes in Content-Length\n"
        self.answer(http.HTTPStatus.BAD_REQUEST, "text/plain; charset=utf-8", text.encode())
        return None

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its signature
        LOG.debug(format, *args)


class _Questions(_Handler):
    def do_POST(self) -> None:
        extender = self.server.extender
        verbs: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "/filter": extender.filter,
            "/bind": extender.bind,
        }
        length = self.length()
        if length is None:
            return
        body = self.rfile.read(length)
        verb = verbs.get(self.path)
        if verb is None:
            self.answer(http.HTTPStatus.NOT_FOUND, "text/plain", b"no such verb\n")
            return
        try:
            answer = verb(json.loads(body))
        except (KeyError, ValueError, TypeError) as error:
            LOG.exception("question to %s", self.path)
            answer = {"Error": f"bedplate packing: a question that can't be read: {error!r}"}
        self.answer(http.HTTPStatus.OK, "application/json", json.dumps(answer).encode())


class _Health(_Handler):
    def do_GET(self) -> None:
        extender = self.server.extender
        if self.path == "/healthz":
            self.answer(http.HTTPStatus.OK, "text/plain", b"ok\n")
        elif self.path == "/readyz":
            refusal = extender.ready()
            status = http.HTTPStatus.SERVICE_UNAVAILABLE if refusal else http.HTTPStatus.OK
            self.answer(status, "text/plain", f"{refusal or 'ok'}\n".encode())
        elif self.path == "/metrics":
            kind = "text/plain; version=0.0.4"
            self.answer(http.HTTPStatus.OK, kind, metrics.text(extender).encode())
        else:
            self.answer(http.HTTPStatus.NOT_FOUND, "text/plain", b"no such page\n")


def serve(extender: Extender, questions: tuple[str, int], health: tuple[str, int]) -> None:
    """Answer until the process ends."""
    pages = _Server(health, _Health, extender)
    threading.Thread(target=pages.serve_forever, name="health", daemon=True).start()
    with _Server(questions, _Questions, extender) as server:
        LOG.info("questions on %s, health on %s", server.server_address, pages.server_address)
        server.serve_forever()
