"""One file from an address: whole and by digest, exchanged in one step, through the proxy."""

from __future__ import annotations

import hashlib
import http.client
import io
import os
import urllib.error
import urllib.request
from base64 import b64encode
from contextlib import nullcontext
from email.message import Message
from typing import TYPE_CHECKING, ClassVar

import pytest
from ansible_collections.bedplate.gpu.plugins.modules import package_repository

from bedplate.portable import addresses, fetch, proxy
from bedplate.portable.fetch import FetchError, File
from tests.substrate import proxy as standin

if TYPE_CHECKING:
    from pathlib import Path

CONTENT = b"an installer\n"
WISH = File(hashlib.sha256(CONTENT).hexdigest(), 0o600)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The file on its server."""
    path = tmp_path / "server/driver.run"
    path.parent.mkdir()
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where it is wished, in a folder that is not there yet."""
    return tmp_path / "host/driver.run"


def test_a_file_comes_with_digest_and_mode_and_nothing_beside_it(source: Path, place: Path) -> None:
    assert fetch.found(str(place)) == File("", 0)
    fetch.ensure_file(source.as_uri(), WISH, str(place))
    assert place.read_bytes() == CONTENT
    assert fetch.found(str(place)) == WISH
    assert list(place.parent.iterdir()) == [place]


def test_another_file_is_exchanged_and_what_a_killed_run_left_goes(
    source: Path, place: Path
) -> None:
    left = place.parent / ".bedplate-driver.run.abcdef"
    left.mkdir(parents=True)
    (left / "new").write_bytes(CONTENT[:4])
    place.write_text("an older one\n")
    fetch.ensure_file(source.as_uri(), WISH, str(place))
    assert fetch.found(str(place)) == WISH
    assert list(place.parent.iterdir()) == [place]


def test_only_the_mode_needs_no_source(source: Path, place: Path) -> None:
    fetch.ensure_file(source.as_uri(), WISH, str(place))
    place.chmod(0o755)
    source.unlink()
    fetch.ensure_file(source.as_uri(), WISH, str(place))
    assert fetch.found(str(place)) == WISH


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_another_user_becomes_ours(source: Path, place: Path) -> None:
    fetch.ensure_file(source.as_uri(), WISH, str(place))
    os.chown(place, 1, 1)
    assert fetch.found(str(place)) == WISH._replace(mine=False)
    fetch.ensure_file(source.as_uri(), WISH, str(place))
    assert fetch.found(str(place)) == WISH


