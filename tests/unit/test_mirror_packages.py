"""Packages in the mirror: apt itself finds what is needed, and installs from the mirror alone.

The archive is one of stand-ins, over HTTP on the loopback; apt, apt-ftparchive, gpg and gpgv are
the real ones. That the catalogue names what the roles install is in `test_mirror_wanted.py`.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from bedplate.bill import Bill, Places, place
from bedplate.bill.errors import ResolveError
from bedplate.bill.needs import Repository
from bedplate.bill.signatures import signed
from bedplate.catalogue import catalogue_of, load_catalogue
from bedplate.common.errors import LockError
from bedplate.lock import load_lock
from bedplate.mirror import MirrorError, check, listing
from bedplate.mirror.packages import deb, filling, held, keys, running
from bedplate.mirror.packages import listed as listed_packages
from bedplate.mirror.packages.apt_root import AptRoot
from bedplate.mirror.packages.wanted import Source, System, Wanted, systems
from bedplate.mirror.store import Store
from bedplate.portable import openpgp
from tests.substrate.internet.authority import Authority
from tests.substrate.served import served, silent
from tests.substrate.standin import StandIn
from tests.substrate.standin import deb as building
from tests.substrate.standin.signing import PUBLIC, Key

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
DRIVER = {"driver": "1:2.0-1"}
PACKAGES = [
    StandIn("driver", "1:1.0-1", {"library": "1:1.0-1"}),
    StandIn("driver", "1:2.0-1", {"library": "1:2.0-1"}),
    StandIn("library", "1:1.0-1"),
    StandIn("library", "1:2.0-1", {"base": ">= 1"}),
    StandIn("library", "1:3.0-1"),
    StandIn("base", "1.0"),
    StandIn("unrelated", "1.0"),
]


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A folder that is served, and its address."""
    folder = tmp_path_factory.mktemp("web")
    with served(folder) as url:
        yield folder, url


@pytest.fixture(scope="module")
def archive(
    web: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[System, bytes]]:
    """A vendor's archive of stand-ins, and its key."""
    folder, url = web
    key = Key(tmp_path_factory.mktemp("archive") / "gnupg")
    building.repository(PACKAGES, folder / "archive", key)
    for path in (folder / "archive").glob("*%3a*"):  # as vendors name them
        path.rename(path.with_name(path.name.replace("1%3a", "")))
    index = folder / "archive/Packages"
    index.write_text(index.read_text().replace("1%3a", ""))
    _sign_again(folder / "archive", key)
    one = Repository(f"{url}/archive/", f"{url}/archive/{PUBLIC}", key.fingerprint)
    yield (
        System("debian-12", "deb", (Source(one),), (Wanted("pool", DRIVER),)),
        openpgp.binary(key.public),
    )
    key.close()


def _sign_again(folder: Path, key: Key) -> None:
    import hashlib

    content = (folder / "Packages").read_bytes()
    release = (
        "Origin: archive\nArchitectures: amd64\nDate: Thu, 26 Nov 2026 00:00:00 GMT\n"
        f"SHA256:\n {hashlib.sha256(content).hexdigest()} {len(content)} Packages\n"
    )
    (folder / "InRelease").write_bytes(key.clear_signed(release.encode()))


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[keys.SigningKey]:
    """A site's key."""
    made = keys.SigningKey.made(tmp_path_factory.mktemp("keys") / "home", "site")
    yield made
    made.close()


@pytest.fixture
def root(archive: tuple[System, bytes], tmp_path: Path) -> AptRoot:
    """A root of apt's that has read the archive."""
    system, public = archive
    made = AptRoot(tmp_path / "root")
    made.prepare(system, {system.sources[0].repository.fingerprint: public})
    return made


class Mirror(NamedTuple):
    """A mirror that is filled from the archive, and what it signs with."""

    web: tuple[Path, str]
    root: AptRoot
    system: System
    key: keys.SigningKey
    folder: Path

    def published(self, name: str) -> tuple[Path, System]:
        """Have it hold the system's packages; the folder, and a system that reads it alone."""
        debs = self.root.closure(self.system, self.system.wanted[0])
        self.root.fetch(self.system, self.system.wanted[0], debs)
        folder = self.web[0] / name
        assert deb.publish(folder, self.root.archives, debs, self.key)
        only = Source(Repository(f"{self.web[1]}/{name}/", "", self.key.fingerprint))
        return folder, System("debian-12", "deb", (only,), self.system.wanted)

    def on_host(self, system: System) -> list[str]:
        """Have apt fetch what is wanted from the mirror alone, as a host does; what came."""
        host = AptRoot(self.folder / "host")
        host.prepare(system, {self.key.fingerprint: openpgp.binary(self.key.public().encode())})
        debs = host.closure(system, system.wanted[0])
        host.fetch(system, system.wanted[0], debs)
        return sorted(path.name for path in host.archives.glob("*.deb"))


