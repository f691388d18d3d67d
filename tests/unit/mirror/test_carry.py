"""`bedplate mirror pack`, `unpack` and `list`: of a carried mirror the bill decides."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
from typing import TYPE_CHECKING

import pytest
import yaml

from bedplate.bill.places import HTTPS
from bedplate.mirror.store import Store, cache
from tests.substrate.images.placing import put

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.mirror.conftest import Field

SYSTEM = "packages.bedplate.internal/0123456789abcdef/debian-12/"
PACKAGE = f"{SYSTEM}InRelease"
#: An index lies under its name and under its digest, with the same bytes.
INDEX = (f"{SYSTEM}Packages", f"{SYSTEM}by-hash/SHA256/{hashlib.sha256(b'index').hexdigest()}")


@pytest.fixture
def packed(field: Field, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A packed mirror, and another machine's cache with nothing in it."""
    assert field.run("fill") == 0
    contents = field.store.contents()
    files = {**contents.files, PACKAGE: put(field.store, b"signed", PACKAGE)}
    files |= {name: put(field.store, b"index", name) for name in INDEX}
    field.store.record(contents.model_copy(update={"files": files}))
    target = tmp_path / "carried.tar"
    assert field.run("pack", str(target)) == 0
    monkeypatch.setenv("BEDPLATE_CACHE", str(tmp_path / "other"))
    return target


def nothing(store: Store) -> bool:
    """Say whether a mirror has no file at all but its lock."""
    return {path.name for path in store.root.rglob("*") if path.is_file()} <= {"lock"}


def test_carried_to_another_machine_it_is_whole(field: Field, packed: Path, tmp_path: Path) -> None:
    sums = tmp_path / "carried.tar.sha256"
    done = subprocess.run(["sha256sum", "-c", sums], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0
    assert field.run("check") == 1
    field.vendors.records.forget()
    assert field.run("unpack", str(packed)) == 0
    assert field.vendors.records.requests() == []
    assert field.run("check") == 0
    there, here = Store(cache() / "mirror"), Store(tmp_path / "cache" / "mirror")
    assert there.place(PACKAGE).read_bytes() == b"signed"
    assert [there.place(name).read_bytes() for name in INDEX] == [b"index", b"index"]
    assert there.contents() == here.contents()
    assert list(there.images.references()) == list(here.images.references())
    again = tmp_path / "again.tar"
    assert field.run("pack", str(again)) == 0
    assert again.read_bytes() == packed.read_bytes()


@pytest.mark.parametrize("part", ["kubernetes-node", "manifest", "small", "list"])
def test_a_planted_change_is_found_and_nothing_is_used(
    field: Field, packed: Path, part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    content = bytearray(packed.read_bytes())
    with tarfile.open(packed) as archive:
        for member in archive:
            file = archive.extractfile(member)
            assert file is not None
            if (
                (part == "manifest" and b"schemaVersion" in file.read())
                or (part == "small" and member.size == len("small"))
                or (part == "list" and member.name.endswith(".json"))
                or part in member.name
            ):
                content[member.offset_data + member.size // 2] ^= 1
                break
        else:
            pytest.fail(f"nothing to change for {part}")
    packed.write_bytes(content)
    capsys.readouterr()
    assert field.run("unpack", str(packed)) == 3
    said = capsys.readouterr().err
    assert said.startswith(
        "packed mirror is not what the site's bill lists; nothing of it was used"
    )
    assert nothing(field.store)


@pytest.mark.parametrize("change", ["cut", "more", "link", "outside", "less"])
def test_what_is_not_the_bills_is_refused(
    field: Field, packed: Path, change: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if change == "cut":
        packed.write_bytes(packed.read_bytes()[:-20000])
    else:
        changed = io.BytesIO()
        with tarfile.open(packed) as old, tarfile.open(fileobj=changed, mode="w") as new:
            members = old.getmembers()
            for member in members[:-1] if change == "less" else members:
                new.addfile(member, old.extractfile(member))
            if change != "less":
                name = "../../outside" if change == "outside" else "files/example.com/more"
                more = tarfile.TarInfo(name)
                if change == "link":
                    more = tarfile.TarInfo(members[-1].name)
                    more.type, more.linkname = tarfile.SYMTYPE, "/etc/passwd"
                new.addfile(more)
        packed.write_bytes(changed.getvalue())
    capsys.readouterr()
    assert field.run("unpack", str(packed)) == 3
    assert "nothing of it was used" in capsys.readouterr().err
    assert nothing(field.store)


def test_a_mirror_that_lacks_something_is_not_packed(
    field: Field, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert field.run("fill") == 0
    path = field.store.place(field.bill.files["kubernetes-node"].url.removeprefix(HTTPS))
    content = bytearray(path.read_bytes())
    content[7] ^= 1
    path.write_bytes(content)
    target = tmp_path / "carried.tar"
    assert field.run("pack", str(target)) == 3
    assert "kubernetes-node: changed" in capsys.readouterr().err
    assert not list(tmp_path.glob("*carried*"))


def test_the_bill_as_other_programs_read_it(
    field: Field, capsys: pytest.CaptureFixture[str]
) -> None:
    bill = field.bill
    assert field.run("list") == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["KIND", "BYTES", "DIGEST", "NAME", "STATE"]
    assert len(lines) == len(bill.files) + len(bill.images)
    assert all(line.endswith("  missing") for line in lines)
    assert field.run("fill") == 0
    capsys.readouterr()
    assert field.run("list") == 0
    node = bill.files["kubernetes-node"]
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["file", str(node.size), f"sha256:{node.sha256}", node.url] in rows
    assert field.run("list", "--format", "json") == 0
    content = json.loads(capsys.readouterr().out)
    assert {one["name"]: one["digest"] for one in content["images"]} == {
        name: one.digest for name, one in bill.images.items()
    }
    assert "registry-1.docker.io:443" in content["hosts"]
    assert field.run("list", "--format", "skopeo") == 0
    synced = yaml.safe_load(capsys.readouterr().out)
    assert {
        f"{host}/{path}:{tag}"
        for host, of in synced.items()
        for path, tags in of["images"].items()
        for tag in tags
    } == set(bill.images)
    assert field.run("list", "--format", "hosts") == 0
    listed = [line for line in capsys.readouterr().out.splitlines() if line[0] != "#"]
    assert {"dl.k8s.io 443/tcp", "registry.k8s.io 443/tcp", "github.com 443/tcp"} <= set(listed)
