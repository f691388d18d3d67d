"""`bedplate mirror serve`: nginx alone over the store, one at a time, and only its own."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import http.server
import json
import re
import resource
import socket
import ssl
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bedplate.bill import Bill, File, Known, Places, write_bill
from bedplate.bill.registry import image
from bedplate.bill.web import Web
from bedplate.cli.main import main
from bedplate.common import writing
from bedplate.mirror import processes, service
from bedplate.mirror.store import Store, cache
from tests.schedulers.api import eventually
from tests.schedulers.processes import free_port
from tests.substrate.internet.authority import Authority
from tests.substrate.internet.tree import Tree
from tests.unit.bill.made import mirrored_demo
from tests.unit.mirror.child import start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.unit.mirror.conftest import Field

DEMO = Path(__file__).parents[3] / "inventories" / "demo"
FILE = "dl.k8s.io/v1/node.tar.gz"
IMAGE = "registry.k8s.io/pause:3.10.2"
CONTENT = b"content of a file" * 100


def make_site(folder: Path, url: str) -> Path:
    """Return a site whose lock names a mirror at this address, and whose bill has one file."""
    folder.mkdir()
    text = (DEMO / ".bedplate.lock.yml").read_text()
    changed = re.sub(r"(?m)^  mode: mirror\n  url: .*\n", f"  mode: mirror\n  url: {url}\n", text)
    assert changed != text
    (folder / ".bedplate.lock.yml").write_text(changed)
    return with_bill(folder)


def planned_site(folder: Path, url: str) -> Path:
    """Return a site that is planned for a mirror at this address, and whose bill has one file."""
    return with_bill(mirrored_demo(folder, url))


def with_bill(folder: Path) -> Path:
    """Write a bill with the one file into a site."""
    sha256 = hashlib.sha256(CONTENT).hexdigest()
    known = Known(checksum_file=f"https://{FILE}.sha256")
    size = len(CONTENT)
    entry = File(version="1", url=f"https://{FILE}", sha256=sha256, size=size, known=known)
    write_bill(folder, Bill(files={"node": entry}))
    return folder


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A cache whose mirror has one file and one image; what serves it is stopped in the end."""
    monkeypatch.setenv("BEDPLATE_CACHE", str(tmp_path / "cache"))
    found = Store(cache() / "mirror")
    writing.replace(found.place(FILE), CONTENT)
    Tree(found.root).image(IMAGE, (b"layer " * 1000,))
    yield found
    for record in tmp_path.rglob("nginx.json"):
        processes.stop(record)


def get(url: str, method: str = "GET", ca: Path | None = None, **headers: str) -> Answer:
    """Ask a server once."""
    scheme, _, rest = url.partition("://")
    place, _, path = rest.partition("/")
    if scheme == "https":
        context = ssl.create_default_context(cafile=ca)
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            place, timeout=30, context=context
        )
    else:
        connection = http.client.HTTPConnection(place, timeout=30)
    with contextlib.closing(connection):
        connection.request(method, f"/{path}", headers=headers)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()


Answer = tuple[int, dict[str, str], bytes]


