"""`bedplate mirror resolve` against a mirror in this process: what it asks, writes and refuses."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from bedplate.bill import bill_path, load_bill, web
from bedplate.bill.partial import PLACE
from bedplate.cli import main
from bedplate.lock import load_lock
from tests.unit.bill.vendors import FLANNEL, Key, Server, serve, serve_repository, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

DEMO = Path(__file__).parents[3] / "inventories" / "demo"
TOOLKIT = "https://nvidia.github.io/libnvidia-container/stable/deb/amd64/"
CONTAINERD = "/files/github.com/containerd/containerd/releases/download/v2.4.2"


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Key:
    """A key that signs what the vendors' keys sign elsewhere."""
    return Key(tmp_path_factory.mktemp("gpg") / "home")


@pytest.fixture
def server() -> Iterator[Server]:
    """The mirror."""
    with serving() as running:
        yield running


@pytest.fixture
def site(tmp_path: Path, server: Server, key: Key) -> Path:
    """The demo's site with this mirror, planned."""
    copy = tmp_path / "site"
    shutil.copytree(DEMO, copy, ignore=shutil.ignore_patterns(".bedplate*"))
    for path in (copy / "group_vars").rglob("*.yml"):
        content = yaml.safe_load(path.read_text())
        if content and "bedplate_sources" in content:
            keys = {"nvidia.github.io": key.fingerprint}
            content["bedplate_sources"] = {"mode": "mirror", "url": server.url, "keys": keys}
            path.write_text(yaml.safe_dump(content))
    assert main(["plan", str(copy)]) == 0
    serve(server, load_lock(copy), key)
    return copy


def resolve(site: Path, *words: str) -> int:
    """Run the command."""
    return main(["mirror", "resolve", str(site), *words])


def test_the_bill_has_everything_with_how_it_is_known(site: Path, server: Server, key: Key) -> None:
    assert resolve(site) == 0
    bill = load_bill(site)
    assert bill is not None
    containerd = bill.files["containerd"]
    assert containerd.url == (
        "https://github.com/containerd/containerd/releases/download/v2.4.2/"
        "containerd-static-2.4.2-linux-amd64.tar.gz"
    )
    assert containerd.known.checksum_file == f"{containerd.url}.sha256sum"
    assert containerd.size == len("containerd 2.4.2\n")
    assert bill.files["flannel-manifest"].known.release is not None
    toolkit = bill.files["nvidia-container-toolkit-base"]
    assert toolkit.url == f"{TOOLKIT}nvidia-container-toolkit-base_1.20.1-1_amd64.deb"
    assert (toolkit.known.index, toolkit.known.fingerprint) == (TOOLKIT, key.fingerprint)
    assert bill.images[FLANNEL].needed_by == "flannel-manifest"
    etcd = next(name for name in bill.images if name.startswith("registry.k8s.io/etcd:"))
    assert bill.images[etcd].digest != bill.images[etcd].manifest
    assert bill.images[etcd].size == 8
    assert len(bill.images) == 10
    assert sum(len(path) for _, path in server.asked) < 10_000
    assert not (site / PLACE).exists()


def test_the_same_answers_give_the_same_bytes(site: Path) -> None:
    assert resolve(site) == 0
    before = bill_path(site).read_bytes()
    assert resolve(site) == 0
    assert bill_path(site).read_bytes() == before


def test_check_asks_nobody(site: Path, server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert resolve(site, "--check") == 2
    assert "site has no bill of materials" in capsys.readouterr().err
    resolve(site)
    server.asked.clear()
    assert resolve(site, "--check") == 0
    assert server.asked == []


def test_a_changed_lock_makes_the_bill_stale(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    resolve(site)
    lock = site / ".bedplate.lock.yml"
    lock.write_text(lock.read_text().replace("version: 2.4.2", "version: 2.4.3"))
    capsys.readouterr()
    assert resolve(site, "--check") == 2
    said = capsys.readouterr().err
    assert "bill of materials is out of date" in said
    assert "got containerd 2.4.2, the lock has 2.4.3" in said
    assert f"run: bedplate mirror resolve {site}" in said


def test_everything_that_is_missing_is_reported_at_once(
    site: Path, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    del server.answers[f"{CONTAINERD}/containerd-static-2.4.2-linux-amd64.tar.gz.sha256sum"]
    del server.answers["/v2/registry.k8s.io/pause/manifests/3.10.2"]
    assert resolve(site) == 3
    said = capsys.readouterr().err
    assert "containerd 2.4.2 is not found: its checksum file" in said
    assert "image registry.k8s.io/pause:3.10.2 is not found" in said
    assert said.count("HTTP 404") == 2
    assert not bill_path(site).exists()


def test_an_answer_that_says_later_is_asked_again(site: Path, server: Server) -> None:
    server.busy["/v2/registry.k8s.io/pause/manifests/3.10.2"] = 2
    assert resolve(site) == 0


def test_another_digest_of_the_same_version_is_refused(
    site: Path, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    assert resolve(site) == 0
    before = bill_path(site).read_bytes()
    path = f"{CONTAINERD}/containerd-static-2.4.2-linux-amd64.tar.gz.sha256sum"
    name = "containerd-static-2.4.2-linux-amd64.tar.gz"
    server.answers[path] = "text/plain", f"{'0' * 64}  {name}\n".encode()
    server.serve_image("registry.k8s.io/pause:3.10.2", size=8)
    assert resolve(site) == 3
    said = capsys.readouterr().err
    assert "containerd 2.4.2 has another digest than the committed one" in said
    assert "registry.k8s.io/pause:3.10.2 has another digest than the committed one" in said
    assert bill_path(site).read_bytes() == before


def test_a_tag_that_moves_keeps_its_digest_while_it_is_there(site: Path, server: Server) -> None:
    assert resolve(site) == 0
    before = bill_path(site).read_bytes()
    server.serve_image("docker.io/library/debian:12-slim", size=99)
    assert resolve(site) == 0
    assert bill_path(site).read_bytes() == before


def test_a_repository_that_another_key_signs_is_refused(
    site: Path, server: Server, key: Key, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = Key(tmp_path / "other")
    serve_repository(server, TOOLKIT, other, [{"Package": "x"}])
    assert resolve(site) == 3
    assert "repository's index is not signed by its key" in capsys.readouterr().err
    server.serve_file("https://nvidia.github.io/libnvidia-container/gpgkey", other.public)
    assert resolve(site) == 3
    said = capsys.readouterr().err
    assert "repository has another key" in said
    assert f"got {other.fingerprint} / allowed {key.fingerprint}" in said


def test_a_list_that_the_index_does_not_sign_is_refused(
    site: Path, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    path = "/files/" + TOOLKIT.removeprefix("https://") + "Packages"
    kind, body = server.answers[path]
    server.answers[path] = kind, body.replace(b"SHA256: ", b"SHA256: 0")
    assert resolve(site) == 3
    assert "file is not what the signed index says" in capsys.readouterr().err


def test_a_run_killed_between_any_two_requests_ends_equal(
    site: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "BACKOFF", 0)
    assert resolve(site) == 0
    whole, count = bill_path(site).read_bytes(), len(server.asked)
    for served in range(count):
        bill_path(site).unlink()
        server.left = served
        assert resolve(site) == 3
        assert not bill_path(site).exists()
        server.left = None
        assert resolve(site) == 0
        assert bill_path(site).read_bytes() == whole
