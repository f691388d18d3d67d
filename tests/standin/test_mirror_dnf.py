"""Packages for dnf in the mirror: dnf itself finds what is needed, and installs from there alone.

The repository is one of stand-ins, over HTTP on the loopback; dnf, rpm, createrepo_c, gpg and gpgv
are this machine's own.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import subprocess
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from bedplate.bill import Bill, Places, place
from bedplate.bill.needs import Repository
from bedplate.bill.repository import parts_of_index
from bedplate.bill.web import Web
from bedplate.lock import load_lock
from bedplate.mirror import MirrorError, check
from bedplate.mirror.carry import Carrying
from bedplate.mirror.packages import filling, held, keys, rpm, running
from bedplate.mirror.packages.dnf_root import DnfRoot, end_agents
from bedplate.mirror.packages.wanted import Source, System, Wanted
from bedplate.mirror.store import Store
from bedplate.portable import mirror_sources as mirror
from bedplate.portable import openpgp
from tests.substrate.internet.authority import Authority
from tests.substrate.served import served, silent
from tests.substrate.standin import StandIn
from tests.substrate.standin import rpm as building
from tests.substrate.standin.signing import PUBLIC, Key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bedplate.mirror.packages.pool import Package

ROOT = Path(__file__).parents[2]
NAME = "rocky-9"
OLD, NEW, NEXT = "1:580.1-1", "1:580.2-1", "1:590.1-1"
STREAM = {"nvidia-driver": "580-open"}
WANTED = Wanted("pool", {"driver": NEW}, STREAM)
FILES = ["base-1.0-1.x86_64.rpm", "driver-580.2-1.x86_64.rpm", "library-580.2-1.x86_64.rpm"]
PACKAGES = [
    *(StandIn("driver", version, {"library": version}) for version in (OLD, NEW, NEXT)),
    StandIn("library", OLD),
    StandIn("library", NEW, {"base": ">= 1"}),
    StandIn("library", NEXT),
    StandIn("base", "1.0-1"),
    StandIn("unrelated", "1.0-1"),
]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="rpm installs as root")


class Vendor(NamedTuple):
    """A vendor's repository that is served, and what lies where."""

    web: Path
    url: str
    key: Key
    other: Key

    def system(self, *, signed_index: bool = True, fingerprint: str = "") -> System:
        """Return a system that takes its packages from there."""
        named = fingerprint or self.key.fingerprint
        index = f"{self.url}/vendor/"
        one = Repository(index, index + PUBLIC, named, "rpm", signed_index=signed_index)
        return System(NAME, "rpm", (Source(one),), (WANTED,))


@pytest.fixture(scope="module")
def vendor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vendor]:
    """A vendor's repository: signed index, signed packages, streams of a module."""
    work = tmp_path_factory.mktemp("vendor")
    key, other = Key(work / "gnupg"), Key(work / "other")
    building.repository(PACKAGES, work / "web/vendor", key, here=True)
    top = work / "web/vendor" / rpm.TOP
    top.with_name("repomd.xml.asc").write_bytes(key.detached(top.read_bytes()))
    with served(work / "web") as url:
        yield Vendor(work / "web", url, key, other)
    for one in (key, other):
        one.close()


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[keys.SigningKey]:
    """A site's key."""
    made = keys.SigningKey.made(tmp_path_factory.mktemp("keys") / "home", "site")
    yield made
    made.close()


def prepared(root: Path, vendor: Vendor, system: System) -> DnfRoot:
    """Return a root of dnf's that has read a system's repository."""
    made = DnfRoot(root)
    root.mkdir(exist_ok=True)
    both = {one.fingerprint: openpgp.binary(one.public) for one in (vendor.key, vendor.other)}
    made.prepare(system, both)
    return made


def fetched(root: DnfRoot, system: System, wanted: Wanted = WANTED) -> list[Package]:
    """Have a root hold what is wanted, and return it."""
    packages = root.closure(system, wanted)
    root.fetch(system, wanted, packages)
    return packages


