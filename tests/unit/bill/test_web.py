"""Small requests to servers that never end."""

from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

from bedplate.bill import web
from bedplate.bill.errors import ResolveError

if TYPE_CHECKING:
    from collections.abc import Iterator

HEAD = b"HTTP/1.1 200 OK\r\n"
DRIPS = {
    "of known length": (HEAD + b"Content-Length: 1000000\r\n\r\n", b"x"),
    "of no length": (HEAD + b"\r\n", b"x"),
    "in chunks": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
}


@pytest.fixture(params=DRIPS.values(), ids=DRIPS)
def drip(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a server that gives a byte at a time, for ever."""
    head, piece = request.param
    stop = threading.Event()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(head)
            while not stop.wait(0.05):
                connection.sendall(piece)

    def run() -> None:
        try:
            serve()
        except OSError:
            stop.set()  # the client has left

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=run, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/index"
        stop.set()


def test_a_server_that_drips_is_left(drip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "WHOLE_SECONDS", 1.0, raising=False)
    client, begun = web.Web(), time.monotonic()
    with pytest.raises(ResolveError, match=r"answer takes too long"):
        client.content(drip, "index")
    assert time.monotonic() - begun < 90
    client.close()


@pytest.mark.parametrize(
    ("said", "length"),
    [("12", 12), ("", None), ("-1", None), ("x", None), ("\u00b2", None), ("9" * 5000, None)],
)
def test_a_length_that_is_none_is_taken_for_none(said: str, length: int | None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(HEAD + f"Content-Length: {said}\r\n\r\n".encode("latin-1"))

        threading.Thread(target=serve, daemon=True).start()
        client = web.Web()
        assert client.length(f"http://127.0.0.1:{listener.getsockname()[1]}/file") == length
        client.close()
