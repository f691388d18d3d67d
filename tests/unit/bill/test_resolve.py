"""`bedplate mirror resolve` against a mirror in this process: what it asks, writes and refuses."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import certifi
import pytest
import yaml

from bedplate.bill import bill_path, load_bill, web
from bedplate.bill.errors import UNANSWERED, refused, together
from bedplate.bill.partial import PLACE
from bedplate.cli.main import main
from bedplate.common import progress, shipped
from bedplate.lock import load_lock
from tests.substrate.internet.faults import Fault
from tests.substrate.standin.signing import Key
from tests.unit.bill.vendors import FLANNEL, planned, put, put_repository

if TYPE_CHECKING:
    from tests.substrate.internet.fixtures import Served

DEMO = Path(__file__).parents[3] / "inventories" / "demo"
TOOLKIT = "https://nvidia.github.io/libnvidia-container/stable/deb/amd64/"
CONTAINERD = "https://github.com/containerd/containerd/releases/download/v2.4.2"
PAUSE = "*/pause/manifests/3.10.2"


@pytest.fixture
def site(tmp_path: Path, internet: Served, key: Key) -> Path:
    """The demo's site, planned for this stand-in as its mirror."""
    return planned(tmp_path / "site", internet, key, {"mode": "mirror", "url": internet.url})


def set_for_all(site: Path, settings: dict[str, Any], *, plan: bool = True) -> None:
    """Add settings of all hosts, and plan the site by them."""
    path = site / "group_vars/all/bedplate.yml"  # Ansible's list of files is that of the process
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | settings))
    assert not plan or main(["plan", str(site)]) == 0


def resolve(site: Path, *words: str) -> int:
    """Run the command."""
    return main(["mirror", "resolve", str(site), *words])


def test_the_bill_has_everything_with_how_it_is_known(
    site: Path, internet: Served, key: Key
) -> None:
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
    assert bill.images[etcd].size > len("layer")
    assert len(bill.images) == 11
    assert not (site / PLACE).exists()


