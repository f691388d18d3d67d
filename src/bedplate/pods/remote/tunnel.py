"""The client's side: takes connections on loopback and passes them to the claim's front by TLS.

One file of the standard library: it lies in the claim's Secret beside the certificate, and a pod
runs it as a sidecar. The Secret is read for each connection, so a claim that was opened again, with
certificates of its own, needs no restart.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import ssl
import sys
import threading
from pathlib import Path

CHUNK = 64 * 1024


def context_of(folder: Path) -> ssl.SSLContext:
    """Return the client's side of TLS from a Secret's folder."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(folder / "ca.crt")
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    return context


def connect(folder: Path, timeout: float = 20.0) -> ssl.SSLSocket:
    """Return a connection to the front of the claim whose Secret lies in a folder."""
    name, _, port = (folder / "address").read_text().strip().rpartition(":")
    at = folder / "connect"  # another way to the same name, such as a forwarded port
    host, _, port = at.read_text().strip().rpartition(":") if at.exists() else (name, "", port)
    raw = socket.create_connection((host, int(port)), timeout=timeout)
    secured = context_of(folder).wrap_socket(raw, server_hostname=name)
    secured.settimeout(None)
    return secured


def serve(listener: socket.socket, folder: Path) -> None:
    """Pass each connection on, in threads of its own."""
    while True:
        inside, _ = listener.accept()
        threading.Thread(target=_pass, args=(inside, folder), daemon=True).start()


def _pass(inside: socket.socket, folder: Path) -> None:
    try:
        outside = connect(folder)
    except OSError as error:
        print(f"remote: no connection to the front: {error}", file=sys.stderr, flush=True)
        inside.close()
        return
    back = threading.Thread(target=_copy, args=(outside, inside), daemon=True)
    back.start()
    _copy(inside, outside)
    back.join()
    for one in (inside, outside):
        one.close()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError, ValueError):
        while data := source.recv(CHUNK):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_RDWR if isinstance(sink, ssl.SSLSocket) else socket.SHUT_WR)


def main() -> None:
    """Read the arguments and serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--secret", type=Path, default=Path(__file__).parent)
    parser.add_argument("--port", type=int, required=True, help="on loopback, for the engine")
    arguments = parser.parse_args()
    with socket.create_server(("127.0.0.1", arguments.port)) as listener:
        serve(listener, arguments.secret)


if __name__ == "__main__":
    main()
