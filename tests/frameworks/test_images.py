"""The images that are built here: the same bytes each time, the proxy's TLS, what runs there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
import requests

from bedplate.components.frameworks import hub_objects, hub_proxy, hub_settings
from bedplate.lock import hub_address
from bedplate.lock.courses import Course, Share
from bedplate.mirror.store import Store, cache
from bedplate.pods.hub import prepare
from tests.frameworks import trial
from tests.schedulers.certificates import Authority
from tests.schedulers.processes import Process, free_port
from tests.substrate.hosts.containers import Machine
from tests.substrate.images import fill, known_tools, recipes, registry
from tests.substrate.images.layers import Layers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.substrate.images import oci

#: The digest of its layer before it is compressed, made on another day. It changes with
#: requirements/node.txt and package-lock.json: take what the failing test prints.
PROXY = "sha256:29b9c5aabadb27a990024de30ac8e4f490c510c371a8e786cff9f37cd20c9266"
NOTEBOOK = "quay.io/jupyter/base-notebook:2026-08-24"
TENSORFLOW = "images.bedplate.internal/notebook-tensorflow:2.20.0-cuda12"


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> oci.Layer:
    """Make the layer of the hub's proxy: Node, and configurable-http-proxy."""
    folder = tmp_path_factory.mktemp("proxy")
    for name in ("work", "target"):
        (folder / name).mkdir()
    layers = Layers(folder / "root", folder / "work", print)
    return layers._node("configurable-http-proxy", folder / "target")


def test_the_same_recipe_makes_the_same_layer(proxy: oci.Layer) -> None:
    assert proxy.diff_id == PROXY


class Page(BaseHTTPRequestHandler):
    """The hub behind the proxy: it answers with what the proxy says of the user's connection."""

    def log_message(self, *_: object) -> None:
        """Keep quiet."""

    def do_GET(self) -> None:
        """Name the protocol by which the user came."""
        text = self.headers.get("X-Forwarded-Proto", "none").encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


def test_the_proxy_answers_by_tls_alone(proxy: oci.Layer, tmp_path: Path) -> None:
    """The image's own program, with the command line of the Deployment."""
    shutil.unpack_archive(proxy.path, tmp_path / "image", "gztar", filter="data")
    local = tmp_path / "image/usr/local"
    program = local / "lib/node_modules/configurable-http-proxy/bin/configurable-http-proxy"
    authority = Authority(tmp_path)
    (tmp_path / "tls").mkdir()
    files = [path.read_text() for path in authority.issue("hub")]
    for name, text in hub_proxy.checked(*files).items():
        (tmp_path / "tls" / name).write_text(text)
    behind = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=behind.serve_forever, daemon=True).start()
    public, api, plain = free_port(), free_port(), free_port()
    places = {
        "0.0.0.0": "127.0.0.1",  # noqa: S104 - what is replaced
        f"api-port={hub_objects.PROXY_API}": f"api-port={api}",
        f"--port={hub_objects.PROXY_PORT}": f"--port={public}",
        f"redirect-port={hub_objects.PLAIN_PORT}": f"redirect-port={plain}",
        f"{hub_objects.HUB}:{hub_objects.HUB_PORT}": f"127.0.0.1:{behind.server_port}",
        hub_proxy.FOLDER: str(tmp_path / "tls"),
    }
    command = hub_proxy.command(encrypted=True, redirect=hub_address.HTTPS)[1:]
    for old, new in places.items():
        assert any(old in one for one in command)
        command = [one.replace(old, new) for one in command]
    environment = {"CONFIGPROXY_AUTH_TOKEN": "a token", "PATH": os.environ["PATH"]}
    process = Process(
        [str(local / "bin/node"), str(program), *command], tmp_path / "log", environment
    )
    process.start()
    try:

        def get(url: str, **more: Any) -> requests.Response | None:
            try:
                return requests.get(url, timeout=60, **more)
            except requests.exceptions.ConnectionError:
                return None

        trusted: dict[str, Any] = {"verify": str(authority.path)}
        address = f"127.0.0.1:{public}"
        process.until(lambda: get(f"https://{address}/_chp_healthz", **trusted) is not None, 240)
        answer = get(f"https://{address}/hub/login", **trusted)
        assert answer is not None
        assert answer.text == "https"
        assert get(f"http://{address}/hub/login") is None
        answer = get(f"http://127.0.0.1:{plain}/hub/login?next=a", allow_redirects=False)
        assert answer is not None
        assert answer.status_code == 301
        assert answer.headers["Location"] == "https://127.0.0.1:443/hub/login?next=a"
        assert get(f"https://{address}/hub/login") is None, "a certificate of nobody is trusted"
        routes = get(f"http://127.0.0.1:{api}/api/routes", headers={"Authorization": "token none"})
        assert routes is not None
        assert routes.status_code == 403
    finally:
        process.stop()
        behind.shutdown()
        behind.server_close()


