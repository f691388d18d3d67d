"""A way to the stand-in for the internet for programs of their own: a proxy for CONNECT."""

from __future__ import annotations

import selectors
import socket
import socketserver
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCK = 65536


class Tunnel(socketserver.StreamRequestHandler):
    """Lead whatever host is asked for to the stand-in."""

    def handle(self) -> None:
        """Answer CONNECT, then pass bytes on in both directions."""
        words = self.rfile.readline().split()
        while self.rfile.readline().strip():
            pass
        if words[:1] != [b"CONNECT"]:
            self.wfile.write(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n")
            return
        with socket.create_connection(("127.0.0.1", self.server.port)) as there:
            self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            with selectors.DefaultSelector() as ready:
                ready.register(self.connection, selectors.EVENT_READ, there)
                ready.register(there, selectors.EVENT_READ, self.connection)
                while True:
                    for key, _ in ready.select():
                        content = key.fileobj.recv(BLOCK)
                        if not content:
                            return
                        key.data.sendall(content)


class Server(socketserver.ThreadingTCPServer):
    """Listens on a free port of this machine."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), Tunnel)
        self.port = port


@contextmanager
def tunnel(port: int) -> Iterator[str]:
    """Run a proxy to a port of this machine; yield its address."""
    with Server(port) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
