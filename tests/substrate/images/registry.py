"""A registry that takes pushes while a mirror's root is filled; the mirror itself takes none."""

from __future__ import annotations

import hashlib
import json
import shutil
import socket
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bedplate.common import writing
from bedplate.mirror import processes, service

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bedplate.mirror.store import Store

# It would send traces to an address where nothing listens.
ENVIRONMENT = {"OTEL_TRACES_EXPORTER": "none"}
SECONDS = 20.0


@contextmanager
def writable(store: Store, program: Path) -> Iterator[int]:
    """Run the registry on a loopback port, which is yielded.

    The caller holds the store's lock (`Store.filling`).
    """
    root = hashlib.sha256(str(store.root.resolve()).encode()).hexdigest()[:12]
    run = service.run_directory(f".fill-{root}")
    identity = run / "registry.json"
    processes.stop(identity)  # of a fill that was killed: the caller holds the lock
    port = _free_port()
    store.registry.mkdir(parents=True, exist_ok=True)
    writing.replace(run / "registry.yml", _settings(store.registry, port).encode())
    command = [str(program), "serve", str(run / "registry.yml")]
    try:
        processes.start(identity, command, run / "registry.log", ENVIRONMENT)
        _wait(run, port)
        yield port
    finally:
        processes.stop(identity)
        shutil.rmtree(run)


def _settings(data: Path, port: int) -> str:
    """Return the registry's configuration; JSON is YAML."""
    settings = {
        "version": 0.1,
        "log": {"level": "warn", "accesslog": {"disabled": True}},
        "storage": {
            "filesystem": {"rootdirectory": str(data)},
            "maintenance": {"uploadpurging": {"enabled": False}},
        },
        "http": {"addr": f"127.0.0.1:{port}", "relativeurls": True},
    }
    return json.dumps(settings, indent=2) + "\n"


def _wait(run: Path, port: int) -> None:
    deadline = time.monotonic() + SECONDS
    while processes.running(run / "registry.json") and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError((run / "registry.log").read_text(errors="replace"))


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