@pytest.fixture
def mirror(
    web: tuple[Path, str],
    root: AptRoot,
    archive: tuple[System, bytes],
    key: keys.SigningKey,
    tmp_path: Path,
) -> Mirror:
    """An empty mirror."""
    return Mirror(web, root, archive[0], key, tmp_path)


def test_the_closure_is_what_apt_would_install(
    root: AptRoot, archive: tuple[System, bytes]
) -> None:
    system, _ = archive
    names = {one.name.split("_")[0]: one.name for one in root.closure(system, system.wanted[0])}
    assert sorted(names) == ["base", "driver", "library"]
    assert names["library"] == "library_1%3a2.0-1_amd64.deb"  # not the newest: the driver's own


def test_a_host_installs_from_the_mirror_alone(mirror: Mirror) -> None:
    folder, only = mirror.published("whole")
    for name in deb.INDEXES:  # a later fill may have replaced what the host's InRelease names
        (folder / name).unlink()
    assert mirror.on_host(only) == [
        "base_1.0_amd64.deb",
        "driver_1%3a2.0-1_amd64.deb",
        "library_1%3a2.0-1_amd64.deb",
    ]
    content = (folder / "InRelease").read_bytes()
    key = mirror.key
    release = signed(content, key.public().encode(), key.fingerprint, "here").decode()
    assert "Acquire-By-Hash: yes" in release
    assert " Packages.xz" in release
    # By-hash, apt asks for the strongest digest that is listed.
    assert "SHA512" not in release
    assert "MD5Sum" not in release


def test_the_same_packages_change_nothing_and_others_replace_them(mirror: Mirror) -> None:
    root, system, key = mirror.root, mirror.system, mirror.key
    folder, _ = mirror.published("twice")
    before = (folder / "InRelease").read_bytes()
    debs = root.closure(system, system.wanted[0])
    assert not deb.publish(folder, root.archives, debs, key)
    assert (folder / "InRelease").read_bytes() == before
    old = Wanted("pool", {"driver": "1:1.0-1"})
    debs = root.closure(system, old)
    root.fetch(system, old, debs)
    assert deb.publish(folder, root.archives, debs, key)
    assert sorted(path.name for path in (folder / "pool").iterdir()) == [
        "driver_1.0-1_amd64.deb",
        "library_1.0-1_amd64.deb",
    ]
    # A host that has read the index before still gets the list that it names.
    listed = [word for word in before.decode().split() if len(word) == 64]
    assert any((folder / deb.BY_HASH / one).is_file() for one in listed)


@pytest.mark.parametrize("broken", ["package", "index", "signature"])
def test_a_changed_byte_is_refused_by_apt(mirror: Mirror, broken: str) -> None:
    folder, only = mirror.published(f"changed-{broken}")
    if broken == "package":
        path = folder / "pool/library_2.0-1_amd64.deb"
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.unlink()  # the bytes are those of apt's own folder too
        path.write_bytes(content)
    elif broken == "index":
        for path in [*folder.glob("Packages*"), *(folder / deb.BY_HASH).iterdir()]:
            path.write_bytes(path.read_bytes().replace(b"driver", b"drivel") + b"\n")
    else:
        path = folder / "InRelease"
        path.write_bytes(path.read_bytes().replace(b"bedplate-mirror", b"bedplate-mirroR", 1))
    with pytest.raises(MirrorError) as refused:
        mirror.on_host(only)
    expected = {
        "package": "packages did not come",
        "index": "archives of packages cannot be read",
        "signature": "archives of packages cannot be read",
    }
    assert expected[broken] in str(refused.value)


def test_another_key_is_refused(
    web: tuple[Path, str], root: AptRoot, archive: tuple[System, bytes], key: keys.SigningKey
) -> None:
    system, public = archive
    source = system.sources[0].repository
    other = Source(Repository(source.index, source.key, key.fingerprint))
    with pytest.raises(MirrorError, match="archives of packages cannot be read"):
        root.prepare(System("debian-12", "deb", (other,), system.wanted), {key.fingerprint: public})


def test_what_is_on_disk_is_compared_and_fetched_again(
    root: AptRoot, archive: tuple[System, bytes]
) -> None:
    system, _ = archive
    debs = root.closure(system, system.wanted[0])
    root.fetch(system, system.wanted[0], debs)
    path = root.archives / "base_1.0_amd64.deb"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    root.fetch(system, system.wanted[0], debs)
    assert path.read_bytes() == whole


