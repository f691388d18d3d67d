"""The real JupyterHub and KubeSpawner as a process over a real control plane with the real Kueue.

Kubelets, the proxy and the notebooks are stand-ins: pods run without containers, and one HTTP
server answers for all notebooks as for the proxy's routes.
"""

from __future__ import annotations

import json
import os
import re
import ssl
import tempfile
import threading
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import requests
import yaml

from bedplate.components.frameworks import hub_objects, hub_use
from bedplate.pods.hub.node_use import USE
from tests.environments import python
from tests.frameworks.claims import asking, publish, with_claims
from tests.schedulers.api import eventually
from tests.schedulers.control_plane import ControlPlane
from tests.schedulers.kubelets import KubeletDouble
from tests.schedulers.kueue import RunningKueue
from tests.schedulers.locks import lock_of, nodes_of
from tests.schedulers.nodes import add_nodes
from tests.schedulers.processes import Process, free_port

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Iterator
    from datetime import timedelta

ROOT = Path(__file__).parents[2]
#: The same packages as in the image of the hub.
PACKAGES = ROOT / "tests/substrate/images/requirements/hub.txt"
ACCOUNT = "system:serviceaccount:bedplate-hub:hub"
ADMIN = "admin-of-the-tests-0123456789abcdef"
VERSION = "5.5.4"
SHARE = "nvidia.com/gpu"
NO_CONTENT = 204
PASSWORD = "correct horse battery"


def lesson(begin: timedelta, end: timedelta) -> list[str]:
    """Return hours that begin and end some time from now, in UTC; past midnight they are two."""
    first, last = datetime.now(UTC) + begin, datetime.now(UTC) + end
    if first.date() == last.date():
        return [f"{first:%a %H:%M}-{last:%H:%M}"]
    rest = [f"{last:%a} 00:00-{last:%H:%M}"] if (last.hour, last.minute) > (0, 0) else []
    return [f"{first:%a %H:%M}-24:00", *rest]


class Loopback:
    """Answers on the loopback while it is entered."""

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class Standin(Loopback):
    """Answers as the proxy's API and as every notebook; `kernels` is what notebooks run."""

    def __init__(self) -> None:
        self.routes: dict[str, Any] = {}
        self.kernels: list[dict[str, Any]] = []
        #: What each notebook was told to show, by its path.
        self.notices: dict[str, list[str]] = {}
        standin = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                pass

            def answer(self, content: Any, status: int = 200) -> None:
                text = b"" if status == NO_CONTENT else json.dumps(content).encode()
                self.send_response(status)
                self.send_header("X-JupyterHub-Version", VERSION)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def do_GET(self) -> None:
                if self.path.startswith("/api/routes"):
                    self.answer(standin.routes)
                elif self.path.endswith("/api/kernels"):
                    self.answer(standin.kernels)
                else:
                    self.answer([])

            def do_POST(self) -> None:
                size = int(self.headers.get("Content-Length", 0))
                route = self.path.removeprefix("/api/routes")
                standin.routes[route] = json.loads(self.rfile.read(size))
                self.answer({}, 201)

            def do_PUT(self) -> None:
                size = int(self.headers.get("Content-Length", 0))
                text = json.loads(self.rfile.read(size))["text"]
                standin.notices.setdefault(self.path.removesuffix("bedplate/notice"), []).append(
                    text
                )
                self.answer({}, NO_CONTENT)

            def do_DELETE(self) -> None:
                standin.routes.pop(self.path.removeprefix("/api/routes"), None)
                self.answer({}, NO_CONTENT)

        super().__init__(Handler)
        self.port = self._server.server_address[1]


class KubeletLogs(Loopback):
    """The part of a node's kubelet that has logs: by a container's path, else the path itself."""

    def __init__(
        self, plane: ControlPlane, node: str, log: Callable[[str], str] = "log of {}\n".format
    ) -> None:
        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                text = log(self.path.partition("?")[0]).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

        super().__init__(Handler)
        trusted = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        trusted.load_cert_chain(*plane.authority.issue(f"system:node:{node}"))
        self._server.socket = trusted.wrap_socket(self._server.socket, server_side=True)
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._server.server_port}},
        }
        path = plane.api.path("nodes", "v1", None, node)
        plane.api.patch(path, {"status": status}, "status")


