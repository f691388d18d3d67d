"""`bedplate mirror fill` from a stand-in: whatever happens, the next run ends whole."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from bedplate.bill.places import HTTPS
from bedplate.common import progress
from tests.substrate.internet.faults import Fault
from tests.unit.mirror.conftest import LARGE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.unit.mirror.conftest import Field


def flip(path: Path, offset: int = 100) -> None:
    """Change one byte of a file and keep its size."""
    changed = bytearray(path.read_bytes())
    changed[offset % len(changed)] ^= 1
    path.write_bytes(changed)


def a_file(field: Field) -> Path:
    return field.store.place(field.bill.files["kubernetes-node"].url.removeprefix(HTTPS))


def unsound(field: Field) -> list[str]:
    """Name the files and blobs that are at their places with other bytes than their digest's."""
    wrong = [
        name
        for name, file in field.bill.files.items()
        for place in [field.store.place(file.url.removeprefix(HTTPS))]
        if place.exists() and hashlib.sha256(place.read_bytes()).hexdigest() != file.sha256
    ]
    return wrong + [
        str(path)
        for path in field.store.registry.rglob("data")
        if hashlib.sha256(path.read_bytes()).hexdigest() != path.parent.name
    ]


def rests(field: Field) -> list[Path]:
    """Return what cut-off writes have left."""
    return [*field.store.root.rglob(".new-*"), *field.store.root.rglob("incoming")]


def test_all_of_the_bill_is_there_and_a_second_run_makes_no_request(
    field: Field, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert field.run("check") == 1
    monkeypatch.setattr(progress, "LOG_SECONDS", 0)
    assert field.run("fill") == 0
    printed = capsys.readouterr()
    assert "0 parts fetched" not in printed.out
    assert re.search(r"^\d+\.\d MB of \d+\.\d MB, \d+\.\d MB/s.*: \S+$", printed.err, re.MULTILINE)
    assert field.run("check") == 0
    assert unsound(field) == rests(field) == []
    contents = field.store.contents()
    assert {name: one.digest for name, one in contents.images.items()} == {
        name: one.digest for name, one in field.bill.images.items()
    }
    field.vendors.records.forget()
    assert field.run("fill") == 0
    assert "0 parts fetched" in capsys.readouterr().out
    assert field.vendors.records.requests() == []


@pytest.mark.parametrize("damage", ["changed", "truncated", "missing"])
def test_damage_is_named_and_the_next_run_repairs_it(
    field: Field, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert field.run("fill") == 0
    (blob,) = (path for path in field.store.registry.rglob("data") if path.read_bytes() == b"small")
    for path in (a_file(field), blob):
        if damage == "changed":
            flip(path)
        elif damage == "truncated":
            path.write_bytes(path.read_bytes()[:-1])
        else:
            path.unlink()
    capsys.readouterr()
    assert field.run("check") == 1
    said = capsys.readouterr()
    assert [line for line in said.out.splitlines() if damage in line] == said.out.splitlines()
    assert f"kubernetes-node: {damage}" in said.out
    assert str(blob) in said.out
    assert "2 of the" in said.err
    assert field.run("fill") == 0
    assert ": 2 parts fetched" in capsys.readouterr().out
    assert field.run("check") == 0


def test_killed_at_ten_points_it_ends_whole(field: Field, tmp_path: Path) -> None:
    """Each run is killed later than the last; what is at its place is whole at any time."""
    total = sum(one.size for one in field.bill.files.values())
    # A file that hangs keeps each run from its end, however slowly this process looks.
    with field.vendors.records.fault(Fault("dl.k8s.io", stop="hang")):
        for point in range(1, 11):
            run = field.start(tmp_path / "said", "fill")
            while there(field) < total * point / 11:
                assert run.runs, run.said
                time.sleep(0.001)
            assert run.runs, run.said
            run.kill()
            assert unsound(field) == []
    last = field.start(tmp_path / "last", "fill")
    assert last.end() == 0, last.said
    assert field.run("check") == 0
    assert rests(field) == []


@pytest.fixture
def small_disk(field: Field) -> Iterator[Path]:
    """A disk of its own for the mirror, with room and names for a part of it only."""
    place = field.store.root
    place.mkdir(parents=True)
    options = f"size={LARGE * 2},nr_inodes=50"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], check=True)
    yield place
    subprocess.run(["umount", str(place)], check=True)