def test_files_and_images_are_served_by_nginx_alone(tmp_path: Path, store: Store) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    site = make_site(tmp_path / "site", url)
    assert main(["mirror", "serve", str(site)]) == 0
    assert get(f"{url}/files/{FILE}")[2] == CONTENT
    assert get(f"{url}/files/{FILE}", Range="bytes=5-")[::2] == (206, CONTENT[5:])
    assert get(f"{url}/v2/")[::2] == (200, b"{}")
    web = Web()
    there = image(web, Places(url, {}), IMAGE, "pause")
    web.close()
    status, headers, body = get(f"{url}/v2/registry.k8s.io/pause/manifests/3.10.2", "HEAD")
    assert (status, body, headers["Docker-Content-Digest"]) == (200, b"", there.digest)
    assert headers["Content-Type"] == "application/vnd.oci.image.index.v1+json"
    where = f"{url}/v2/registry.k8s.io/pause"
    status, headers, body = get(f"{where}/manifests/{there.manifest}")
    assert headers["Content-Type"] == "application/vnd.oci.image.manifest.v1+json"
    layer = json.loads(body)["layers"][0]
    assert get(f"{where}/blobs/{layer['digest']}")[2] == b"layer " * 1000
    for path in ("manifests/9", "blobs/sha256:" + "0" * 64, "manifests/%2e%2e/x", "tags/list"):
        assert get(f"{where}/{path}")[0] == 404
    assert get(f"{url}/manifest/index/{there.digest}")[0] == 404
    assert get(f"{url}/files/../contents.json")[0] in (400, 404)
    for method in ("PUT", "POST", "PATCH", "DELETE"):
        assert get(f"{where}/manifests/3.10.2", method)[0] == 405
        assert get(f"{url}/files/{FILE}", method)[0] == 403
    Tree(store.root).image("ghcr.io/org/late:1")
    service.refresh_all(store)
    late = f"{url}/v2/ghcr.io/org/late/manifests/1"
    assert eventually(lambda: get(late)[0] == 200), "an image that came later"
    assert main(["mirror", "stop", str(site)]) == 0
    with pytest.raises(OSError, match="refused"):
        get(url)


