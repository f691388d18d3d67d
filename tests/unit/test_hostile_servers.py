"""Downloads from servers and addresses that mean no good, or that nobody thought of."""

from __future__ import annotations

import hashlib
import os
import socket
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from bedplate.portable import addresses, archives, fetch
from bedplate.portable.fetch import FetchError, File, Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CONTENT = b"an installer\n"
WISH = File(hashlib.sha256(CONTENT).hexdigest(), 0o600)
OK = b"HTTP/1.1 200 OK\r\n"
SECRET = "hunter2"
Serve = "Callable[[Callable[[socket.socket], None]], str]"


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[socket.socket], None]], str]]:
    """A server that answers each connection as a function says; its address."""
    stop = threading.Event()
    sockets: list[socket.socket] = []

    def start(answer: Callable[[socket.socket], None]) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        listener.settimeout(0.1)
        sockets.append(listener)

        def one(connection: socket.socket) -> None:
            sockets.append(connection)
            try:
                connection.recv(65536)
                answer(connection)
                connection.close()
            except OSError:
                pass

        def run() -> None:
            while not stop.is_set():
                try:
                    connection, _ = listener.accept()
                except OSError:
                    continue
                threading.Thread(target=one, args=(connection,), daemon=True).start()

        threading.Thread(target=run, daemon=True).start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    yield start
    stop.set()
    for each in sockets:
        each.close()


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "_TIMEOUT", 3, raising=True)
    monkeypatch.setattr(fetch, "LIMITS", Limits(opening=1, grace=1, slowest=1000, largest=100_000))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "host/driver.run"


def drip(head: bytes) -> Callable[[socket.socket], None]:
    def answer(connection: socket.socket) -> None:
        connection.sendall(head)
        while True:
            connection.sendall(b"x")
            time.sleep(0.05)

    return answer


def chunks(connection: socket.socket) -> None:
    connection.sendall(OK + b"Transfer-Encoding: chunked\r\n\r\n")
    while True:
        connection.sendall(b"1\r\nx\r\n")
        time.sleep(0.05)


def gush(connection: socket.socket) -> None:
    connection.sendall(OK + b"\r\n")
    while True:
        connection.sendall(b"x" * 10_000)


SLOW = {
    "of known length": drip(OK + b"Content-Length: 10000000\r\n\r\n"),
    "of no length": drip(OK + b"\r\n"),
    "in chunks": chunks,
    "headers": drip(OK + b"X-Padding: "),
    "status": drip(b"HTTP/1.1 "),
    "silence": lambda _: time.sleep(100),
}


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("answer", SLOW.values(), ids=SLOW)
def test_a_server_that_drips_is_left(answer: object, serve: Serve, place: Path) -> None:  # type: ignore[valid-type]
    begun = time.monotonic()
    with pytest.raises(FetchError) as caught:
        fetch.ensure_file(serve(answer) + "/x", WISH, str(place))
    assert time.monotonic() - begun < 90
    assert str(caught.value).startswith(
        ("the download was ended — http://127.0.0.1:", "the download failed — http://127.0.0.1:")
    )
    assert list(place.parent.iterdir()) == []


@pytest.mark.usefixtures("hurried")
def test_small_files_have_the_same_limits(serve: Serve) -> None:  # type: ignore[valid-type]
    with pytest.raises(FetchError, match=r"the download was ended"):
        fetch.read(serve(SLOW["in chunks"]) + "/key")
    with pytest.raises(FetchError, match=r"got more than 100000 bytes"):
        fetch.read(serve(gush) + "/key")


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(
    "answer", [gush, drip(OK + b"Content-Length: 100001\r\n\r\n")], ids=["gushes", "announces"]
)
def test_a_download_has_a_largest_size(answer: object, serve: Serve, place: Path) -> None:  # type: ignore[valid-type]
    with pytest.raises(FetchError, match=r"^the download was ended — .* — got more than 100000 b"):
        fetch.ensure_file(serve(answer) + "/x", WISH, str(place))
    assert list(place.parent.iterdir()) == []


LONGER = {
    "gushes": gush,
    "announces": drip(OK + b"Content-Length: 1001\r\n\r\n"),
    "in chunks": lambda connection: connection.sendall(
        OK + b"Transfer-Encoding: chunked\r\n\r\n" + (b"1f4\r\n" + b"x" * 500 + b"\r\n") * 3
    ),
}


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("answer", LONGER.values(), ids=LONGER)
def test_a_file_of_known_size_is_cut_off_there(
    answer: object,
    serve: Serve,  # type: ignore[valid-type]
    place: Path,
) -> None:
    """The archive is one of a bill, which names its size."""
    archive = archives.Archive(
        "tool",
        "1",
        serve(answer) + "/tool",
        "a" * 64,
        str(place),
        "file",
        members=("x",),
        size=1000,
    )
    (problem,) = archives.ensure([archive]).problems
    assert "the download was ended — http://127.0.0.1:" in problem
    assert "got more than 1000 bytes / allowed at most 1000 bytes, " in problem
    assert not place.exists()


