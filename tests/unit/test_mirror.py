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

from bedplate.catalogue import load_catalogue
from bedplate.common import writing
from bedplate.mirror import MirrorError, processes, render
from bedplate.mirror.address import Address
from tests.substrate.images import oci, recipes

if TYPE_CHECKING:
    from pathlib import Path


def test_an_interrupted_write_leaves_the_old_file_and_no_rest(tmp_path: Path) -> None:
    target = tmp_path / "file"
    writing.replace(target, b"old")

    def interrupted() -> None:
        with writing.stream(target) as file:
            file.write(b"half of the n")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


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


@pytest.mark.parametrize("tool", ["kubernetes", "kubernetes-1.35"])
def test_a_kubernetes_has_the_images_and_the_archive_that_the_catalogue_names(tool: str) -> None:
    """Another version of one would be asked for in vain by a site with that Kubernetes."""
    tools, catalogue = recipes.known_tools(), load_catalogue()
    release = catalogue.kubernetes[tools[tool].version].value.model_dump()
    parts = {"kubernetes": release, **{one: release[one] for one in ("etcd", "coredns", "pause")}}
    asked = {
        one.value.reference.format(**parts[one.value.component])
        for one in catalogue.images.values()
        if one.value.component in parts
    }
    made = {one.name: one.tools for one in recipes.images(tools) if one.name in asked}
    assert made.keys() == asked
    assert len(asked) == 7
    on_request = {tools[name].on_request for needed in made.values() for name in needed}
    assert on_request == {tools[tool].on_request}
    archives = {one.tool: one.name for one in recipes.files(tools) if "kubelet" in one.files}
    assert f"/v{release['version']}/" in archives[tool]


def test_a_program_of_the_machine_is_not_offered_under_a_pinned_version(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/crictl").symlink_to(sys.executable)
    with pytest.raises(MirrorError, match="can't offer the machine's own program"):
        recipes.Tool("crictl", "1.36.0", tmp_path).program("crictl")