def grow(disk: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(disk)], check=True)


def test_a_full_disk_is_said_in_one_line_and_the_next_run_ends_whole(
    field: Field, small_disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert field.run("fill") == 3
    said = capsys.readouterr().err
    assert said.startswith(f"the disk has no room for the mirror — {small_disk} — got ")
    assert said.count("\n") == 1
    fetched = [one for one in field.vendors.records.requests() if one.size >= LARGE]
    assert fetched == [], "it is known before anything large is fetched"
    grow(small_disk, f"size={LARGE * 20}")
    assert field.run("fill") == 3, "there is room, and no file can be made"
    said = capsys.readouterr().err
    assert (said[:35], said.count("\n")) == ("the disk has no room for the mirror", 1)
    assert unsound(field) == []
    grow(small_disk, "nr_inodes=5000")
    assert field.run("fill") == 0
    assert field.run("check") == 0


def there(field: Field) -> int:
    """Return how many bytes the mirror has."""
    found = 0
    for path in field.store.root.rglob("*"):
        try:
            found += path.stat().st_size if path.is_file() else 0
        except OSError:
            continue  # it has just been renamed
    return found


def test_what_cut_off_writes_and_pushes_have_left_goes(field: Field) -> None:
    push = field.store.registry / "docker/registry/v2/repositories/nvcr.io/x/_uploads/1/data"
    rests_of_it = [push, field.store.files / "dl.k8s.io/.new-x", field.store.incoming / "0"]
    killed = "import os; from pathlib import Path; from bedplate.common import writing\n"
    killed += "with writing.stream(Path('kubelet')): os._exit(9)"
    folder = field.store.files / "dl.k8s.io/release"
    folder.mkdir(parents=True)
    assert subprocess.run([sys.executable, "-c", killed], cwd=folder).returncode == 9
    rests_of_it += folder.iterdir()
    assert len(rests_of_it) == 4
    for path in rests_of_it:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"half")
    assert field.run("fill") == 0
    assert [path for path in rests_of_it if path.exists()] == []
    assert field.run("check") == 0


def test_two_at_once_take_turns(field: Field, tmp_path: Path) -> None:
    runs = [field.start(tmp_path / name, "fill") for name in ("first", "second")]
    assert [one.end() for one in runs] == [0, 0], [one.said for one in runs]
    assert len([one for one in runs if " 0 parts fetched" in one.said]) == 1
    assert field.run("check") == 0


def test_the_second_says_that_it_waits(field: Field, tmp_path: Path) -> None:
    with field.store.filling():
        second = field.start(tmp_path / "second", "fill")
        while second.runs and "\n" not in second.said:
            time.sleep(0.01)
        waits = f"waiting for another fill of {field.store.root} (process {os.getpid()})\n"
        assert second.said == waits
    assert second.end() == 0


@pytest.mark.parametrize(
    "fault",
    [Fault(cut=True, times=3), Fault(stop="close", times=2), Fault("dl.k8s.io", cut=True, times=2)],
)
def test_a_connection_that_breaks_is_taken_up(field: Field, fault: Fault) -> None:
    with field.vendors.records.fault(fault):
        assert field.run("fill") == 0
    assert field.run("check") == 0
    if fault.host == "dl.k8s.io":  # a large file: only its rest is asked for
        assert 206 in {one.status for one in field.vendors.records.requests()}


def test_other_bytes_are_refused_and_nothing_of_them_is_kept(
    field: Field, capsys: pytest.CaptureFixture[str]
) -> None:
    path = field.bill.files["kubernetes-node"].url.partition("dl.k8s.io")[2]
    with field.vendors.records.fault(Fault(path=path, flip=1000)):
        assert field.run("fill") == 3
    assert "kubernetes-node does not match its digest in the bill" in capsys.readouterr().err
    assert not a_file(field).exists()
    assert field.run("fill") == 0


def test_everything_that_is_gone_is_reported_at_once(
    field: Field, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = [Fault(path="*/etcd/manifests/*", status=404), Fault(host="dl.k8s.io", status=404)]
    with field.vendors.records.fault(*gone):
        assert field.run("fill") == 3
    said = capsys.readouterr().err
    assert "image registry.k8s.io/etcd:3.6.8-0 is not found" in said
    assert "kubernetes-node is not found" in said
    assert field.run("fill") == 0
    assert field.run("check") == 0
