"""Starting, looking at and stopping a mirror: a registry on the loopback and nginx before it."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import shutil
import socket
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bedplate import reading
from bedplate.mirror import atomic, processes, render
from bedplate.mirror.errors import MirrorError
from bedplate.mirror.store import Store, cache

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PORT = 5080
HEALTHY_SECONDS = 20.0
# The registry would send traces to an address where nothing listens.
REGISTRY_ENVIRONMENT = {"OTEL_TRACES_EXPORTER": "none"}


@dataclass(frozen=True)
class Mirror:
    """A mirror's processes for one network.

    Attributes:
        name: the network's; the run directory is named so.
        address: what the hosts reach: the network's gateway, which must exist already.
        store: the root, which mirrors share.
        port: of the address.
    """

    name: str
    address: str
    store: Store
    port: int = PORT

    @property
    def url(self) -> str:
        """The address as hosts use it."""
        return f"http://{self.address}:{self.port}"

    @property
    def run(self) -> Path:
        """The directory of the processes' configurations, records and logs."""
        return run_directory(self.name)

    def start(self, registry: Path) -> bool:
        """Start what does not run and return when hosts are served; say whether it had to.

        Raises:
            MirrorError: nginx is missing, or a process does not come up; its log is quoted.
        """
        settings = {
            "address": self.address,
            "port": self.port,
            "root": str(self.store.root),
            "registry": str(registry),
        }
        if self.healthy() and _settings(self.run) == settings:
            return False
        stop(self.name)
        nginx = _nginx()
        self.store.files.mkdir(parents=True, exist_ok=True)
        self.store.registry.mkdir(parents=True, exist_ok=True)
        inner = _free_port()
        atomic.write(self.run / "mirror.json", json.dumps(settings, indent=2) + "\n")
        atomic.write(
            self.run / "registry.yml",
            render.registry(self.store.registry, inner, read_only=True),
        )
        atomic.write(
            self.run / "nginx.conf",
            render.nginx(
                self.run,
                self.store.root,
                self.address,
                self.port,
                inner,
                as_root=os.geteuid() == 0,
            ),
        )
        try:
            _start_registry(self.run, registry, inner)
            conf = str(self.run / "nginx.conf")
            processes.start(
                self.run / "nginx.json",
                [nginx, "-e", "stderr", "-p", str(self.run), "-c", conf],
                self.run / "nginx.log",
                {},
            )
            _wait(self.run, "nginx", self.address, self.port)
        except BaseException:
            stop(self.name)
            raise
        return True

    def healthy(self) -> bool:
        """Say whether both processes run and the address serves the registry through nginx."""
        alive = all(processes.running(self.run / f"{part}.json") for part in ("registry", "nginx"))
        return alive and _answers(self.address, self.port)


def run_directory(name: str) -> Path:
    """Return the directory of a network's processes."""
    return cache() / "run" / name


def stop(name: str, *, forget: bool = False) -> list[str]:
    """End a network's mirror; return the processes that ran. Idempotent.

    Logs and settings stay, so that the mirror can be started under the same name again; with
    *forget*, for a network that is being removed, they go too.
    """
    run = run_directory(name)
    stopped = [part for part in ("nginx", "registry") if processes.stop(run / f"{part}.json")]
    if forget and run.is_dir():
        shutil.rmtree(run)
    return stopped


def find(url: str) -> str | None:
    """Return the name of the mirror that was started for an address, if there is one."""
    for path in sorted((cache() / "run").glob("*/mirror.json")):
        settings = _settings(path.parent)
        if settings and f"http://{settings['address']}:{settings['port']}" == url:
            return path.parent.name
    return None


@contextmanager
def writable_registry(store: Store, registry: Path) -> Iterator[int]:
    """Run a registry that takes pushes, on a loopback port that is yielded, while a fill lasts.

    The caller holds the store's lock (`Store.filling`).
    """
    root = hashlib.sha256(str(store.root.resolve()).encode()).hexdigest()[:12]
    run = run_directory(f".fill-{root}")
    processes.stop(run / "registry.json")  # of a fill that was killed: the caller holds the lock
    port = _free_port()
    store.registry.mkdir(parents=True, exist_ok=True)
    atomic.write(run / "registry.yml", render.registry(store.registry, port, read_only=False))
    try:
        _start_registry(run, registry, port)
        yield port
    finally:
        processes.stop(run / "registry.json")
        shutil.rmtree(run)


def _start_registry(run: Path, registry: Path, port: int) -> None:
    processes.start(
        run / "registry.json",
        [str(registry), "serve", str(run / "registry.yml")],
        run / "registry.log",
        REGISTRY_ENVIRONMENT,
    )
    _wait(run, "registry", "127.0.0.1", port)


def _settings(run: Path) -> dict[str, object] | None:
    try:
        found = reading.document(run / "mirror.json")
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and {"address", "port"} <= set(found) else None


def _nginx() -> str:
    path = f"{os.environ.get('PATH', '')}:/usr/sbin"  # where Debian puts it, not on a user's PATH
    found = shutil.which("nginx", path=path)
    if not found:
        raise MirrorError(
            "the mirror needs nginx",
            "PATH",
            "no nginx",
            "Debian's nginx-light or any other build of nginx",
            "run 'apt-get install --no-install-recommends nginx-light'"
            " (its system service may stay off)",
        )
    return found


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _answers(address: str, port: int) -> bool:
    connection = http.client.HTTPConnection(address, port, timeout=5)
    try:
        connection.request("GET", "/v2/")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _wait(run: Path, part: str, address: str, port: int) -> None:
    deadline = time.monotonic() + HEALTHY_SECONDS
    while processes.running(run / f"{part}.json"):
        if _answers(address, port):
            return
        if time.monotonic() > deadline:
            break
        time.sleep(0.1)
    said = (run / f"{part}.log").read_text(errors="replace").strip().splitlines()[-4:]
    raise MirrorError(
        f"the mirror's {part} does not serve",
        f"{address}:{port}",
        " | ".join(said) or f"no answer within {HEALTHY_SECONDS:.0f} s and nothing in its log",
        "an answer to GET /v2/",
        "the address must be this machine's own (a podman network's gateway exists once a"
        " container of it runs) and the port free",
    )