class Published(NamedTuple):
    """A repository in the mirror, and what it was made of."""

    folder: Path
    root: DnfRoot
    packages: list[Package]


@pytest.fixture(scope="module")
def whole(
    vendor: Vendor, key: keys.SigningKey, tmp_path_factory: pytest.TempPathFactory
) -> Published:
    """A repository in the mirror that holds the system's packages."""
    system = vendor.system()
    root = prepared(tmp_path_factory.mktemp("whole") / "root", vendor, system)
    folder, packages = vendor.web / "whole", fetched(root, system)
    assert rpm.publish(folder, root.archives, packages, key, root.modules())
    return Published(folder, root, packages)


def install(folder: Path, url: str, public: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Have dnf install into a folder, by the files that hosts have and no other repository."""
    folder.mkdir(exist_ok=True)
    for file in mirror.rpm_files(mirror.Mirror(url, public)):
        path = folder / file.path.removeprefix("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.content.replace("file:///", f"file://{folder}/"))
    (folder / "dnf.conf").write_text("[main]\nmodule_platform_id=platform:el9\nplugins=0\n")
    options = [f"--config={folder}/dnf.conf", f"--installroot={folder}", "--assumeyes"]
    options += [f"--setopt=reposdir={folder}{mirror.DNF_REPOSITORIES}", "--releasever=9"]
    try:
        return subprocess.run(
            ["dnf", *options, *words],
            env={**os.environ, "TMPDIR": str(folder)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
    finally:
        end_agents(folder)


def installed(folder: Path) -> list[str]:
    """Return which of the stand-ins are installed in a folder, by the notice that each brings."""
    return sorted(path.parent.name for path in folder.glob("usr/share/doc/*/STAND-IN"))


def test_the_closure_is_what_dnf_would_install(vendor: Vendor, tmp_path: Path) -> None:
    system = vendor.system()
    root = prepared(tmp_path / "root", vendor, system)
    packages = root.closure(system, WANTED)
    assert [one.name for one in packages] == FILES  # not the newest: the driver's own
    root.fetch(system, WANTED, packages)
    assert sorted(path.name for path in root.archives.iterdir()) == FILES
    # What is damaged or missing comes again, and nothing else does.
    first, second, third = (root.archives / name for name in FILES)
    whole, before = first.read_bytes(), third.stat().st_mtime_ns
    first.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    second.unlink()
    root.fetch(system, WANTED, packages)
    assert first.read_bytes() == whole
    assert second.is_file()
    assert third.stat().st_mtime_ns == before
    # dnf leaves agents of GnuPG behind, which end once they have heard of it.
    until = time.monotonic() + 120
    while (left := agents(root.root)) and time.monotonic() < until:
        time.sleep(0.05)
    assert left == []


def agents(root: Path) -> list[str]:
    """Return the agents of GnuPG that run for folders below another, by their command lines."""
    done = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    return [line for line in lines if line.startswith("gpg-agent ") and f" {root}/" in line]


def moved(vendor: Vendor, url: str) -> System:
    """Return a system that reads the vendor's repository at another address."""
    system = vendor.system()
    one = replace(system.sources[0].repository, index=f"{url}/vendor/")
    return replace(system, sources=(Source(one),))


def test_a_repository_behind_an_authority_of_the_sites_own(vendor: Vendor, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls")
    trusted = {vendor.key.fingerprint: openpgp.binary(vendor.key.public)}
    for name in ("system", "own"):
        (tmp_path / name).mkdir()
    with served(vendor.web, authority.context(["127.0.0.1"])) as url:
        system = moved(vendor, url)
        with pytest.raises(MirrorError, match="repositories of packages cannot be read"):
            DnfRoot(tmp_path / "system").prepare(system, trusted)
        root = DnfRoot(tmp_path / "own", authority.certificate)
        root.prepare(system, trusted)
        assert sorted(one.name for one in fetched(root, system)) == FILES


def test_a_repository_that_does_not_answer_is_named(
    vendor: Vendor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "LOOK_SECONDS", 1)
    with silent() as url, pytest.raises(MirrorError) as refused:
        prepared(tmp_path / "root", vendor, moved(vendor, url))
    assert str(refused.value).startswith(
        "packages cannot be fetched — rocky-9 — got dnf without an end after 1 s / allowed "
    )


def test_a_stream_that_hosts_do_not_enable_is_not_taken(vendor: Vendor, tmp_path: Path) -> None:
    system = vendor.system()
    root = prepared(tmp_path / "root", vendor, system)
    with pytest.raises(MirrorError) as refused:
        root.closure(system, Wanted("pool_a", {"driver": NEXT, "nowhere": ""}, STREAM))
    text = str(refused.value)
    assert "packages cannot be had — rocky-9, pool_a" in text
    assert "driver-1:590.1-1" in text
    assert "nowhere" in text
    after = Wanted("pool_b", {"driver": NEXT}, {"nvidia-driver": "590-open"})
    names = {one.name for one in root.closure(system, after)}
    assert names == {"driver-590.1-1.x86_64.rpm", "library-590.1-1.x86_64.rpm"}
    with pytest.raises(MirrorError, match="600-open"):
        root.closure(system, Wanted("pool_c", {"driver": NEXT}, {"nvidia-driver": "600-open"}))


def test_a_host_installs_from_the_mirror_alone(
    vendor: Vendor, whole: Published, key: keys.SigningKey, tmp_path: Path
) -> None:
    url, host = f"{vendor.url}/{whole.folder.name}/", tmp_path / "host"
    done = install(host, url, key.public(), "module", "enable", "nvidia-driver:580-open")
    assert done.returncode == 0, done.stderr
    done = install(host, url, key.public(), "install", "driver")
    assert done.returncode == 0, done.stderr
    assert installed(host) == ["base", "driver", "library"]


@pytest.mark.parametrize("broken", ["package", "list", "index", "key"])
def test_what_the_sites_key_did_not_sign_is_refused_by_dnf(
    vendor: Vendor, whole: Published, key: keys.SigningKey, tmp_path: Path, broken: str
) -> None:
    folder, public = vendor.web / f"broken-{broken}", key.public()
    shutil.copytree(whole.folder, folder)
    if broken == "key":
        public = vendor.other.public.decode()
    else:
        pattern = {"package": "pool/base-*", "list": "repodata/*primary*", "index": rpm.TOP}
        (path,) = folder.glob(pattern[broken])
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
    host = tmp_path / "host"
    done = install(host, f"{vendor.url}/{folder.name}/", public, "install", "base")
    expected = {
        "package": "checksum",
        "list": "checksum",
        "index": "GPG signature verification",
        "key": "GPG signature verification",
    }
    assert done.returncode != 0
    assert expected[broken].lower() in (done.stdout + done.stderr).lower()
    assert installed(host) == []


@pytest.mark.parametrize("signed_index", [True, False])
def test_what_the_vendors_key_did_not_sign_is_not_taken(
    vendor: Vendor, tmp_path: Path, signed_index: bool
) -> None:
    other = vendor.other.fingerprint
    system = vendor.system(signed_index=signed_index, fingerprint=other)
    if signed_index:
        with pytest.raises(MirrorError, match="repositories of packages cannot be read"):
            prepared(tmp_path / "root", vendor, system)
        return
    root = prepared(tmp_path / "root", vendor, system)
    with pytest.raises(MirrorError, match="packages did not come"):
        fetched(root, system)


def test_the_same_packages_change_nothing_and_others_replace_them(
    vendor: Vendor, whole: Published, key: keys.SigningKey
) -> None:
    folder, (_, root, packages) = vendor.web / "twice", whole
    publish = partial(rpm.publish, folder, root.archives, key=key, modules=root.modules())
    shutil.copytree(whole.folder, folder)
    before = contents(folder)
    assert not publish(packages=packages)
    assert contents(folder) == before
    generations = [named(folder)]
    for chosen in (packages[:2], packages[:1], packages):
        assert publish(packages=chosen)
        generations.append(named(folder))
        names = sorted(path.name for path in (folder / "pool").iterdir())
        assert names == FILES[: len(chosen)]
        # A host that has read the index before still gets the lists that it names; no older one.
        signed = {Path(rpm.TOP).name, Path(rpm.SIGNATURE).name}
        assert contents(folder).keys() - signed == generations[-1] | generations[-2]


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files of an index."""
    return {path.name: path.read_bytes() for path in (folder / rpm.INDEX).iterdir()}


def named(folder: Path) -> set[str]:
    """Return the lists that an index names."""
    return {Path(name).name for name in parts_of_index((folder / rpm.TOP).read_bytes())}


def test_a_site_is_filled_checked_carried_and_repaired(
    vendor: Vendor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BEDPLATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("BEDPLATE_KEYS", str(tmp_path / "keys"))
    monkeypatch.setattr(filling, "systems", lambda *_: [vendor.system()])
    site, store = tmp_path / "site", Store(tmp_path / "mirror")
    site.mkdir()
    lock, web = load_lock(ROOT / "inventories/demo"), Web()
    fill = partial(filling.fill, site, lock, store, web)
    (one,) = fill()
    assert (one.system, one.packages, one.changed) == (NAME, 3, True)
    known = place.load(site)
    assert known is not None
    parts = held.parts(site, store)
    assert set(parts) == set(store.contents().files)
    assert {Path(name).name for name in parts} >= {*FILES, "repomd.xml", "repomd.xml.asc"}
    assert check.damaged(parts.values()) == []
    places = Places(None, {})
    Carrying(Bill(), store, places).pack(tmp_path / "packed.tar")
    carried = Store(tmp_path / "carried")
    carried.root.mkdir()
    Carrying(Bill(), carried, places).unpack(tmp_path / "packed.tar")
    assert check.damaged(held.parts(site, carried).values()) == []
    (library,) = store.place(f"{known.address}/{NAME}/pool").glob("library-*")
    library.unlink()
    assert [one.wrong for one in check.damaged(held.parts(site, store).values())] == ["missing"]
    top = store.place(f"{known.address}/{NAME}/{rpm.TOP}")
    top.write_bytes(top.read_bytes().replace(b"primary", b"primarx", 1))
    (damage,) = check.damaged(held.parts(site, store).values())
    assert damage.name == f"{NAME} {rpm.TOP}"
    for left in (top.parents[1] / ".index-cut/list", top.parent / ".new-cut"):  # by a killed run
        left.parent.mkdir(exist_ok=True)
        left.write_text("")
    (repaired,) = fill()
    assert repaired.changed
    parts = held.parts(site, store)
    assert check.damaged(parts.values()) == []
    assert set(parts) == set(store.contents().files)
    web.close()


@pytest.mark.prove
def test_a_fill_that_is_killed_anywhere_is_ended_by_the_next(
    vendor: Vendor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BEDPLATE_KEYS", str(tmp_path / "keys"))
    monkeypatch.setattr(filling, "systems", lambda *_: [vendor.system()])
    lock, site = load_lock(ROOT / "inventories/demo"), tmp_path / "site"
    site.mkdir()

    def fill(store: Store) -> None:
        web = Web()
        list(filling.fill(site, lock, store, web))
        web.close()

    def alone(store: Store) -> None:
        os.setsid()
        fill(store)

    monkeypatch.setenv("BEDPLATE_CACHE", str(tmp_path / "cache"))
    began = time.monotonic()
    fill(Store(tmp_path / "first"))
    whole_s = time.monotonic() - began
    cut = 0
    for point in range(1, 11):
        monkeypatch.setenv("BEDPLATE_CACHE", str(tmp_path / f"cache-{point}"))
        store = Store(tmp_path / f"mirror-{point}")
        running = multiprocessing.get_context("fork").Process(target=alone, args=(store,))
        running.start()
        running.join(whole_s * point / 11)
        if running.is_alive():
            cut += 1
            os.killpg(running.pid or 0, signal.SIGKILL)
        running.join()
        fill(store)
        assert check.damaged(held.parts(site, store).values()) == []
        assert set(held.parts(site, store)) == set(store.contents().files)
    assert cut >= 5