def test_over_tls_with_the_sites_certificate(
    tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    authority = Authority(tmp_path / "authority")
    authority.context(["localhost"])
    url = f"https://localhost:{free_port()}"
    site = planned_site(tmp_path / "site", url)
    pair = [tmp_path / "authority" / f"server.{end}" for end in ("crt", "key")]
    assert main(["mirror", "serve", str(site)]) == 3
    assert "address and the certificate do not go together" in capsys.readouterr().err
    words = ["mirror", "serve", str(site), "--certificate", str(pair[0]), "--key", str(pair[1])]
    assert main(words) == 0
    assert get(f"{url}/files/{FILE}", ca=authority.certificate)[2] == CONTENT
    with pytest.raises(ssl.SSLError):
        get(f"{url}/files/{FILE}")
    assert main(words) == 0
    assert main(["mirror", "status", str(site)]) == 0
    assert "already serving" in capsys.readouterr().out
    assert main(["mirror", "stop", str(site)]) == 0


def test_on_an_address_of_ipv6(tmp_path: Path, store: Store) -> None:
    url = f"http://[::1]:{free_port('::1')}"
    site = planned_site(tmp_path / "site", url)
    assert main(["mirror", "serve", str(site)]) == 0
    assert get(f"{url}/files/{FILE}")[2] == CONTENT
    assert main(["mirror", "status", str(site)]) == 0
    assert main(["mirror", "stop", str(site)]) == 0
    assert main(["mirror", "status", str(site)]) == 1


def test_pairs_that_serve_at_once_take_turns(field: Field, tmp_path: Path, store: Store) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    site = make_site(tmp_path / "site", url)
    for turn in range(2):
        pair = [
            start(field.vendors, cache(), tmp_path / f"{turn}{one}", ["mirror", "serve", str(site)])
            for one in ("a", "b")
        ]
        assert [one.end() for one in pair] == [0, 0], [one.said for one in pair]
        assert sorted("already" in one.said for one in pair) == [False, True]
        assert get(f"{url}/files/{FILE}")[2] == CONTENT
        assert main(["mirror", "stop", str(site)]) == 0
        assert served_from(tmp_path) == []


def served_from(folder: Path) -> list[int]:
    """Return the processes that were started with a configuration below a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(folder).encode() in path.read_bytes() and b"nginx" in path.read_bytes():
                found.append(int(path.parent.name))
    return found


@pytest.fixture
def other() -> Iterator[int]:
    """A server that answers everything with 200, and its port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server.server_port
        server.shutdown()


def test_a_port_that_another_server_holds_is_not_called_served(
    other: int, tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    site = planned_site(tmp_path / "site", f"http://127.0.0.1:{other}")
    capsys.readouterr()
    assert main(["mirror", "serve", str(site)]) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert "the mirror's nginx does not serve" in said.err
    assert "Address already in use" in said.err
    assert main(["mirror", "status", str(site)]) == 1
    assert served_from(tmp_path) == []


@pytest.mark.parametrize(
    "damage",
    [lambda path: path.unlink(), lambda path: path.write_bytes(CONTENT[:-1])],
    ids=["missing", "truncated"],
)
def test_a_damaged_mirror_is_not_called_served(
    damage: Callable[[Path], object],
    request: pytest.FixtureRequest,
    tmp_path: Path,
    store: Store,
    capsys: pytest.CaptureFixture[str],
) -> None:
    site = planned_site(tmp_path / "site", f"http://127.0.0.1:{free_port()}")
    assert main(["mirror", "serve", str(site)]) == 0
    damage(store.place(FILE))
    capsys.readouterr()
    assert main(["mirror", "status", str(site)]) == 1
    wrong = f"node: {request.node.callspec.id}"
    assert wrong in capsys.readouterr().out
    assert main(["mirror", "serve", str(site)]) == 3
    assert wrong in capsys.readouterr().err
    main(["mirror", "stop", str(site)])


@pytest.mark.parametrize(
    ("url", "got"),
    [
        ("http://me:hunter2@127.0.0.1:5994", "a user, a query or a fragment"),
        ("http://127.0.0.1:5994?token=hunter2", "a user, a query or a fragment"),
        ("http://127.0.0.1:0", "port 0"),
        ("http://127.0.0.1:99999", "Port out of range"),
        ("http://127.0.0.1:abc", "Port could not be cast"),
        ("http://127.0.0.1:5994/below", "the path /below"),
        ("ftp://127.0.0.1:5994", "no host"),
    ],
)
def test_an_address_that_no_mirror_has_is_refused(
    url: str, got: str, tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    site = make_site(tmp_path / "site", f'"{url}"')
    for verb in ("serve", "status", "stop"):
        assert main(["mirror", verb, str(site)]) == 3
        said = capsys.readouterr().err
        assert said.startswith("no mirror can be served at this address — ")
        assert got in said
        assert "hunter2" not in said


def test_one_address_in_two_forms_is_one_mirror(tmp_path: Path, store: Store) -> None:
    port = free_port()
    site = make_site(tmp_path / "site", f"http://LOCALHOST:{port}/")
    assert main(["mirror", "serve", str(site)]) == 0
    again = make_site(tmp_path / "again", f"http://localhost:{port}")
    assert main(["mirror", "stop", str(again)]) == 0
    assert served_from(tmp_path) == []


def test_a_relative_cache_serves(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BEDPLATE_CACHE", "cache")
    url = f"http://127.0.0.1:{free_port()}"
    site = make_site(tmp_path / "site", url)
    assert main(["mirror", "serve", str(site)]) == 0
    assert get(f"{url}/files/{FILE}")[2] == CONTENT
    assert main(["mirror", "stop", str(site)]) == 0


def test_half_open_connections_keep_no_one_out(tmp_path: Path, store: Store) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, hard), hard))
    url = f"http://127.0.0.1:{free_port()}"
    site = make_site(tmp_path / "site", url)
    assert main(["mirror", "serve", str(site)]) == 0
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        port = int(url.rpartition(":")[2])
        for _ in range(2200):
            half = stack.enter_context(socket.create_connection(("127.0.0.1", port), 30))
            half.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n")
        assert get(f"{url}/files/{FILE}")[2] == CONTENT
    assert main(["mirror", "stop", str(site)]) == 0


def test_the_registry_of_a_mirror_of_before_ends_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier versions had one behind nginx: it would keep its port, and nobody would know it."""
    monkeypatch.setenv("BEDPLATE_CACHE", str(tmp_path))
    run = service.run_directory("before")
    command = ["sleep", "300"]
    started = [
        processes.start(run / f"{part}.json", command, run / f"{part}.log", {})
        for part in ("nginx", "registry")
    ]
    assert service.stop("before") == ["nginx", "registry"]
    assert [processes.identity(one.pid) for one in started] == [None, None]
    assert service.stop("before") == []