class RunningHub:
    """The hub's own configuration with addresses of loopback, and one token for the tests."""

    def __init__(
        self,
        plane: ControlPlane,
        standin: Standin,
        settings: dict[str, Any],
        kueue: RunningKueue,
        kubelets: KubeletDouble,
    ) -> None:
        self.plane, self.standin, self.kueue, self.kubelets = plane, standin, kueue, kubelets
        self.folder = plane.folder / "hub"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/hub"
        (self.folder / "secrets").mkdir(parents=True)
        self.settings = settings | {
            "service": {
                "bind": f"http://127.0.0.1:{free_port()}",
                "hub_bind": f"http://127.0.0.1:{self.port}",
                "hub_url": f"http://127.0.0.1:{self.port}",
                "shares_url": f"http://127.0.0.1:{free_port()}",
                "proxy_api_url": f"http://127.0.0.1:{standin.port}",
                "state": str(self.folder),
                "notebook_port": standin.port,
                "classes_every": 1,
                "poll_every": 1,
                "routes_every": 2,
            }
        }
        self.secret("proxy-token", "p" * 32)
        self.secret("cookie-secret", "ab" * 32)
        self.secret("crypt-key", "cd" * 32)
        kubeconfig = plane.as_kubeconfig(plane.authority.issue(ACCOUNT, "system:serviceaccounts"))
        (self.folder / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
        (self.folder / "config.py").write_text(
            f"load_subconfig({str(ROOT / 'src/bedplate/pods/hub/jupyterhub_config.py')!r})\n"
            "c = get_config()\n"
            f"c.JupyterHub.services += [{{'name': 'tests', 'api_token': {ADMIN!r}}}]\n"
            "c.JupyterHub.load_roles += [{'name': 'tests', 'services': ['tests'],"
            " 'scopes': ['admin:users', 'admin:servers', 'admin:groups', 'tokens']}]\n"
        )
        self.log = plane.folder / "hub.log"
        self.process: Process | None = None

    def secret(self, name: str, value: str) -> None:
        """Write a secret, as a mounted folder has it."""
        (self.folder / "secrets" / name).write_text(value)

    def start(self) -> None:
        """Start it, or start it again on what it has kept; wait until it answers."""
        (self.folder / "hub.json").write_text(json.dumps(self.settings))
        interpreter = python(PACKAGES)
        environment = {
            "PYTHONPATH": str(ROOT / "src"),
            "BEDPLATE_HUB": str(self.folder / "hub.json"),
            "BEDPLATE_HUB_SECRETS": str(self.folder / "secrets"),
            "KUBECONFIG": str(self.folder / "kubeconfig"),
            "PATH": f"{interpreter.parent}:{os.environ['PATH']}",
            "HOME": str(self.folder),
        }
        command = [str(interpreter), "-m", "jupyterhub", "--config", str(self.folder / "config.py")]
        self.process = Process([*command, "--debug"], self.log, environment)
        self.plane.processes["hub"] = self.process
        self.process.start()
        self.process.until(self.answers, 240)

    def stop(self, how: signal.Signals) -> None:
        """End it."""
        assert self.process is not None
        self.process.stop(how)

    def answers(self) -> bool:
        """Tell whether it is ready."""
        try:
            return requests.get(f"{self.url}/health", timeout=10).ok
        except requests.RequestException:
            return False

    def api(self, method: str, path: str, body: Any = None, token: str = ADMIN) -> Any:
        """Ask the hub's API."""
        headers = {"Authorization": f"token {token}"}
        url = f"{self.url}/api/{path}"
        done = requests.request(method, url, json=body, headers=headers, timeout=60)
        done.raise_for_status()
        return done.json() if done.content else None

    def servers(self) -> dict[str, dict[str, Any]]:
        """Return each user's default server, if it runs, starts or stops."""
        users = self.api("GET", "users?state=active&limit=200")
        return {one["name"]: one["servers"][""] for one in users if "" in one["servers"]}

    def shows(self, user: str, place: str) -> None:
        """Wait until the spawn page of a user shows a place."""
        eventually(lambda: any(place in one for one in self.said(user)))

    def refuses(self, user: str, profile: str, words: str) -> None:
        """Ask for a server that is refused, and wait until the spawn page says these words."""
        self.api("POST", f"users/{user}/server", {"profile": profile})
        eventually(lambda: user not in self.servers())
        eventually(lambda: " ".join(self.said(user)), until=lambda told: words in told)

    def said(self, user: str, seconds: float = 3) -> list[str]:
        """Return what the spawn page of a user shows within some seconds."""
        found: list[str] = []
        headers = {"Authorization": f"token {ADMIN}"}
        url = f"{self.url}/api/users/{user}/server/progress"
        try:
            with requests.get(url, headers=headers, stream=True, timeout=seconds) as answer:
                for line in answer.iter_lines(chunk_size=1):
                    if line.startswith(b"data:"):
                        found.append(json.loads(line[5:])["message"])
                        if "queue of" in found[-1] and "place" in found[-1]:
                            break
        except requests.RequestException:
            pass
        return found


def course(name: str, **more: Any) -> dict[str, Any]:
    """Return a course as the hub's settings have it."""
    profile = {"slug": f"{name}-jax", "title": name, "about": "A tenth of a GPU.", "image": "x/y:1"}
    return {"limits": {SHARE: "1"}, "teachers": ["ada"], "profiles": [profile], **more}


def doubled(plane: ControlPlane) -> KubeletDouble:
    """Return kubelets that start nothing: the stand-in answers for every pod."""
    return KubeletDouble(plane.api, "127.0.0.1")


@contextmanager
def hub_of(
    teams: dict[str, Any],
    courses: dict[str, Any],
    gpus: int = 8,
    kubelets_of: Callable[[ControlPlane], KubeletDouble] = doubled,
    by_claim: dict[str, tuple[int, int]] | None = None,
) -> Iterator[RunningHub]:
    """Run control plane, Kueue and kubelets on one node; yield a hub that is to be started.

    `by_claim` are courses whose students claim memory: students and MiB of each, on another node
    that has one GPU. They are added to the teams and to the courses.
    """
    order = {"queue": {"order": "StrictFIFO"}}
    lock = lock_of({"pool_class": [{}]}, teams, gpus=gpus, preset=order)
    if by_claim:
        lock = with_claims(lock, by_claim)
        courses |= {name: asking(lock, name) for name in by_claim}
    with (
        tempfile.TemporaryDirectory(prefix="bedplate-hub-") as folder,
        ControlPlane(Path(folder), aggregates=True) as plane,
        Standin() as standin,
        kubelets_of(plane) as kubelets,
    ):
        kueue = RunningKueue(plane, lock, places=True)
        add_nodes(plane.api, nodes_of(lock))
        if by_claim:
            publish(plane.api)
        kueue.configure(lock)
        plane.namespace(hub_objects.NAMESPACE)
        settings = {"zone": "UTC", "sign_in": "native", "admins": ["ada"], "courses": courses}
        for one in hub_objects.rights(courses):
            plane.api.apply(one)
        plane.namespace(USE)
        for one in hub_use.access():
            plane.api.apply(one)
        yield RunningHub(plane, standin, settings, kueue, kubelets)


class Browser:
    """One user's session with the hub's pages, by their forms."""

    def __init__(self, url: str) -> None:
        self.url, self.session = url, requests.Session()

    def form(self, page: str, **fields: str) -> requests.Response:
        """Fill in a page's form and send it."""
        self.session.get(f"{self.url}/{page}", timeout=60)
        token = next((one.value for one in self.session.cookies if one.name == "_xsrf"), "")
        return self.session.post(f"{self.url}/{page}", data={"_xsrf": token, **fields}, timeout=60)

    def sign_up(self, name: str, code: str) -> requests.Response:
        """Sign up with a course's code."""
        return self.form(
            "signup",
            username=name,
            code=code,
            signup_password=PASSWORD,
            signup_password_confirmation=PASSWORD,
        )

    def login(self, name: str, password: str = PASSWORD) -> requests.Response:
        """Sign in."""
        return self.form("login", username=name, password=password)

    def profiles(self) -> list[str]:
        """Return what the page for starting a server offers."""
        page = self.session.get(f"{self.url}/spawn", timeout=60).text
        return re.findall(r'name="profile"[^>]*value="([^"]+)"', page)
