"""The mirror: its store, index, processes, configurations, images and recipes."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import pytest

from bedplate.mirror import Contents, MirrorError, atomic, processes, render
from bedplate.mirror.address import Address
from bedplate.mirror.store import Store
from tests.substrate.images import oci, recipes

if TYPE_CHECKING:
    from pathlib import Path

    from bedplate.mirror import FileEntry

RECIPE = "sha256:" + "a" * 64


ADDRESS = "dl.k8s.io/v1/tool.tgz"


def filled(tmp_path: Path, content: bytes = b"content") -> tuple[Store, FileEntry]:
    made = tmp_path / "made"
    made.write_bytes(content)
    store = Store(tmp_path / "root")
    return store, store.add_file(made, ADDRESS, recipe=RECIPE)


def test_a_file_lies_at_its_vendors_path(tmp_path: Path) -> None:
    store, entry = filled(tmp_path)
    sha256 = hashlib.sha256(b"content").hexdigest()
    assert (store.root / "files" / ADDRESS).read_bytes() == b"content"
    assert (entry.sha256, entry.size) == (sha256, 7)
    assert store.file_is_intact(ADDRESS, entry)


@pytest.mark.parametrize("damage", [b"CONTENT", b"conten", b""])
def test_damage_is_found_and_adding_again_mends_it(tmp_path: Path, damage: bytes) -> None:
    store, entry = filled(tmp_path)
    store.place(ADDRESS).write_bytes(damage)
    assert not store.file_is_intact(ADDRESS, entry)
    assert filled(tmp_path)[1] == entry
    assert store.file_is_intact(ADDRESS, entry)


def test_a_small_file_that_is_there_stays(tmp_path: Path) -> None:
    store = Store(tmp_path)
    entry = store.add_text(b"text", "dl.k8s.io/text")
    before = store.place("dl.k8s.io/text").stat().st_ino
    assert store.add_text(b"text", "dl.k8s.io/text") == entry
    assert store.place("dl.k8s.io/text").stat().st_ino == before
    assert store.add_text(b"TEXT", "dl.k8s.io/text") != entry
    assert store.place("dl.k8s.io/text").read_bytes() == b"TEXT"


def test_an_interrupted_write_leaves_the_old_file_and_no_rest(tmp_path: Path) -> None:
    target = tmp_path / "file"
    atomic.write(target, "old")

    def interrupted() -> None:
        with atomic.writing(target) as file:
            file.write(b"half of the n")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_files_that_nothing_lists_go(tmp_path: Path) -> None:
    store, kept = filled(tmp_path)
    made = tmp_path / "made"
    for older in ("dl.k8s.io/v0/tool.tgz", "dl.k8s.io/v0/tool.tgz.sha256", "sha256/00/tool.tgz"):
        store.add_file(made, older, recipe=RECIPE)
    assert store.remove_unlisted_files(Contents(files={ADDRESS: kept})) == [
        "dl.k8s.io/v0/tool.tgz",
        "dl.k8s.io/v0/tool.tgz.sha256",
        "sha256/00/tool.tgz",
    ]
    assert store.file_is_intact(ADDRESS, kept)
    assert [path.name for path in store.files.iterdir()] == ["dl.k8s.io"]
    assert not (store.files / "dl.k8s.io/v0").exists()


def test_a_path_that_nginx_would_read_otherwise_is_refused(tmp_path: Path) -> None:
    address = Address("http", "192.0.2.1", 5080)
    text = render.nginx(render.Served(tmp_path / "r", tmp_path / "m", address, "t"), tmp_path)
    assert "listen 192.0.2.1:5080;" in text
    assert "user " not in text.replace("the user", "")
    with pytest.raises(MirrorError, match="nginx can't serve from this directory"):
        render.nginx(render.Served(tmp_path / 'a"b', tmp_path, address, "t"), tmp_path)


SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


def test_stop_ends_its_own_process(tmp_path: Path) -> None:
    record = tmp_path / "p.json"
    found = processes.start(record, SLEEP, tmp_path / "log", {})
    assert processes.running(record) == found
    assert os.getsid(found.pid) == found.pid
    assert processes.stop(record)
    assert processes.identity(found.pid) is None
    assert not record.exists()
    assert not processes.stop(record)


@pytest.mark.parametrize("change", [{"started": 1}, {"boot": "another"}])
def test_a_recycled_id_is_left_alone(tmp_path: Path, change: dict[str, int | str]) -> None:
    with subprocess.Popen(SLEEP) as other:
        try:
            theirs = processes.identity(other.pid)
            assert theirs is not None
            record = tmp_path / "p.json"
            record.write_text(json.dumps(asdict(theirs) | change))
            assert processes.running(record) is None
            assert not processes.stop(record)
            assert other.poll() is None
        finally:
            other.kill()


def test_archives_do_not_depend_on_time_or_owner(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"x" * 100)
    members: list[tuple[str, Path | bytes | str | None, int]] = [
        ("tmp", None, 0o1777),
        ("bin/program", program, 0o755),
        ("etc/passwd", b"root", 0o644),
        ("bin/sh", "bash", 0o777),
    ]
    first = oci.pack(tmp_path / "a", members)
    os.utime(program, (1, 1))
    program.chmod(0o600)
    second = oci.pack(tmp_path / "b", members)
    assert (first.digest, first.diff_id) == (second.digest, second.diff_id)
    assert first.digest == f"sha256:{hashlib.sha256((tmp_path / 'a').read_bytes()).hexdigest()}"
    assert (tmp_path / "a").read_bytes()[4:8] == bytes(4)  # gzip's own time stamp
    with tarfile.open(tmp_path / "a") as archive:
        assert [(m.name, m.mode, m.size) for m in archive] == [
            ("tmp", 0o1777, 0),
            ("bin/program", 0o755, 100),
            ("etc/passwd", 0o644, 4),
            ("bin/sh", 0o777, 0),
        ]
        assert archive.getmember("bin/sh").linkname == "bash"
        assert archive.extractfile("etc/passwd").read() == b"root"  # type: ignore[union-attr]


def test_a_compressed_base_keeps_its_plain_digest(tmp_path: Path) -> None:
    plain = io.BytesIO(os.urandom(3 << 20)).getvalue()
    (tmp_path / "base.tar").write_bytes(plain)
    layer = oci.compress(tmp_path / "base.tar", tmp_path / "layer")
    assert layer.diff_id == f"sha256:{hashlib.sha256(plain).hexdigest()}"


def test_image_names_begin_with_a_host() -> None:
    assert oci.split("docker.io/library/debian:12") == ("docker.io/library/debian", "12")
    for name in ("debian:12", "docker.io/library/debian"):
        with pytest.raises(MirrorError, match="not an official image name"):
            oci.split(name)


def test_recipe_digest_follows_tool_versions_text_and_base() -> None:
    tools = recipes.known_tools()
    image = next(i for i in recipes.images(tools) if "kube-proxy" in i.name)
    before = recipes.digest(image, tools, "base")
    assert before == recipes.digest(image, tools, "base")
    newer = tools | {"kubernetes": replace(tools["kubernetes"], version="9")}
    other = tools | {"etcd": replace(tools["etcd"], version="9")}
    assert before != recipes.digest(image, newer, "base")
    assert before == recipes.digest(image, other, "base")
    assert before != recipes.digest(image, tools, "another base")
    assert before != recipes.digest(replace(image, text="{}"), tools, "base")


def test_a_program_of_the_machine_is_not_offered_under_a_pinned_version(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/crictl").symlink_to(sys.executable)
    with pytest.raises(MirrorError, match="can't offer the machine's own program"):
        recipes.Tool("crictl", "1.36.0", tmp_path).program("crictl")
