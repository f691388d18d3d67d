"""Large files from servers that break off, drip, or know no rest of a file."""

from __future__ import annotations

import hashlib
import re
import socket
import threading
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pytest

from bedplate.bill import web
from bedplate.bill.errors import ResolveError
from bedplate.common.progress import Progress
from bedplate.mirror.download import Downloads, Part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CONTENT = bytes(range(256)) * 4096
HALF = len(CONTENT) // 2


def whole(length: int) -> bytes:
    """Return the head of an answer with all of a file."""
    return f"HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n".encode()


@contextmanager
def serving(*answers: Callable[[socket.socket, int], None]) -> Iterator[tuple[str, list[int]]]:
    """Answer each connection by one of these, the last ones by the last; note where they begin."""
    asked: list[int] = []

    def run() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                found = re.search(rb"Range: bytes=(\d+)-", connection.recv(65536))
                asked.append(int(found[1]) if found else 0)
                answer = answers[min(len(asked), len(answers)) - 1]
                try:
                    answer(connection, asked[-1])
                except OSError:
                    continue  # the client has left

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=run, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/file", asked
        listener.shutdown(socket.SHUT_RDWR)


def half(connection: socket.socket, _: int) -> None:
    """Begin at the beginning, and end in the middle."""
    connection.sendall(whole(len(CONTENT)) + CONTENT[:HALF])


def all_of_it(connection: socket.socket, _: int) -> None:
    connection.sendall(whole(len(CONTENT)) + CONTENT)


def drip(connection: socket.socket, offset: int) -> None:
    """Give a byte at a time: each connection a few more of the file, and never all of it."""
    left = len(CONTENT) - offset
    connection.sendall(f"HTTP/1.1 206 Partial\r\nContent-Length: {left}\r\n\r\n".encode())
    stop = threading.Event()
    for byte in CONTENT[offset:]:
        connection.sendall(bytes([byte]))
        stop.wait(0.02)


def fetched(url: str, folder: Path) -> Part:
    part = Part("tool", url, hashlib.sha256(CONTENT).hexdigest(), len(CONTENT), folder / "tool")
    with closing(web.Web()) as client:
        Downloads(client, folder / "incoming", Progress()).fetch(part)
    return part


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "PAUSE", 0.01)


def test_a_server_that_knows_no_rest_is_asked_for_all_again(tmp_path: Path) -> None:
    with serving(half, all_of_it) as (url, asked):
        assert fetched(url, tmp_path).damage() == ""
    assert asked == [0, HALF]


def test_a_server_that_always_breaks_off_at_the_same_place_is_left(tmp_path: Path) -> None:
    with (
        serving(half) as (url, asked),
        pytest.raises(ResolveError, match=r"^tool breaks off — http.* — got "),
    ):
        fetched(url, tmp_path)
    assert asked == [0, *[HALF] * (web.RESUMED - 1)]


def test_a_server_that_drips_a_large_file_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "SLOWEST_SECONDS", 0.2)
    with (
        serving(drip) as (url, asked),
        pytest.raises(ResolveError, match=r"^tool breaks off — .* — got \d+ bytes in 0 s"),
    ):
        fetched(url, tmp_path)
    assert len(asked) == web.RESUMED


def test_what_an_earlier_run_has_left_goes_on_and_does_not_count_if_it_was_wrong(
    tmp_path: Path,
) -> None:
    (tmp_path / "incoming").mkdir()
    (tmp_path / "incoming" / hashlib.sha256(CONTENT).hexdigest()).write_bytes(b"x" * HALF)
    with serving(all_of_it) as (url, asked):
        assert fetched(url, tmp_path).damage() == ""
    assert asked == [HALF, 0]


def test_another_size_is_refused_before_it_is_fetched(tmp_path: Path) -> None:
    def longer(connection: socket.socket, _: int) -> None:
        connection.sendall(whole(len(CONTENT) + 1))

    got = rf"got {len(CONTENT) + 1} bytes / allowed {len(CONTENT)} bytes"
    with (
        serving(longer) as (url, _),
        pytest.raises(ResolveError, match=rf"^tool has another size than listed — .* — {got}"),
    ):
        fetched(url, tmp_path)