def test_a_version_that_is_gone_is_named(root: AptRoot, archive: tuple[System, bytes]) -> None:
    with pytest.raises(MirrorError) as refused:
        root.closure(archive[0], Wanted("pool_a", {"driver": "1:9.0-1", "nowhere": ""}))
    text = str(refused.value)
    assert "packages cannot be had" in text
    assert "debian-12, pool_a" in text
    assert "Unable to locate package nowhere" in text
    assert "'1:9.0-1' for 'driver' was not found" in text


def moved(system: System, url: str) -> System:
    """Return a system that reads the same archive at another address."""
    one = replace(system.sources[0].repository, index=url)
    return replace(system, sources=(Source(one),))


def test_an_archive_that_does_not_answer_is_named(
    archive: tuple[System, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "LOOK_SECONDS", 1)
    system, public = archive
    with silent() as url, pytest.raises(MirrorError) as refused:
        AptRoot(tmp_path / "debian-12").prepare(
            moved(system, f"{url}/"), {system.sources[0].repository.fingerprint: public}
        )
    assert str(refused.value).startswith(
        "packages cannot be fetched — debian-12 — got apt-get without an end after 1 s / allowed "
    )


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A site, with caches and keys of its own."""
    monkeypatch.setenv("BEDPLATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("BEDPLATE_KEYS", str(tmp_path / "keys"))
    made = tmp_path / "site"
    made.mkdir()
    return made


def fill(
    site: Path,
    store: Store,
    system: System,
    monkeypatch: pytest.MonkeyPatch,
    ca: Path | None = None,
) -> list[Any]:
    """Fill a mirror for a site whose lock asks for one system."""
    from bedplate.bill.web import Web

    monkeypatch.setattr(filling, "systems", lambda *_: [system])
    client = Web()
    try:
        return list(filling.fill(site, load_lock(ROOT / "inventories/demo"), store, client, ca=ca))
    finally:
        client.close()


def test_an_archive_behind_an_authority_of_the_sites_own(
    site: Path,
    web: tuple[Path, str],
    archive: tuple[System, bytes],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    authority, store = Authority(tmp_path / "tls"), Store(tmp_path / "mirror")
    with served(web[0], authority.context(["127.0.0.1"])) as url:
        there = moved(archive[0], f"{url}/archive/")
        with pytest.raises(MirrorError, match="archives of packages cannot be read"):
            fill(site, store, there, monkeypatch)
        assert not (tmp_path / "keys").exists()
        (one,) = fill(site, store, there, monkeypatch, authority.certificate)
    assert (one.packages, one.changed) == (3, True)


def test_sites_of_one_name_have_a_key_each(
    site: Path, archive: tuple[System, bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As `bedplate init` makes them: every inventory has the same name."""
    other = tmp_path / "other" / site.name
    other.mkdir(parents=True)
    for one in (site, other):
        fill(one, Store(tmp_path / "mirror"), archive[0], monkeypatch)
    known = [place.load(one) for one in (site, other)]
    assert len({one.fingerprint for one in known if one}) == 2


def test_the_first_fill_makes_a_key_that_the_next_one_uses(
    site: Path, archive: tuple[System, bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = Store(tmp_path / "mirror")
    (one,) = fill(site, store, archive[0], monkeypatch)
    assert (one.system, one.packages, one.changed) == ("debian-12", 3, True)
    known = place.load(site)
    assert known is not None
    assert known.systems == ["debian-12"]
    assert "PRIVATE" not in place.path_of(site).read_text()
    secret = list((tmp_path / "keys/private-keys-v1.d").iterdir())
    assert [path.stat().st_mode & 0o777 for path in secret] == [0o600]
    assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o700
    listed = store.contents().files
    assert f"{known.address}/debian-12/pool/driver_2.0-1_amd64.deb" in listed
    there = (path for path in store.files.rglob("*") if path.is_file())
    assert {str(path.relative_to(store.files)) for path in there} <= listed.keys()
    monkeypatch.setattr(listed_packages, "systems", lambda *_: [archive[0]])
    lock = load_lock(ROOT / "inventories/demo")
    mirrored = lock.sources.model_copy(update={"packages": "mirror"})
    mirroring = lock.model_copy(update={"sources": mirrored})
    also = partial(listed_packages.packages, site, mirroring, catalogue_of(site))
    rows = list(listing.rows(Bill(), {}, also(store)))
    assert [row[3:] for row in rows] == [
        (f"debian-12 {name}_amd64.deb", "")
        for name in ("base_1.0", "driver_2.0-1", "library_2.0-1")
    ]
    place.path_of(site).rename(tmp_path / "kept")
    rows = list(listing.rows(Bill(), {}, also(store)))
    missing = "not in the mirror: bedplate mirror packages SITE"
    assert [row[1:] for row in rows] == [
        ("-", "-", f"debian-12 {name} {version}", missing)
        for name, version in sorted(DRIVER.items())
    ]
    (tmp_path / "kept").rename(place.path_of(site))
    content = listing.content(Bill(), Places(None, {}), also(store))
    assert {one["system"] for one in content["packages"]} == {"debian-12"}
    assert {one["name"] for one in content["packages"]} >= {"driver_2.0-1_amd64.deb"}
    address = urlsplit(archive[0].sources[0].repository.index)
    assert content["hosts"] == [f"127.0.0.1:{address.port}"]
    (again,) = fill(site, store, archive[0], monkeypatch)
    assert not again.changed
    assert place.load(site) == known
    parts = held.parts(site, store)
    assert set(parts) == set(listed) - {name for name in listed if "/debian-12/" not in name}
    assert check.damaged(parts.values()) == []
    library = store.place(f"{known.address}/debian-12/pool/library_2.0-1_amd64.deb")
    library.unlink()
    assert [one.wrong for one in check.damaged(held.parts(site, store).values())] == ["missing"]
    signed_index = store.place(f"{known.address}/debian-12/InRelease")
    signed_index.write_bytes(signed_index.read_bytes().replace(b"amd64", b"arm64", 1))
    (one,) = check.damaged(held.parts(site, store).values())
    assert one.name == "debian-12 InRelease"
    (mended,) = fill(site, store, archive[0], monkeypatch)
    assert mended.changed
    assert check.damaged(held.parts(site, store).values()) == []
    for path in secret:
        path.unlink()
    with pytest.raises(MirrorError, match="key that signs the site's packages is not on this mach"):
        fill(site, store, archive[0], monkeypatch)
    # A fill that is refused leaves no agent of GnuPG's either, once it has heard of it.
    until = time.monotonic() + 120
    while (left := agents(tmp_path / "keys")) and time.monotonic() < until:
        time.sleep(0.05)
    assert left == []


def agents(home: Path) -> list[str]:
    """Return the agents of GnuPG that run for a home, by their command lines."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().decode(errors="replace").split("\0")
            if words[0].endswith("gpg-agent") and str(home) in words:
                found.append(" ".join(words))
    return found


def test_a_key_under_anothers_name_is_refused(
    site: Path, key: keys.SigningKey, tmp_path: Path
) -> None:
    place.write(site, place.Place(fingerprint="A" * 40, key=key.public()))
    with pytest.raises(LockError, match=f"the key {key.fingerprint} under the name AAAA"):
        place.load(site)


def test_an_archives_key_is_trusted_by_its_fingerprint(
    archive: tuple[System, bytes], key: keys.SigningKey
) -> None:
    from bedplate.bill.web import Web

    repository = archive[0].sources[0].repository
    client = Web()
    try:
        assert keys.trusted(client, repository, []) == archive[1]
        other = Repository(repository.index, repository.key, key.fingerprint)
        with pytest.raises(ResolveError, match="repository has another key"):
            keys.trusted(client, other, [])
    finally:
        client.close()


def test_what_the_demo_installs() -> None:
    lock = load_lock(ROOT / "inventories/demo")
    found = {one.name: one for one in systems(lock, load_catalogue())}
    assert sorted(found) == ["debian-12", "debian-13"]
    wanted = {one.name: one.packages for one in found["debian-12"].wanted}
    driver = lock.pools["pool_class"].nvidia_driver
    assert driver is not None
    assert driver.packages.items() <= wanted["pool_class"].items()
    assert {"dkms", "linux-headers-amd64", "runc", "openmpi-bin"} <= set(wanted["pool_class"])
    assert sorted(wanted["control_plane"]) == sorted(
        ["runc", "iptables", "conntrack", "ebtables", "ethtool", "socat"]
    )
    assert {"main", "non-free"} <= set(found["debian-12"].sources[0].repository.components)


def test_systems_without_archives_are_refused(site: Path) -> None:
    with pytest.raises(MirrorError, match="packages of rhel-9 cannot be mirrored"):
        filling.refuse_others(site, [System("rhel-9", "rpm", (), ())])


def test_the_command_refuses_a_site_with_sources_of_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from bedplate.cli import main as cli

    assert cli.main(["mirror", "packages", str(ROOT / "inventories/demo")]) == 3
    assert "site takes its packages from its hosts' own sources" in capsys.readouterr().err