def test_a_disk_is_not_filled(serve: Serve, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[valid-type]
    free = [7 << 20]

    def disk(_: str) -> SimpleNamespace:
        """100 MiB, of which a twentieth is spared; less is free each time."""
        free[0] -= 100_000
        return SimpleNamespace(f_frsize=1, f_blocks=100 << 20, f_bavail=free[0])

    monkeypatch.setattr(fetch.os, "statvfs", disk)
    for answer in (gush, drip(OK + b"Content-Length: 3000000\r\n\r\n")):
        with pytest.raises(FetchError, match=r"^the download was ended — .* — got no room for"):
            fetch.ensure_file(serve(answer) + "/x", WISH, str(place))
    assert list(place.parent.iterdir()) == []


def whole(connection: socket.socket) -> None:
    """An answer after which the connection stays open, whatever the client asked for."""
    connection.sendall(OK + f"Content-Length: {len(CONTENT)}\r\n\r\n".encode() + CONTENT)
    time.sleep(100)


def test_an_answer_of_known_length_needs_no_end(serve: Serve, place: Path) -> None:  # type: ignore[valid-type]
    begun = time.monotonic()
    fetch.ensure_file(serve(whole) + "/x", WISH, str(place))
    assert place.read_bytes() == CONTENT
    assert time.monotonic() - begun < 90


def test_a_cut_answer_says_so(serve: Serve, place: Path) -> None:  # type: ignore[valid-type]
    def cut(connection: socket.socket) -> None:
        connection.sendall(OK + b"Content-Length: 1000\r\n\r\nabc")

    with pytest.raises(FetchError, match=r"got the connection ended after 3 of 1000 bytes"):
        fetch.ensure_file(serve(cut) + "/x", WISH, str(place))


ODD = {
    "no length": OK + b"Content-Length: many\r\n\r\n" + CONTENT,
    "another script": OK + "Content-Length: ٣\r\n\r\n".encode() + CONTENT,
}


@pytest.mark.parametrize("answer", ODD.values(), ids=ODD)
def test_a_length_that_is_none_does_not_count(answer: bytes, serve: Serve, place: Path) -> None:  # type: ignore[valid-type]
    fetch.ensure_file(serve(lambda c: c.sendall(answer)) + "/x", WISH, str(place))
    assert place.read_bytes() == CONTENT


BROKEN = {
    "no HTTP": b"SSH-2.0-OpenSSH\r\n",
    "nothing": b"",
    "a status of letters": b"HTTP/1.1 ok\r\n\r\n",
    "a broken chunk": OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    "a negative chunk": OK + b"Transfer-Encoding: chunked\r\n\r\n-5\r\n",
    "too many headers": OK + b"A: b\r\n" * 500 + b"\r\n",
    "a redirection to nowhere": b"HTTP/1.1 302 Found\r\nLocation: http://[::1/x\r\n\r\n",
    "a redirection to a file": b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\n\r\n",
    "a redirection to a port": b"HTTP/1.1 302 Found\r\nLocation: http://h:99999/x\r\n\r\n",
    "a redirection in Latin 1": b"HTTP/1.1 302 Found\r\nLocation: http://\xe9..x/\r\n\r\n",
    "a reason of commands": b"HTTP/1.1 404 \x1b]0;owned\x07\x1b[2J\r\n\r\n",
}


@pytest.mark.parametrize("answer", BROKEN.values(), ids=BROKEN)
def test_an_odd_answer_is_an_error_of_fetching(answer: bytes, serve: Serve, place: Path) -> None:  # type: ignore[valid-type]
    with pytest.raises(FetchError) as caught:
        fetch.ensure_file(serve(lambda c: c.sendall(answer)) + "/x", WISH, str(place))
    assert str(caught.value).startswith("the download failed — http://127.0.0.1:")
    assert str(caught.value).isprintable()


ADDRESSES = [
    "http://[::1/x",
    "http://127.0.0.1:99999/x",
    "http://127.0.0.1:abc/x",
    "http://127.0.0.1:٣/x",
    "http:///x",
    "http://",
    "https://",
    "http://a b/x",
    "http://127.0.0.1/a b",
    "http://127.0.0.1/a\nHost: b",
    "http://127.0.0.1/a\0b",
    "http://ü..x/",
    "http://" + "a" * 300 + "/x",
    "http://127.0.0.1/\udc80",
    "file:///no\0thing",
    "file://" + "/a" * 3000,
    "file:///etc",
    "HTTP//x",
    "",
]


@pytest.mark.parametrize("url", ADDRESSES)
def test_an_address_that_cannot_be_used_is_an_error_of_fetching(url: str, place: Path) -> None:
    for ask in (lambda: fetch.ensure_file(url, WISH, str(place)), lambda: fetch.read(url)):
        with pytest.raises(FetchError) as caught:
            ask()
        assert str(caught.value).isprintable()


def test_an_address_of_other_letters_is_asked_for(serve: Serve, place: Path) -> None:  # type: ignore[valid-type]
    fetch.ensure_file(serve(whole) + "/ünï/%C3%BC?a=ü", WISH, str(place))
    assert place.read_bytes() == CONTENT


SECRETS = [
    f"http://me:{SECRET}@127.0.0.1:1/x",
    f"http://me:{SECRET}/x@127.0.0.1:1/x",
    f"http://me:a/{SECRET}@127.0.0.1:1/x",
    f"http://me:a#{SECRET}@127.0.0.1:1/x",
    f"http://me:a?{SECRET}@127.0.0.1:1/x",
    f"http://me:a@{SECRET}@127.0.0.1:1/x",
    f"http://me:a@{SECRET}/b@127.0.0.1:1/x",
    f"http://me:{SECRET}[@127.0.0.1:1/x",
    f"http://{SECRET}/@127.0.0.1:1/x",
    f"http://127.0.0.1:1/x?token={SECRET}",
    f"http://127.0.0.1:1/x?a=b@c&token={SECRET}",
    f"http://127.0.0.1:1/x#{SECRET}",
    f"http://me:{SECRET}@127.0.0.1:abc/x",
    f"http://me:{SECRET} @127.0.0.1:1/x",
    f"http://me:{SECRET}\n@127.0.0.1:1/x",
    f"ftp://me:a/{SECRET}@127.0.0.1/x",
    f"me:a/{SECRET}@127.0.0.1/x",
    f"http://me:{SECRET}@127.0.0.1:1",
]


@pytest.mark.parametrize("url", SECRETS)
def test_no_message_has_a_password(url: str, place: Path) -> None:
    said = [addresses.shown(url)]
    for ask in (lambda: fetch.ensure_file(url, WISH, str(place)), lambda: fetch.read(url)):
        with pytest.raises(FetchError) as caught:
            ask()
        said.append(str(caught.value))
    for digest in ("", WISH.sha256, url):
        wish = archives.Archive("a", "1", url, digest, str(place.parent / "store/a/1"))
        said += archives.ensure([wish]).problems
    with pytest.raises(FetchError) as caught:
        fetch.named_digest(b"none\n", url, url)
    said.append(str(caught.value))
    assert len(said) == 7
    assert not [text for text in said if SECRET in text]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://mirror.example/a/b.tgz", "https://mirror.example/a/b.tgz"),
        ("https://me:x@mirror.example/a", "https://mirror.example/a"),
        ("https://mirror.example/a?x=1#y", "https://mirror.example/a?…"),
        ("https://mirror.example/@scope/a", "https://…@scope/a"),
        ("file:///srv/a", "file:///srv/a"),
    ],
)
def test_what_a_message_shows_of_an_address(url: str, shown: str) -> None:
    assert addresses.shown(url) == shown


