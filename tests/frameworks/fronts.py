"""A double of the kubelets that really starts fronts, each before a stand-in for the engine.

The front is the program of the claim's Secret, as a process on an address of loopback of its own.
The engine is an echo server on this machine and does nothing with GPUs.
"""

from __future__ import annotations

import base64
import contextlib
import http
import itertools
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Self

from bedplate.pods.remote.objects import CLAIM_LABEL, PORT, PROGRAM
from tests.schedulers.api import Api, ApiError
from tests.schedulers.kubelets import KubeletDouble
from tests.schedulers.processes import Process

if TYPE_CHECKING:
    from pathlib import Path

NO_LISTENERS = "  sl  local_address rem_address   st\n"


class EngineStandIn:
    """Sends back what it gets, on one port of loopback for all fronts."""

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                taken, _ = self._listener.accept()
                threading.Thread(target=self._echo, args=(taken,), daemon=True).start()

    @staticmethod
    def _echo(taken: socket.socket) -> None:
        with taken, contextlib.suppress(OSError):
            while data := taken.recv(65536):
                taken.sendall(data)


class FrontKubelets(KubeletDouble):
    """Runs the front of each bound pod of a claim, from the Secret that it mounts.

    Attributes:
        addresses: of the pods that run now, by the claim's UID.
    """

    def __init__(self, api: Api, folder: Path, engine_port: int) -> None:
        super().__init__(api)
        self._folder, self._engine_port = folder, engine_port
        self._numbers = itertools.count(1)
        self._fronts: dict[str, Process] = {}
        self.addresses: dict[str, str] = {}

    def __exit__(self, *rest: object) -> None:
        super().__exit__(*rest)
        for process in self._fronts.values():
            process.kill()

    def _run(self, pod: dict[str, Any]) -> None:
        claim = pod["metadata"]["labels"].get(CLAIM_LABEL)
        if claim is None:
            super()._run(pod)
            return
        threading.Thread(target=self._tolerating, args=(lambda: self._serve(pod),)).start()

    def _serve(self, pod: dict[str, Any]) -> None:
        meta = pod["metadata"]
        data = self._mounted(pod)
        if data is None:
            return
        folder = self._folder / meta["uid"]
        folder.mkdir()
        for name, content in data.items():
            (folder / name).write_bytes(base64.b64decode(content))
        for name in ("tcp", "tcp6"):  # those of this machine are none of the pod's
            (folder / name).write_text(NO_LISTENERS)
        number = next(self._numbers)
        address = f"127.1.{number // 250}.{number % 250 + 1}"
        process = Process(
            [
                *(sys.executable, "-I", "-B", str(folder / PROGRAM), "front"),
                *(f"--files={folder}", f"--kept={folder}", f"--network={folder}"),
                *(f"--engine-port={self._engine_port}", f"--address={address}"),
            ],
            self._folder / f"{meta['name']}.log",
        )
        self._fronts[meta["uid"]] = process
        process.start()
        process.until(lambda: listens(address))
        claim = meta["labels"][CLAIM_LABEL]
        self.addresses[claim] = address
        path = self._api.path("pods", "v1", meta["namespace"], meta["name"])
        self._status(pod, "Running", ready=True)
        status = {"podIP": address, "podIPs": [{"ip": address}]}
        self._api.patch(path, {"metadata": {"uid": meta["uid"]}, "status": status}, "status")
        while process.running and not self._stopped.is_set():
            time.sleep(0.1)
        del self.addresses[claim]
        if not self._stopped.is_set():
            self._succeed(pod)

    def _mounted(self, pod: dict[str, Any]) -> dict[str, str] | None:
        """Wait for the pod's Secret, as a kubelet does; None once the pod is gone."""
        meta = pod["metadata"]
        name = next(
            one["secret"]["secretName"] for one in pod["spec"]["volumes"] if "secret" in one
        )
        while not self._stopped.is_set():
            self._api.get("pods", "v1", meta["namespace"], meta["name"])
            try:
                return dict(self._api.get("secrets", "v1", meta["namespace"], name)["data"])
            except ApiError as error:
                if error.status != http.HTTPStatus.NOT_FOUND:
                    raise
            time.sleep(0.1)
        return None

    def _delete(self, meta: dict[str, Any]) -> None:
        if process := self._fronts.get(meta["uid"]):
            process.stop()
        super()._delete(meta)


def listens(address: str) -> bool:
    """Tell whether somebody takes connections at the front's port of an address."""
    try:
        socket.create_connection((address, PORT), timeout=5).close()
    except OSError:
        return False
    return True
