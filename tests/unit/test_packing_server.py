"""Requests to the extender whose body has no length that can be read."""

from __future__ import annotations

import json
import socket
import threading
from typing import TYPE_CHECKING, Any, cast

import pytest

from bedplate.pods.packing import server as packing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bedplate.pods.packing.extender import Extender


class Echo:
    """Answers with what it was asked."""

    @staticmethod
    def filter(question: dict[str, Any]) -> dict[str, Any]:
        """Return the question."""
        return question

    bind = filter  # noqa: A003


@pytest.fixture
def address() -> Iterator[tuple[str, int]]:
    """The address of the running server."""
    with packing._Server(
        ("127.0.0.1", 0),
        packing._Questions,
        cast("Extender", Echo()),
    ) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield "127.0.0.1", running.server_address[1]
        running.shutdown()


def answers(address: tuple[str, int], *sent: bytes) -> bytes:
    """Return all that the server says until it closes the connection."""
    with socket.create_connection(address, timeout=60) as connection:
        connection.sendall(b"".join(sent))
        return b"".join(iter(lambda: connection.recv(65536), b""))


NEXT = b"POST /filter HTTP/1.1\r\nContent-Length: 8\r\nConnection: close\r\n\r\n" + b'{"a": 2}'


@pytest.mark.parametrize(
    "header",
    [
        b"Content-Length: -1",
        b"Content-Length: -99",
        b"Content-Length: 99999999999999999999",
        b"Content-Length: 999999999",
        b"Content-Length: 0x10",
        "Content-Length: \u0663".encode(),
        b"Transfer-Encoding: chunked",
    ],
)
def test_a_body_without_a_length_is_refused_and_ends_the_connection(
    address: tuple[str, int], header: bytes
) -> None:
    """What follows it is no second question."""
    said = answers(address, b"POST /filter HTTP/1.1\r\n", header, b"\r\n\r\n", NEXT)
    assert said.startswith(b"HTTP/1.1 400 ")
    assert said.count(b"HTTP/1.1 ") == 1
    assert "no length of the body — allowed 0 to".encode() in said


def test_a_question_with_a_length_is_answered(address: tuple[str, int]) -> None:
    _, _, body = answers(address, NEXT).partition(b"\r\n\r\n")
    assert json.loads(body) == {"a": 2}
