"""A dataset of a web server, mounted with the very arguments of the cluster's cache (FUSE)."""

from __future__ import annotations

import hashlib
import os
import subprocess
import threading
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.components.frameworks import data_cache, volumes
from tests.schedulers.api import eventually
from tests.schedulers.test_homes import COURSE, locked

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bedplate.lock import Lock

PATIENCE = 240
SIZE = 8 << 20


class Source(SimpleHTTPRequestHandler):
    """A web server that remembers which files it was asked for."""

    asked: list[str]

    def __init__(self, asked: list[str], *given: Any, **more: Any) -> None:
        self.asked = asked
        super().__init__(*given, **more)

    def do_GET(self) -> None:
        """Serve a file or a listing."""
        self.asked.append(self.path)
        super().do_GET()

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@contextmanager
def mounted(folder: Path, url: str) -> Iterator[Path]:
    """Run the cache as a node does."""
    mount = folder / "mount"
    mount.mkdir(exist_ok=True)
    arguments = data_cache.command(url, "1Gi", str(folder / "kept"), str(mount))
    with (folder / "log").open("w") as log:
        running = subprocess.Popen(["rclone", *arguments], stdout=log, stderr=log)
    try:
        eventually(lambda: mount.is_mount() or running.poll() is not None, PATIENCE)
        assert mount.is_mount(), (folder / "log").read_text()
        yield mount
    finally:
        subprocess.run(["umount", "--lazy", str(mount)], check=False)
        running.terminate()
        running.wait(PATIENCE)


def digest(path: Path) -> str:
    """Return a file's digest, read past what the kernel kept of it."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return hashlib.file_digest(file, "sha256").hexdigest()


def test_the_second_read_is_local_with_the_source_cut_off(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    for name in ("read", "unread"):
        (tmp_path / "source" / name).write_bytes(os.urandom(SIZE))
    wanted = digest(tmp_path / "source/read")
    asked: list[str] = []
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Source, asked, directory=str(tmp_path / "source"))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with mounted(tmp_path, f"http://127.0.0.1:{server.server_port}/") as mount:
        assert {one.name for one in mount.iterdir()} == {"read", "unread"}
        assert digest(mount / "read") == wanted
        before = asked.count("/read")
        assert before
        assert digest(mount / "read") == wanted
        assert asked.count("/read") == before, "the second read asked the source"
        server.shutdown()
        server.server_close()
        assert digest(mount / "read") == wanted
        assert (mount / "unread").stat().st_size == SIZE
        with pytest.raises(OSError, match="Input/output error"):
            digest(mount / "unread")
        with pytest.raises(OSError, match="Read-only"):
            (mount / "new").write_text("x")
    # What a node keeps outlives the mount; the names of files do not.
    kept = next(path for path in (tmp_path / "kept/vfs").rglob("read") if path.is_file())
    assert digest(kept) == wanted


def remote() -> Lock:
    """Return a lock whose course reads a dataset from a web server."""
    lock = locked({"path": "/mnt/homes", "shared": True}, hosts=2)
    assert lock.cluster is not None
    assert lock.cluster.storage is not None
    data = {"mnist": {"url": "https://data.example/mnist/", "cache": "20Gi"}}
    storage = type(lock.cluster.storage).model_validate(
        {"homes": {"path": "/mnt"}, "datasets": data}
    )
    return lock.model_copy(update={"cluster": lock.cluster.model_copy(update={"storage": storage})})


def test_each_node_of_the_courses_pool_has_the_cache_and_pods_see_it_come_back() -> None:
    lock = remote()
    made = volumes.objects(volumes.volumes_args(lock), "a", "b")
    found = {(one["kind"], one["metadata"]["name"]): one for one in made}
    cache = found["DaemonSet", "data-mnist"]["spec"]["template"]["spec"]
    (container,) = cache["containers"]
    assert container["image"] == "b"
    assert "--http-url=https://data.example/mnist/" in container["args"]
    assert "--vfs-cache-max-size=20Gi" in container["args"]
    place = "/var/lib/bedplate/data/mnist"
    assert f"{place}/files" in container["args"]
    volume = found["PersistentVolume", f"bedplate-data-{COURSE}-mnist"]["spec"]
    assert volume["hostPath"]["path"] == place
    assert (
        volume["nodeAffinity"]["required"]["nodeSelectorTerms"]
        == (
            cache["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
                "nodeSelectorTerms"
            ]
        )
    )
    (mount,) = (
        one
        for one in volumes.of_course(lock, COURSE)["volume_mounts"]
        if one["name"] == "data-mnist"
    )
    assert mount["readOnly"] is True
    assert mount["mountPropagation"] == "HostToContainer"