def test_a_user_in_the_address_is_sent_as_such_and_told_to_nobody(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[urllib.request.Request] = []

    def refuse(_: object, request: urllib.request.Request, timeout: float) -> None:
        assert timeout > 0
        asked.append(request)
        raise urllib.error.HTTPError(request.full_url, 401, "Unauthorized", Message(), None)

    monkeypatch.setattr(urllib.request.OpenerDirector, "open", refuse)
    with pytest.raises(FetchError) as caught:
        fetch.ensure_file("https://me:s%40cret@mirror.example/x", WISH, str(place))
    (one,) = asked
    assert one.full_url == "https://mirror.example/x"
    assert one.get_header("Authorization") == f"Basic {b64encode(b'me:s@cret').decode()}"
    assert "https://mirror.example/x — got HTTP 401" in str(caught.value)
    assert "cret" not in str(caught.value)


def test_another_digest_is_refused_and_what_is_there_stays(source: Path, place: Path) -> None:
    fetch.ensure_file(source.as_uri(), WISH, str(place))
    source.write_bytes(b"evil\n")
    with pytest.raises(FetchError) as caught:
        fetch.ensure_file(source.as_uri(), WISH._replace(sha256="0" * 64), str(place))
    digest = hashlib.sha256(b"evil\n").hexdigest()
    assert str(caught.value) == (
        f"the download has another digest — {source.as_uri()} — got sha256:{digest} (5 bytes) / "
        f"allowed sha256:{'0' * 64} — Nothing was installed. If the source was rebuilt, make the "
        "plan and the mirror again; otherwise do not trust this source."
    )
    assert fetch.found(str(place)) == WISH
    assert list(place.parent.iterdir()) == [place]


def test_a_download_that_breaks_off_is_told(place: Path) -> None:
    class Broken(io.BytesIO):
        def read(self, _size: int | None = -1, /) -> bytes:
            raise http.client.IncompleteRead(b"an in")

    with pytest.raises(FetchError) as caught:
        fetch.ensure_file("http://mirror.example/x", WISH, str(place), lambda _: Broken())
    assert str(caught.value).startswith(
        "the download failed — http://mirror.example/x — got IncompleteRead(5 bytes read) / "
        "allowed a server that answers with the file — "
    )
    assert list(place.parent.iterdir()) == []


class Exit(Exception):  # noqa: N818 the end of a module is no error
    """How a module ended."""


class Module:
    """The module that offers a repository, whose key has this address."""

    params: ClassVar = {"key": "https://me:s%40cret@mirror.example/key"}

    def fail_json(self, msg: str) -> None:
        raise Exit(msg)


@pytest.mark.parametrize("broken", [http.client.IncompleteRead(b"an in"), OSError("reset")])
def test_a_small_file_that_breaks_off_is_told_too(
    broken: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(*_: object, **__: object) -> io.BytesIO:
        return Broken(broken)

    class Broken(io.BytesIO):
        def __init__(self, why: Exception) -> None:
            super().__init__()
            self.why = why

        def read(self, _size: int | None = -1, /) -> bytes:
            raise self.why

    monkeypatch.setattr(urllib.request.OpenerDirector, "open", answer)
    said = f"the download failed — https://mirror.example/key — got {broken} / allowed a server "
    with pytest.raises(FetchError) as caught:
        fetch.resolve_digest(Module.params["key"], "https://mirror.example/x")
    assert str(caught.value).startswith(said)
    with pytest.raises(Exit) as ended:
        package_repository.fetched(Module(), "0" * 40)
    assert str(ended.value).startswith(f"the repository's key: {said}")


def test_another_key_is_told_without_the_password_of_its_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        urllib.request.OpenerDirector, "open", lambda *_, **__: io.BytesIO(b"no key")
    )
    with pytest.raises(Exit) as ended:
        package_repository.fetched(Module(), "0" * 40)
    assert "the repository's key is another one — " in str(ended.value)
    assert " — got https://mirror.example/key: " in str(ended.value)
    assert "cret" not in str(ended.value)


def test_an_address_that_cannot_be_used_is_told_without_its_password() -> None:
    with pytest.raises(FetchError) as caught:
        fetch.read("ftp://me:s%40cret@mirror.example/x")
    assert str(caught.value).startswith(
        "the address cannot be used — ftp://mirror.example/x — got ftp / allowed http, https "
    )


def test_a_place_that_cannot_be_written_is_told(source: Path, place: Path) -> None:
    place.parent.write_text("a file in the folder's place")
    with pytest.raises(FetchError) as caught:
        fetch.ensure_file(source.as_uri(), WISH, str(place))
    assert str(caught.value) == (
        f"the download cannot be put in place — {place} — got [Errno 17] File exists: "
        f"'{place.parent}' / allowed a file in a writable file system — Fix the file system, or "
        "name another place, and run again."
    )


def test_it_comes_through_the_hosts_proxy(
    source: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{standin.BEHIND}/{source.name}"
    with standin.proxy(source.parent) as variables:
        for name in (*variables, "no_proxy", "NO_PROXY"):
            monkeypatch.setenv(name, "")  # so that what is fetched leaves nothing behind
        with pytest.raises(FetchError, match="the download failed"):
            fetch.ensure_file(url, WISH, str(place))
        monkeypatch.setattr(proxy, "variables", lambda: variables)
        fetch.ensure_file(url, WISH, str(place))
    assert fetch.found(str(place)) == WISH


@pytest.mark.parametrize(
    ("networks", "direct"),
    [("10.0.0.0/8", False), ("mirror.example, 127.0.0.0/8", True), ("127.0.0.9/24,::/0", True)],
)
def test_an_address_in_a_network_that_needs_no_proxy_is_opened_without(
    source: Path, place: Path, monkeypatch: pytest.MonkeyPatch, networks: str, direct: bool
) -> None:
    with standin.proxy(source.parent) as variables:
        for name in (*variables, "no_proxy", "NO_PROXY"):
            monkeypatch.setenv(name, "")
        monkeypatch.setattr(proxy, "variables", lambda: variables | {"no_proxy": networks})
        # Asked as a server, it has nothing.
        with pytest.raises(FetchError, match="HTTP 404") if direct else nullcontext():
            fetch.ensure_file(f"{variables['http_proxy']}/{source.name}", WISH, str(place))


@pytest.mark.parametrize(
    ("place", "inside"),
    [
        ("10.1.2.3", True),
        ("10.1.2.3:8080", True),
        ("[fd00::7]:8080", True),
        ("192.168.1.5", True),
        ("192.168.1.6", False),
        ("[fe80::7]", False),
        ("10.example", False),
        ("[broken", False),
        ("", False),
    ],
)
def test_networks_count_for_addresses_alone(place: str, inside: bool) -> None:
    assert (
        addresses.in_networks(place, "mirror.example,10.0.0.0/8, fd00::/8,192.168.1.5,") == inside
    )
