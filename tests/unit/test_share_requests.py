"""The service for shares and requests that no client of ours sends."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Any, cast

import pytest

from bedplate.hub import shares
from bedplate.hub.courses import LESSON
from bedplate.hub.share_service import Service, server

if TYPE_CHECKING:
    from collections.abc import Iterator


class Echo:
    def answer(self, *_: object) -> dict[str, Any]:
        return {"reached": True}


@pytest.fixture
def address() -> Iterator[tuple[str, int]]:
    with server(cast("Service", Echo()), ("127.0.0.1", 0), "/services/shares/") as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running.server_address[:2]  # type: ignore[misc]
        running.shutdown()
        thread.join()


DEEP = b"[" * 50_000


@pytest.mark.parametrize(
    ("length", "body"),
    [
        (b"-5", b""),
        (b"many", b""),
        ("٣".encode(), b"{}"),
        (b"1_0", b'{"a": 1.0}'),
        (b"+2", b"{}"),
        (str(len(DEEP)).encode(), DEEP),
        (b"1", b"["),
        (b"2", b"[]"),
    ],
)
def test_a_body_that_is_none_is_refused_at_once(
    length: bytes, body: bytes, address: tuple[str, int]
) -> None:
    with socket.create_connection(address, timeout=60) as client:
        head = b"POST /services/shares/x HTTP/1.1\r\nHost: h\r\nContent-Length: "
        client.sendall(head + length + b"\r\n\r\n" + body)
        assert client.recv(65536).split(b"\r\n")[0] in {
            b"HTTP/1.1 400 Bad Request",
            b"HTTP/1.1 413 Request Entity Too Large",
        }


def test_a_body_in_chunks_is_refused_and_ends_the_connection(address: tuple[str, int]) -> None:
    """What its chunks are is not read as further requests."""
    head = b"POST /services/shares/x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    second = b"GET /services/shares/y HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
    with socket.create_connection(address, timeout=60) as client:
        client.sendall(head + second)
        said = b"".join(iter(lambda: client.recv(65536), b""))
    assert said.startswith(b"HTTP/1.1 400 ")
    assert said.count(b"HTTP/1.1 ") == 1


def test_hours_and_spans_are_of_plain_digits() -> None:
    assert LESSON.fullmatch("Mon 10:00-12:00")
    assert LESSON.fullmatch("Mon 1\u0660:00-12:00") is None
    assert shares.SPAN.fullmatch("2h")
    assert shares.SPAN.fullmatch("\u0662h") is None
