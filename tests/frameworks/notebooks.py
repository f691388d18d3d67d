"""Notebooks as real processes: what kubelets start in containers, each on an address of its own."""

from __future__ import annotations

import itertools
import json
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import requests

from tests.environments import python
from tests.schedulers.kubelets import KubeletDouble
from tests.schedulers.processes import Process

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.schedulers.control_plane import ControlPlane

ROOT = Path(__file__).parents[2]
#: The same packages as in the notebooks' image.
PACKAGES = ROOT / "tests/substrate/images/requirements/notebook.txt"
TOKEN, ADDRESS = "JUPYTERHUB_API_TOKEN", "JUPYTERHUB_SERVICE_URL"
MIB = 1024


#: Run by the notebooks' Python, which has what their sockets need: a cell in each kernel at once.
CLIENT = """
import asyncio, json, sys
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

async def printed(url, token, cell):
    headers = {"Authorization": f"token {token}"}
    socket = await websocket_connect(HTTPRequest(url, headers=headers, request_timeout=300))
    header = {"msg_id": "cell", "msg_type": "execute_request", "session": "tests", "version": "5.3"}
    header |= {"username": "tests", "date": "2026-01-01T00:00:00Z"}
    content = {"code": cell, "silent": False, "store_history": False, "user_expressions": {}}
    content |= {"allow_stdin": False, "stop_on_error": True}
    body = {"header": header, "parent_header": {}, "metadata": {}, "content": content}
    await socket.write_message(json.dumps(body | {"channel": "shell", "buffers": []}))
    text = ""
    while True:
        told = json.loads(await socket.read_message())
        if told["parent_header"].get("msg_id") != "cell":
            continue
        if told["msg_type"] == "stream":
            text += told["content"]["text"]
        elif told["msg_type"] == "error":
            text += f"{told['content']['ename']}: {told['content']['evalue']}"
        elif told["msg_type"] == "status" and told["content"]["execution_state"] == "idle":
            socket.close()
            return text

async def main():
    asked = json.load(sys.stdin)
    print(json.dumps(await asyncio.gather(*(printed(*one) for one in asked))))

asyncio.run(main())
"""


def printed(asked: Sequence[list[str]]) -> list[str]:
    """Run a cell in each of some kernels, and return what they print."""
    done = subprocess.run(
        [str(python(PACKAGES)), "-c", CLIENT],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=True,
        timeout=500,
    )
    found: list[str] = json.loads(done.stdout)
    return found


class Notebook:
    """The program of a student's pod, with the pod's own arguments and environment."""

    def __init__(self, pod: dict[str, Any], address: str, folder: Path) -> None:
        (container,) = (one for one in pod["spec"]["containers"] if one["name"] == "notebook")
        home = folder / pod["metadata"]["name"]
        home.mkdir(parents=True, exist_ok=True)
        interpreter = python(PACKAGES)
        given = {one["name"]: one.get("value", "") for one in container["env"]}
        # A pod has an address space of its own, and may listen on all of it.
        given[ADDRESS] = given[ADDRESS].replace("0.0.0.0", address)  # noqa: S104
        self.url, self._token = given[ADDRESS].rstrip("/"), given[TOKEN]
        program, *arguments = container["args"]
        # As in the image, and unlike on this machine perhaps, there is no Node: a lab would run it.
        given |= {"HOME": str(home), "PATH": str(interpreter.parent)}
        command = [str(interpreter.parent / program), *arguments, "--allow-root"]
        self.process = Process([*command, f"--notebook-dir={home}"], home / "log", given)
        self.process.start()

    def asks(self, method: str, path: str) -> Any:
        """Ask the notebook's own API, which asks the hub whose token this is."""
        headers = {"Authorization": f"token {self._token}"}
        done = requests.request(method, f"{self.url}/api/{path}", headers=headers, timeout=120)
        done.raise_for_status()
        return done.json()

    def kernels(self) -> list[str]:
        """Return the IDs of its kernels."""
        return [str(one["id"]) for one in self.asks("GET", "kernels")]

    def socket(self, cell: str) -> list[str]:
        """Return what `printed` needs for a cell in its kernel: address, token, cell."""
        (kernel,) = self.kernels()
        url = self.url.replace("http:", "ws:", 1)
        return [f"{url}/api/kernels/{kernel}/channels", self._token, cell]

    def memory(self) -> float:
        """Return the MiB that it and its kernels hold, with their part of what is shared."""
        pids = [self.process.pid]
        for pid in pids:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            pids += map(int, children)
        return sum(map(held, pids))


def held(pid: int) -> float:
    """Return the MiB of a process, with its part of what it shares."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    (line,) = (one for one in lines if one.startswith("Pss:"))
    return int(line.split()[1]) / MIB


def available() -> float:
    """Return the MiB that this machine has left."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    (line,) = (one for one in lines if one.startswith("MemAvailable:"))
    return int(line.split()[1]) / MIB


class LiveKubelets(KubeletDouble):
    """Kubelets that start a pod's notebook, without a container around it."""

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(plane.api)
        self._folder = plane.folder / "notebooks"
        self._numbers = itertools.count(1)
        self._changing = threading.Lock()
        self.notebooks: dict[str, Notebook] = {}

    def begins(self, pod: dict[str, Any]) -> str | None:
        """Start the notebook on an address of loopback that no other has."""
        with self._changing:
            high, low = divmod(next(self._numbers), 250)
        address = f"127.1.{high}.{low + 1}"
        self.notebooks[pod["metadata"]["name"]] = Notebook(pod, address, self._folder)
        return address

    def ends(self, meta: dict[str, Any]) -> None:
        """End the notebook as a kubelet does: asked first, then killed."""
        if found := self.notebooks.pop(meta["name"], None):
            found.process.stop()

    def __exit__(self, *reason: object) -> None:
        super().__exit__(*reason)
        for one in self.notebooks.values():
            one.process.kill()