def test_the_name_in_a_list_of_digests_is_that_of_the_file() -> None:
    lists = f"{'0' * 64}  a+b.tgz\n".encode()
    assert fetch.named_digest(lists, "https://m/x/a%2Bb.tgz?sig=1", "") == "0" * 64


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/..", "http://127.0.0.1:1/" + "a" * 300])
def test_the_name_of_a_download_is_one_of_a_file(url: str, tmp_path: Path) -> None:
    wish = archives.Archive("a", "1", url, WISH.sha256, str(tmp_path / "store/a/1"))
    (problem,) = archives.ensure([wish]).problems
    assert problem.startswith("a 1: the download failed — ")


@pytest.mark.parametrize("content", [CONTENT, b"other"])
def test_a_link_is_replaced_and_what_it_names_stays(content: bytes, tmp_path: Path) -> None:
    source, theirs, place = (tmp_path / name for name in ("source", "theirs", "place"))
    source.write_bytes(CONTENT)
    theirs.write_bytes(content)
    theirs.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(theirs, 1, 1)
    before = theirs.stat()
    place.symlink_to(theirs)
    assert fetch.found(str(place)) == File("", 0)
    fetch.ensure_file(source.as_uri(), WISH._replace(mode=0o777), str(place))
    assert not place.is_symlink()
    assert fetch.found(str(place)) == WISH._replace(mode=0o777)
    after = theirs.stat()
    assert (after.st_mode, after.st_uid) == (before.st_mode, before.st_uid)
    assert theirs.read_bytes() == content


def test_a_pipe_in_the_place_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(CONTENT)
    os.mkfifo(tmp_path / "place")
    fetch.ensure_file((tmp_path / "source").as_uri(), WISH, str(tmp_path / "place"))
    assert fetch.found(str(tmp_path / "place")) == WISH
