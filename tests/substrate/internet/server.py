"""The stand-in's server: HTTPS by the vendors' names, plain HTTP as a mirror, on one port."""

from __future__ import annotations

import contextlib
import http.server
import json
import re
import shutil
import socket
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.substrate.internet.faults import Faults, Records, Request
from tests.substrate.internet.vendors import Answer

if TYPE_CHECKING:
    import ssl

    from tests.substrate.internet.faults import Fault
    from tests.substrate.internet.vendors import Internet

BLOCK = 1 << 20
TLS = 0x16
SECONDS = 120.0
OK, PARTIAL = 200, 206
RANGE = re.compile(r"bytes=([0-9]+)-")


@dataclass
class Shared:
    """What all connections of a server use."""

    internet: Internet
    context: ssl.SSLContext | None
    records: Records
    faults: Faults
    ended: threading.Event
    lock: threading.Lock

    def log(self, request: Request) -> None:
        """Append a line to the access log, before a byte of the answer goes out."""
        with self.lock, self.records.log.open("a") as log:
            log.write(json.dumps(asdict(request)) + "\n")


class Server(http.server.ThreadingHTTPServer):
    """A server on an address; `server_port` says the port."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        place: tuple[str, int],
        internet: Internet,
        records: Records,
        context: ssl.SSLContext | None,
    ) -> None:
        records.folder.mkdir(parents=True, exist_ok=True)
        records.log.touch()
        self.shared = Shared(
            internet, context, records, Faults(records.faults), threading.Event(), threading.Lock()
        )
        super().__init__(place, Handler)

    def server_close(self) -> None:
        """Stop listening, and end the requests that a fault keeps hanging."""
        self.shared.ended.set()
        super().server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of connections that clients broke off."""


class Handler(http.server.BaseHTTPRequestHandler):
    """One connection, which may carry many requests."""

    protocol_version = "HTTP/1.1"
    server: Server

    def setup(self) -> None:
        """Speak TLS to who begins with it."""
        self.request.settimeout(SECONDS)
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        first = self.request.recv(1, socket.MSG_PEEK)
        self.secure = bool(first) and first[0] == TLS
        if self.secure:
            if self.server.shared.context is None:
                raise ConnectionError("no certificate")
            self.request = self.server.shared.context.wrap_socket(self.request, server_side=True)
        super().setup()

    def finish(self) -> None:
        """End the connection, TLS too: its socket took the plain one's place."""
        super().finish()
        if self.secure:
            with contextlib.suppress(OSError):
                self.request.close()

    def do_GET(self) -> None:
        """Answer with the faults that are switched on."""
        host = self.headers.get("Host", "").partition(":")[0].lower()
        host = host if self.secure else ""
        faults = self.server.shared.faults.of(host, self.path)
        if any(fault.stop for fault in faults):
            return self._stop(host, faults)
        answer = self._faulty(host, faults)
        content = answer.content
        size = len(content) if isinstance(content, bytes) else content.stat().st_size
        rest = RANGE.fullmatch(self.headers.get("Range", "")) if answer.status == OK else None
        if rest and int(rest[1]) < size:
            content = (content if isinstance(content, bytes) else content.read_bytes())[
                int(rest[1]) :
            ]
            whole, size = size, len(content)
            self._log(host, PARTIAL, size)
            self.send_response(PARTIAL)
            self.send_header("Content-Range", f"bytes {rest[1]}-{whole - 1}/{whole}")
        else:
            self._log(host, answer.status, size)
            self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        if self.command != "HEAD":
            if any(fault.cut for fault in faults):
                content = (content if isinstance(content, bytes) else content.read_bytes())[
                    : size // 2
                ]
                self.close_connection = True
            self._send(content, size, [fault.flip for fault in faults if fault.flip is not None])
        return None

    do_HEAD = do_GET  # noqa: N815 - http.server's name

    def _faulty(self, host: str, faults: list[Fault]) -> Answer:
        for fault in faults:
            if fault.status:
                wait = fault.retry_after
                return Answer(fault.status, b"", {} if wait is None else {"Retry-After": str(wait)})
        internet = self.server.shared.internet
        if host:
            return internet.answer(host, self.path, self.headers)
        return internet.mirrored(self.path)

    def _stop(self, host: str, faults: list[Fault]) -> None:
        self._log(host, 0, 0)
        if any(fault.stop == "hang" for fault in faults):
            self.server.shared.ended.wait()
        self.close_connection = True

    def _log(self, host: str, status: int, size: int) -> None:
        self.server.shared.log(Request(host, self.path, status, size, self.command))

    def _send(self, content: bytes | Path, size: int, flips: list[int]) -> None:
        if isinstance(content, Path) and not flips:
            with content.open("rb") as file:
                shutil.copyfileobj(file, self.wfile, BLOCK)
            return
        changed = bytearray(content if isinstance(content, bytes) else content.read_bytes())
        for flip in flips if size else ():
            changed[flip % size] ^= 1
        self.wfile.write(changed)

    def log_message(self, *_arguments: object) -> None:
        """Say nothing: the access log has it."""