@contextmanager
def ready(name: str) -> Iterator[list[str]]:
    """Fill the mirror with an image; yield the command that runs programs in it by podman."""
    store, tools = Store(cache() / "mirror"), known_tools()
    (recipe,) = [one for one in recipes.images(tools) if one.name == name]
    fill(store, tools, requested=[name] if recipe.on_request else [])
    with registry.writable(store, tools["registry"].program("registry")) as port:
        image = f"127.0.0.1:{port}/{name}"
        # runc can't set podman's own limits on every machine.
        machine = Machine.here()
        command = ["podman", "run", "--rm", "--interactive", "--tls-verify=false", "--network=none"]
        command += [f"--ulimit=nofile={machine.nofile}", f"--ulimit=nproc={machine.nproc}"]
        yield [*command, image]
        subprocess.run(["podman", "image", "rm", image], capture_output=True, check=False)


@pytest.mark.prove
def test_tensorflow_computes_in_its_image() -> None:
    """Without a cluster: the mirror's registry and podman, the program that pods run."""
    program = trial.PROGRAM.read_text()
    with ready(TENSORFLOW) as command:
        done = subprocess.run(
            [*command, "python3", "-", "tensorflow", "2.20.0", trial.CPU],
            input=program,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert json.loads(line)["cuda"] is None
    assert set(json.loads(line)["computed"].values()) == {64.0**3}


@pytest.mark.prove
def test_material_comes_into_a_home_and_what_a_student_changed_stays(tmp_path: Path) -> None:
    """The notebook's image and its nbgitpuller, with the commands of the hub; Git over a folder."""
    home, source = tmp_path / "home", tmp_path / "lesson"
    for folder in (home, source):
        folder.mkdir()
    git = [
        "git",
        "-C",
        str(source),
        "-c",
        "safe.directory=*",
        "-c",
        "user.name=ada",
        "-c",
        "user.email=ada@example.org",
    ]

    def publish(name: str, text: str) -> None:
        (source / name).write_text(text)
        for command in (["add", name], ["commit", "--quiet", "--message", name]):
            subprocess.run([*git, *command], check=True)
        subprocess.run(["chown", "-R", "1000:100", str(tmp_path)], check=True)

    subprocess.run([*git, "init", "--quiet", "--initial-branch=main"], check=True)
    publish("first.txt", "one")
    fetch = hub_settings.material(course("file:///lesson#main"))
    with ready(NOTEBOOK) as command:
        mounts = [f"--volume={home}:/home/jovyan", f"--volume={source}:/lesson:ro"]
        command[2:2] = [*mounts, "--user=1000:100", "--entrypoint="]
        done = subprocess.run([*command, *fetch], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert (home / "lesson/first.txt").read_text() == "one"
        (home / "lesson/first.txt").write_text("one, and an answer")
        publish("second.txt", "two")
        default = hub_settings.material(course("file:///lesson"))  # of its default branch
        at_start = ["sh", "-c", prepare.AT_START, "material", *default]
        subprocess.run([*command, *at_start], capture_output=True, check=True)
        assert (home / "lesson/second.txt").read_text() == "two"
        assert (home / "lesson/first.txt").read_text() == "one, and an answer"
        # A notebook starts, too, where the material cannot be had.
        at_start[-3] = "file:///nowhere"
        subprocess.run([*command, *at_start], capture_output=True, check=True)


def course(material: str) -> Course:
    """Return a course with material."""
    share = Share(resource="nvidia.com/gpu", count=1)
    return Course(students=2, share=share, pool="pool_gpu", idle_timeout_s=60, material=material)
