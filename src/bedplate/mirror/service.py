"""Starting, looking at and stopping a mirror: nginx over the store, without any other program."""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import resource
import secrets
import shutil
import signal
import ssl
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bedplate.common import reading, writing
from bedplate.mirror import processes, render
from bedplate.mirror.address import Address
from bedplate.mirror.errors import MirrorError
from bedplate.mirror.store import Store, cache

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PORT = 5080
HEALTHY_SECONDS = 20.0


@dataclass(frozen=True)
class Mirror:
    """A mirror's process for one network.

    Attributes:
        name: the network's; the run directory is named so.
        address: what the hosts reach: the network's gateway, which must exist already.
        store: the root, which mirrors share.
        port: of the address.
        certificate, key: files in PEM, for https.
    """

    name: str
    address: str
    store: Store
    port: int = PORT
    certificate: Path | None = None
    key: Path | None = None

    @property
    def at(self) -> Address:
        """Where it listens."""
        return Address("https" if self.certificate else "http", self.address, self.port)

    @property
    def url(self) -> str:
        """The address as hosts use it."""
        return str(self.at)

    @property
    def run(self) -> Path:
        """The directory of the process' configuration, record and log."""
        return run_directory(self.name)

    def start(self) -> bool:
        """Start what does not run and return when hosts are served; say whether it had to.

        Raises:
            MirrorError: nginx is missing, or does not come up; its log is quoted.
        """
        with _one_at_a_time():
            return self._start()

    def _start(self) -> bool:
        settings = {
            "scheme": self.at.scheme,
            "address": self.address,
            "port": self.port,
            "root": str(self.store.root),
            "certificate": str(self.certificate or ""),
            "key": str(self.key or ""),
        }
        before = _settings(self.run) or {}
        if self.healthy() and settings.items() <= before.items():
            refresh(self.run, self.store)
            return False
        _stop(self.run)
        program = _nginx()
        self.store.files.mkdir(parents=True, exist_ok=True)
        self.store.registry.mkdir(parents=True, exist_ok=True)
        served = render.Served(
            self.run,
            self.store.root,
            self.at,
            secrets.token_hex(16),
            self.certificate,
            self.key,
            as_root=os.geteuid() == 0,
            files=_files(),
        )
        conf = self.run / "nginx.conf"
        writing.replace(conf, render.nginx(served, self.store.images.blobs).encode())
        refresh(self.run, self.store)
        settings |= {"token": served.token}
        writing.replace(self.run / "mirror.json", f"{json.dumps(settings, indent=2)}\n".encode())
        try:
            processes.start(
                self.run / "nginx.json",
                [program, "-e", "stderr", "-p", str(self.run), "-c", str(conf)],
                self.run / "nginx.log",
                {},
            )
            _wait(self.run, self.at, served.token)
        except BaseException:
            _stop(self.run)
            raise
        return True

    def healthy(self) -> bool:
        """Say whether the process runs and the address is answered by this very one."""
        return healthy(self.run)


def healthy(run: Path) -> bool:
    """Say whether a run directory's process runs, and its address is answered by this very one."""
    found = _settings(run) or {}
    running = processes.running(run / "nginx.json") is not None
    if not running or not found.get("token"):
        return False
    at = Address(str(found.get("scheme", "http")), str(found["address"]), int(str(found["port"])))
    return _answers(at, str(found["token"]))


def run_directory(name: str) -> Path:
    """Return the directory of a network's processes."""
    return cache() / "run" / name


def refresh(run: Path, store: Store) -> None:
    """Let a mirror know the images that its store has now."""
    changed = False
    for name, text in render.maps(store.images).items():
        place = run / name
        if not place.is_file() or place.read_text() != text:
            writing.replace(place, text.encode())
            changed = True
    found = processes.running(run / "nginx.json")
    if changed and found:
        os.kill(found.pid, signal.SIGHUP)


def refresh_all(store: Store) -> None:
    """Let every mirror of a store know the images that it has now."""
    for path in sorted((cache() / "run").glob("*/mirror.json")):
        if (_settings(path.parent) or {}).get("root") == str(store.root):
            refresh(path.parent, store)


def stop(name: str, *, forget: bool = False) -> list[str]:
    """End a network's mirror; return the processes that ran. Idempotent.

    Logs and settings stay, so that the mirror can be started under the same name again; with
    *forget*, for a network that is being removed, they go too.
    """
    run = run_directory(name)
    if not run.is_dir():
        return []
    with _one_at_a_time():
        stopped = _stop(run)
        if forget:
            shutil.rmtree(run)
    return stopped


def _stop(run: Path) -> list[str]:
    """End the process, and the registry that mirrors of earlier versions had behind it."""
    return [part for part in ("nginx", "registry") if processes.stop(run / f"{part}.json")]


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Hold the lock of all mirrors' processes: two that look, stop and start take turns."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "run.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def find(address: Address) -> str | None:
    """Return the name of the mirror that was started for an address, if there is one."""
    for path in sorted((cache() / "run").glob("*/mirror.json")):
        found = _settings(path.parent) or {}
        place = found.get("scheme", "http"), found.get("address"), found.get("port")
        if place == tuple(address):
            return path.parent.name
    return None


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


def _answers(address: Address, token: str) -> bool:
    """Ask a server for its health, which answers with the mirror's token."""
    connection = _connection(address)
    try:
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        return answer.status == 200 and answer.read().decode().strip() == token
    except (OSError, http.client.HTTPException, ValueError):
        return False
    finally:
        connection.close()


def _connection(address: Address) -> http.client.HTTPConnection:
    if address.scheme == "http":
        return http.client.HTTPConnection(address.host, address.port, timeout=5)
    # Its token is what it is known by: the certificate may be any authority's.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(address.host, address.port, timeout=5, context=context)


def _files() -> int:
    """Return how many files a worker may open: nginx cannot raise the hard limit but as root."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return render.FILES if hard == resource.RLIM_INFINITY else min(render.FILES, hard)


def _wait(run: Path, address: Address, token: str) -> None:
    deadline = time.monotonic() + HEALTHY_SECONDS
    while processes.running(run / "nginx.json"):
        if _answers(address, token):
            return
        if time.monotonic() > deadline:
            break
        time.sleep(0.1)
    said = (run / "nginx.log").read_text(errors="replace").strip().splitlines()[-4:]
    raise MirrorError(
        "the mirror's nginx does not serve",
        address.place,
        " | ".join(said) or f"no answer within {HEALTHY_SECONDS:.0f} s and nothing in its log",
        "an answer of its own",
        "the address must be this machine's own (a podman network's gateway exists once a"
        " container of it runs) and the port free",
    )
