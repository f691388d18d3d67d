"""Teachers push to their course's registry: the real Distribution, nginx, skopeo and service.

The hub that knows whose a token is, is a double; the real one's tokens are in test_hub.py.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from http.server import ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest
import requests

from bedplate.components.frameworks import hub_proxy, hub_registry
from bedplate.pods.hub import push, share_service
from bedplate.pods.hub.courses import Course, Settings
from tests.frameworks.shares import HubDouble
from tests.schedulers.processes import free_port
from tests.substrate.images import recipes
from tests.substrate.internet.authority import Authority
from tests.substrate.internet.own import running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MIB = 2**20
SIZES = {"intro": 20, "other": 20}
ADA, BOB = "alice-token", "bob-token"


@dataclass
class Registry:
    """The registry of two courses, as hosts and teachers reach it."""

    root: Path
    ports: dict[str, int]
    authority: Authority
    serving: ExitStack

    @property
    def name(self) -> str:
        return f"localhost:{self.ports['nginx']}"

    @property
    def settings(self) -> Path:
        return self.root / "registry.json"

    def push(self, image: str, token: str, *megabytes: int) -> str:
        """Push an image of random layers; return what went wrong."""
        folder = self.root / f"image-{time.monotonic_ns()}"
        made(folder, *megabytes)
        user = ["--dest-creds", f"any:{token}"] if token else ["--dest-no-creds"]
        words = ["--dest-cert-dir", str(self.root / "trust"), *user]
        return said("copy", *words, f"dir:{folder}", f"docker://{self.name}/{image}")

    def delete(self, image: str, token: str) -> str:
        words = ["--cert-dir", str(self.root / "trust"), "--creds", f"any:{token}"]
        return said("delete", *words, f"docker://{self.name}/{image}")

    def pull(self, image: str) -> str:
        words = ["--src-cert-dir", str(self.root / "trust"), "--src-no-creds"]
        target = self.root / f"pulled-{time.monotonic_ns()}"
        return said("copy", *words, f"docker://{self.name}/{image}", f"dir:{target}")

    def write(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
        token: str = ADA,
    ) -> requests.Response:
        """Make one request, with the path as it is written."""
        session = requests.Session()
        asked = session.prepare_request(
            requests.Request(
                method,
                f"https://{self.name}/",
                data=body,
                headers=headers or {},
                auth=("any", token) if token else None,
            )
        )
        asked.url = f"https://{self.name}{path}"
        return session.send(asked, verify=str(self.authority.certificate), timeout=60)

    def night(self) -> None:
        """Do as the pod does each night, by its own command."""
        self.serving.close()
        self.serving = serving(self)

    def used(self, course: str = "intro") -> float:
        return push.used(self.root / "data", course) / MIB


def said(*words: str) -> str:
    """Return what skopeo says of a failure; empty where there is none."""
    command = ["skopeo", "--insecure-policy", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    return done.stderr if done.returncode else ""


def made(folder: Path, *megabytes: int) -> None:
    """Write an image of layers of random bytes, as skopeo has one in a folder."""
    layers = [os.urandom(int(size * MIB)) for size in megabytes]
    kind = "application/vnd.oci.image.{}"
    digests = [written(folder, layer) for layer in layers]
    config = {
        "architecture": "amd64",
        "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{one}" for one in digests]},
        "config": {},
    }
    text = json.dumps(config).encode()
    manifest = {
        "schemaVersion": 2,
        "mediaType": kind.format("manifest.v1+json"),
        "config": blob(kind.format("config.v1+json"), text, written(folder, text)),
        "layers": [
            blob(kind.format("layer.v1.tar"), layer, digest)
            for layer, digest in zip(layers, digests, strict=True)
        ],
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "version").write_text("Directory Transport Version: 1.1\n")


def written(folder: Path, content: bytes) -> str:
    folder.mkdir(exist_ok=True)
    digest = sha256(content).hexdigest()
    (folder / digest).write_bytes(content)
    return digest


def blob(kind: str, content: bytes, digest: str) -> dict[str, object]:
    return {"mediaType": kind, "size": len(content), "digest": f"sha256:{digest}"}


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    """Run it all: the service for shares behind a double of the hub."""
    courses = {
        name: Course(name, "UTC", [], {}, teachers=[teacher], members=["bob"], registry_mib=size)
        for (name, size), teacher in zip(SIZES.items(), ("ada", "zoe"), strict=True)
    }
    courses["lab"] = Course("lab", "UTC", [], {}, teachers=["ada"])
    known = Settings(courses, "native", {}, [], {})
    hub = ThreadingHTTPServer(("127.0.0.1", 0), HubDouble)
    data = tmp_path / "data"

    def nothing(*_: object) -> dict[str, object]:
        raise AssertionError("no push asks the cluster")

    service = share_service.Service(
        nothing,
        str,
        lambda token: share_service.user_of(f"http://127.0.0.1:{hub.server_port}/hub/api", token),
        share_service.course_of(known),
        refusal=lambda user, *write: push.refusal(known, user.name, user.groups, *write, data),
    )
    served = share_service.server(service, ("127.0.0.1", 0), "/services/shares/")
    for one in (hub, served):
        threading.Thread(target=one.serve_forever, daemon=True).start()
    authority = Authority(tmp_path / "tls")
    authority.context(["localhost"])
    for mine, its in (("tls.crt", "server.crt"), ("tls.key", "server.key")):
        (tmp_path / "tls" / mine).symlink_to(tmp_path / "tls" / its)
    (tmp_path / "trust").mkdir()
    shutil.copy(authority.certificate, tmp_path / "trust/ca.crt")
    ports = {"nginx": free_port(), "distribution": free_port()}
    (tmp_path / "registry.json").write_text(
        json.dumps(hub_registry.DISTRIBUTION)
        .replace(hub_registry.DATA, str(data))
        .replace(hub_registry.BEHIND, f"127.0.0.1:{ports['distribution']}")
    )
    with ExitStack() as stack:
        for server in (hub, served):
            stack.callback(server.server_close)
            stack.callback(server.shutdown)
        here = f"http://127.0.0.1:{served.server_port}/services/shares/{push.ADDRESS}"
        text = (
            hub_registry.nginx(SIZES)
            .replace(f"{hub_registry.TMP}/", f"{tmp_path}/of-nginx/")
            .replace(f"listen {hub_registry.PORT}", f"listen 127.0.0.1:{ports['nginx']}")
            .replace(hub_proxy.FOLDER, str(tmp_path / "tls"))
            .replace(hub_registry.ASKED, here)
            .replace(hub_registry.BEHIND, f"127.0.0.1:{ports['distribution']}")
        )
        (tmp_path / "of-nginx").mkdir()
        user = "user root;\n" if os.geteuid() == 0 else ""
        (tmp_path / "nginx.conf").write_text(user + text)
        nginx = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
        assert nginx
        words = (nginx, "-e", "stderr", "-c", str(tmp_path / "nginx.conf"))
        stack.enter_context(running(tmp_path, "nginx", *words))
        found = Registry(tmp_path, ports, authority, ExitStack())
        found.serving = serving(found)
        yield found
        found.serving.close()


def serving(registry: Registry) -> ExitStack:
    """Run what the pod runs, and wait until Distribution answers."""
    folder = recipes.known_tools()["registry"].program("registry").parent
    stack = ExitStack()
    words = hub_registry.command("UTC")
    place = f"{hub_registry.SETTINGS}/registry.json"
    words[-1] = f"PATH={folder}:$PATH; {words[-1].replace(place, str(registry.settings))}"
    stack.enter_context(running(registry.root, "distribution", *words))
    for _ in range(600):
        try:
            requests.get(f"http://127.0.0.1:{registry.ports['distribution']}/v2/", timeout=5)
        except requests.ConnectionError:
            time.sleep(0.05)
        else:
            return stack
    raise AssertionError((registry.root / "distribution.out").read_text())


def test_a_teacher_pushes_and_everybody_reads(registry: Registry) -> None:
    assert registry.push("intro/torch:1", ADA, 4) == ""
    assert registry.pull("intro/torch:1") == ""
    assert 4 <= registry.used() < 4.1


@pytest.mark.parametrize(
    ("image", "token", "megabytes", "words"),
    [
        ("intro/a:1", BOB, 1, "denied: bob is no teacher of course intro: only its teachers push"),
        ("other/a:1", ADA, 1, "denied: ada is no teacher of course other: only its teachers push"),
        ("lab/a:1", ADA, 1, "denied: course lab has no registry: ask an administrator for one"),
        ("torch:1", ADA, 1, "denied: there is no course torch: push to COURSE/IMAGE"),
        ("intro/a:1", "wrong", 1, "denied: the hub does not know the token"),
        ("intro/a:1", "weak-token", 1, "denied: the token is not of a user with the scope access:"),
        ("intro/a:1", "", 1, "unauthorized: authentication required"),
        ("intro/a:1", ADA, 30, "denied: a layer is larger than all images of the course may be"),
    ],
)
def test_a_refusal_says_why(
    registry: Registry, image: str, token: str, megabytes: int, words: str
) -> None:
    assert words in registry.push(image, token, megabytes)
    assert registry.pull(image) != ""


def test_the_size_holds_and_the_night_frees_what_was_deleted(registry: Registry) -> None:
    assert registry.push("intro/a:1", ADA, 12) == ""
    over = registry.push("intro/a:2", ADA, 12)
    words = (
        "denied: course intro has 24 MiB of its 20 MiB: delete images of intro/ and push again "
        "after 03:00, when their space is freed"
    )
    assert words in over
    assert registry.pull("intro/a:2") != ""
    assert registry.used() < 25
    assert "bob is no teacher of course intro" in registry.delete("intro/a:1", BOB)
    assert registry.delete("intro/a:1", ADA) == ""
    assert words in registry.push("intro/a:2", ADA, 1)
    registry.night()
    assert registry.used() == 0
    assert registry.push("intro/a:2", ADA, 12) == ""
    assert registry.pull("intro/a:2") == ""


def test_pushes_at_once_are_above_the_size_by_no_more_than_their_layers(registry: Registry) -> None:
    assert registry.push("intro/a:1", ADA, 10) == ""
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda name: registry.push(f"intro/{name}:1", ADA, 9), "bcd"))
    assert 20 < registry.used() < 10 + 3 * 9 + 1
    assert "denied: course intro has" in registry.push("intro/e:1", ADA, 1)


def test_one_upload_of_many_chunks_does_not_pass_the_size(registry: Registry) -> None:
    """No client of ours sends such; the bodies have a length each that is allowed."""
    begin = registry.write("POST", "/v2/intro/a/blobs/uploads/")
    where, statuses = begin.headers["Location"], []
    for number in range(4):
        span = f"{number * 12 * MIB}-{(number + 1) * 12 * MIB - 1}"
        done = registry.write("PATCH", where, os.urandom(12 * MIB), {"Content-Range": span})
        statuses.append(done.status_code)
        where = done.headers.get("Location", where)
    assert statuses == [202, 202, 403, 403]
    assert registry.write("PATCH", where, b"", token=BOB).status_code == 403


def test_an_upload_that_was_given_up_does_not_count_for_long(registry: Registry) -> None:
    assert "a layer is larger" in registry.push("intro/a:1", ADA, 30)
    (upload,) = (registry.root / "data").rglob("_uploads/*/data")
    written = upload.stat()
    assert registry.used() * MIB == written.st_size <= 20 * MIB
    os.utime(upload, (written.st_atime, written.st_mtime - push.OVER - 1))
    assert registry.push("intro/a:1", ADA, 12) == ""
    assert not upload.exists()


@pytest.mark.parametrize(
    "path",
    [
        "/v2/intro/../other/a/blobs/uploads/",
        "/v2/intro/%2e%2e/other/a/blobs/uploads/",
        "/v2/intro//a/blobs/uploads/",
        "/v2/%6fther/a/blobs/uploads/",
        "/v2//other/a/blobs/uploads/",
    ],
)
def test_a_path_that_could_be_read_in_two_ways_is_refused(registry: Registry, path: str) -> None:
    assert "COURSE/IMAGE" in registry.write("POST", path).text


def test_while_space_is_freed_a_client_is_asked_to_wait(registry: Registry) -> None:
    registry.serving.close()
    answer = registry.write("POST", "/v2/intro/a/blobs/uploads/")
    assert answer.status_code == 503
    assert answer.json()["errors"][0]["message"].startswith("the registry starts again")
    registry.serving = serving(registry)
    assert registry.push("intro/a:1", ADA, 4) == ""


def test_login_takes_a_token_and_no_other_password(registry: Registry) -> None:
    answer = registry.write("GET", "/v2/", token="")
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == 'Basic realm="a token of the hub"'
    assert registry.write("GET", "/v2/", token=BOB).status_code == 200
    assert registry.write("GET", "/v2/", token="wrong").status_code == 401


def test_podman_logs_in_with_a_token(registry: Registry) -> None:
    trust = ["--cert-dir", str(registry.root / "trust"), "--authfile", str(registry.root / "auth")]

    def login(token: str) -> str:
        command = ["podman", "login", *trust, "-u", "ada", "-p", token, registry.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        return done.stdout + done.stderr

    assert "Login Succeeded!" in login(ADA)
    assert "invalid username/password" in login("wrong")