def test_who_waits_sees_how_far_it_is(
    site: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LOG_SECONDS", 0)
    assert resolve(site) == 0
    lines = capsys.readouterr().err.splitlines()
    assert any(re.fullmatch(r"\d+ of \d+ looked up, .* left: \S+", line) for line in lines)
    last = [line for line in lines if " looked up" in line][-1]
    done, _, total = last.split()[:3]
    assert done == total


def test_the_same_answers_give_the_same_bytes(site: Path) -> None:
    assert resolve(site) == 0
    before = bill_path(site).read_bytes()
    assert resolve(site) == 0
    assert bill_path(site).read_bytes() == before


def test_check_asks_nobody(
    site: Path, internet: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    assert resolve(site, "--check") == 2
    assert "site has no bill of materials" in capsys.readouterr().err
    resolve(site)
    internet.records.forget()
    assert resolve(site, "--check") == 0
    assert internet.records.requests() == []


def test_a_changed_lock_makes_the_bill_stale(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    resolve(site)
    set_for_all(site, {"bedplate_pins": {"containerd": "2.3.7"}})
    capsys.readouterr()
    assert resolve(site, "--check") == 2
    said = capsys.readouterr().err
    assert "bill of materials is out of date" in said
    assert "got containerd 2.4.2, the lock has 2.3.7" in said
    assert f"run: bedplate mirror resolve {site}" in said


@pytest.mark.parametrize("words", [(), ("--check",), ("--upstream",)])
def test_a_lock_that_is_not_of_the_settings_is_refused(
    words: tuple[str, ...], site: Path, internet: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    resolve(site)
    internet.records.forget()
    set_for_all(site, {"bedplate_pins": {"containerd": "2.3.7"}}, plan=False)
    capsys.readouterr()
    assert resolve(site, *words) == 3
    said = capsys.readouterr().err
    assert said.startswith("lock is stale: cluster: containerd 2.4.2 → 2.3.7 — ")
    assert said.endswith(f" — {site}/.bedplate.lock.yml — run: bedplate plan {site}\n")
    assert internet.records.requests() == []


def test_everything_that_is_missing_is_reported_at_once(
    site: Path, internet: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    faults = Fault(path="*containerd-static*.sha256sum", status=404), Fault(path=PAUSE, status=404)
    with internet.records.fault(*faults):
        assert resolve(site) == 3
    said = capsys.readouterr().err
    assert "containerd 2.4.2 is not found: its checksum file" in said
    assert "image registry.k8s.io/pause:3.10.2 is not found" in said
    assert said.count("HTTP 404") == 2
    assert not bill_path(site).exists()


def test_a_machine_that_reaches_no_vendor_is_refused_in_one_line(
    site: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked through a proxy's port that is closed: whatever resolver this machine has."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        for name in ("http_proxy", "https_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{closed.getsockname()[1]}")
        monkeypatch.setenv("no_proxy", "")
        monkeypatch.setattr(web, "BACKOFF", 0)
        assert resolve(site, "--upstream") == 3
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(
        "no vendor is reached from this machine — got no answer from api.github.com, dl.k8s.io, "
    )
    assert said.count("refused") == 1
    assert said.endswith(f"https_proxy set behind a proxy; for hosts that do not reach them, see "
                         f"{shipped.manual().parent}/mirror.md")  # fmt: skip


def test_a_host_that_does_not_answer_among_others_is_named() -> None:
    down = refused(UNANSWERED, "nvcr.io", "timed out").problems
    other = refused(UNANSWERED, "quay.io", "timed out").problems
    gone = refused("pause is not found", "https://registry.k8s.io", "HTTP 404").problems
    assert together([*down, *other], {"dl.k8s.io"}) == [*down, *other]
    assert together([*down, *gone], set()) == [*down, *gone]
    assert together(down, set()) == down  # a mirror: the only host that is asked


def test_an_own_image_that_is_refused_is_named_and_the_rest_is_written(
    site: Path, internet: Served, key: Key, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = {"image": f"nvcr.io/lab/gone@sha256:{'1' * 64}", "pool": "pool_class"}
    taught = {"name": "intro", "students": 2, "share": 0.1, "pool": "pool_class"}
    course = {**taught, "frameworks": ["mine"]}
    set_for_all(site, {"bedplate_images": {"mine": gone}, "bedplate_courses": [course]})
    put(internet.tree, load_lock(site), key)
    assert resolve(site) == 2
    bill = load_bill(site)
    assert bill is not None
    assert (len(bill.files) > 5, len(bill.images)) == (True, 13)
    said = [line for line in capsys.readouterr().err.splitlines() if "bedplate_images" in line]
    assert said[-1].startswith(
        "bedplate_images.mine of intro is refused, courses and jobs go without it: "
        f"image nvcr.io/lab/gone@sha256:{'1' * 64} is not found"
    )
    assert resolve(site, "--check") == 0
    assert "bedplate_images.mine of intro is refused" in capsys.readouterr().err


def test_an_answer_that_says_later_is_asked_again(site: Path, internet: Served) -> None:
    with internet.records.fault(Fault(path=PAUSE, status=429, retry_after=0, times=2)):
        assert resolve(site) == 0


def test_another_digest_of_the_same_version_is_refused(
    site: Path, internet: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    assert resolve(site) == 0
    before = bill_path(site).read_bytes()
    name = "containerd-static-2.4.2-linux-amd64.tar.gz"
    internet.tree.put(f"{CONTAINERD}/{name}.sha256sum", f"{'0' * 64}  {name}\n".encode())
    internet.tree.image("registry.k8s.io/pause:3.10.2", (b"another",))
    assert resolve(site) == 3
    said = capsys.readouterr().err
    assert "containerd 2.4.2 has another digest than the committed one" in said
    assert "registry.k8s.io/pause:3.10.2 has another digest than the committed one" in said
    assert bill_path(site).read_bytes() == before


def test_a_tag_that_moves_keeps_its_digest_while_it_is_there(site: Path, internet: Served) -> None:
    assert resolve(site) == 0
    before = bill_path(site).read_bytes()
    internet.tree.image("docker.io/library/debian:12-slim", (b"newer",))
    assert resolve(site) == 0
    assert bill_path(site).read_bytes() == before


def test_a_repository_that_another_key_signs_is_refused(
    site: Path, internet: Served, key: Key, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = Key(tmp_path / "other")
    put_repository(internet.tree, TOOLKIT, other, [{"Package": "x"}])
    other.close()
    assert resolve(site) == 3
    assert "repository's index is not signed by its key" in capsys.readouterr().err
    internet.tree.put("https://nvidia.github.io/libnvidia-container/gpgkey", other.public)
    assert resolve(site) == 3
    said = capsys.readouterr().err
    assert "repository has another key" in said
    assert f"got {other.fingerprint} / allowed {key.fingerprint}" in said


def test_a_list_that_the_index_does_not_sign_is_refused(
    site: Path, internet: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    with internet.records.fault(Fault(path="*/stable/deb/amd64/Packages", flip=0)):
        assert resolve(site) == 3
    assert "file is not what the signed index says" in capsys.readouterr().err


def test_a_run_killed_between_any_two_requests_ends_equal(
    site: Path, internet: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "BACKOFF", 0)
    internet.records.forget()
    assert resolve(site) == 0
    whole, count = bill_path(site).read_bytes(), len(internet.records.requests())
    assert count > 20
    for served in range(count):
        bill_path(site).unlink()
        with internet.records.fault(Fault(after=served, stop="close")):
            assert resolve(site) == 3
        assert not bill_path(site).exists()
        assert resolve(site) == 0
        assert bill_path(site).read_bytes() == whole


def test_the_vendors_and_a_mirror_of_them_give_the_same_bill(
    site: Path, tmp_path: Path, internet: Served, key: Key
) -> None:
    """Upstream: TLS by a test's authority, redirects, and tokens of three registries."""
    assert resolve(site) == 0
    upstream = planned(tmp_path / "upstream", internet, key, {"mode": "upstream"})
    internet.records.forget()
    with internet.names():
        assert resolve(upstream, "--ca", str(internet.authority)) == 0
    bills = load_bill(upstream), load_bill(site)
    assert bills[0] is not None
    assert bills[1] is not None
    assert bills[0].model_copy(update={"packages": {}}) == bills[1]
    asked = internet.records.requests()
    assert {"dl.k8s.io", "nvcr.io", "registry-1.docker.io"} <= {one.host for one in asked}
    assert {one.status for one in asked if one.host == "ghcr.io"} == {200, 401}
    assert sum(one.size for one in asked) < 1_000_000


def test_a_site_with_a_mirror_trusts_its_keys_at_the_vendors_addresses_too(
    site: Path, internet: Served, key: Key
) -> None:
    """What answers there may sign again: a proxy that serves a mirror under the vendors' names."""
    assert load_lock(site).sources.mode == "mirror"
    with internet.names():
        assert resolve(site, "--upstream", "--ca", str(internet.authority)) == 0
    bill = load_bill(site)
    assert bill is not None
    assert bill.files["nvidia-container-toolkit"].known.fingerprint == key.fingerprint


def test_a_stranger_in_the_vendors_place_is_not_believed(
    tmp_path: Path,
    internet: Served,
    key: Key,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    upstream = planned(tmp_path / "upstream", internet, key, {"mode": "upstream"})
    with internet.names(), monkeypatch.context() as trust:
        trust.setenv("REQUESTS_CA_BUNDLE", certifi.where())
        assert resolve(upstream) == 3
    assert "certificate verify failed" in capsys.readouterr().err
    assert [one for one in internet.records.requests() if one.status == 200] == []
