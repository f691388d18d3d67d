"""Packages of signed repositories: apt's with suites, dnf's, and what the bill says of them."""

from __future__ import annotations

import gzip
import hashlib
import lzma
from typing import TYPE_CHECKING

import pytest

from bedplate.bill import Bill, Packages, Places
from bedplate.bill.errors import ResolveError
from bedplate.bill.needs import NeededPackages, Needs, Repository
from bedplate.bill.partial import Partial
from bedplate.bill.repository import offers
from bedplate.bill.resolve import Resolver
from bedplate.bill.web import Web

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.substrate.internet.fixtures import Served
    from tests.substrate.standin.signing import Key

INDEX = "https://archive.example.com/debian/"
KEY = "https://archive.example.com/key.asc"
PRIMARY = """<?xml version="1.0" encoding="UTF-8"?>
<metadata xmlns="http://linux.duke.edu/metadata/common" packages="1">
<package type="rpm"><name>nvidia-driver-cuda</name><arch>x86_64</arch>
<version epoch="3" ver="580.95.05" rel="1.el9"/><checksum type="sha256" pkgid="YES">ab</checksum>
<size package="7"/><location href="nvidia-driver-cuda-580.95.05-1.el9.x86_64.rpm"/></package>
</metadata>
"""
REPOMD = """<?xml version="1.0" encoding="UTF-8"?>
<repomd xmlns="http://linux.duke.edu/metadata/repo">
<data type="primary"><checksum type="sha256">{sha256}</checksum>
<location href="repodata/primary.xml.gz"/></data>
</repomd>
"""


@pytest.fixture
def web() -> Iterator[Web]:
    """A client."""
    client = Web()
    yield client
    client.close()


def put_suite(internet: Served, key: Key, size: str = "Size: 3") -> None:
    """Put a Debian-like archive with one component."""
    paragraphs = [
        f"Package: nvidia-smi\nVersion: {version}\nFilename: pool/n_{version}.deb\n{size}\n"
        f"SHA256: {'0' * 64}\nDescription: a tool\n which has lines: two\n"
        for version in ("535.1-1", "535.2-1")
    ]
    packed = lzma.compress("\n".join(paragraphs).encode())
    sha256 = hashlib.sha256(packed).hexdigest()
    line = f" {sha256} {len(packed)} non-free/binary-amd64/Packages.xz"
    top = f"{INDEX}dists/bookworm/"
    internet.tree.put(KEY, key.public)
    internet.tree.put(
        f"{top}InRelease", key.clear_signed(f"Suite: stable\nSHA256:\n{line}\n".encode())
    )
    internet.tree.put(f"{top}non-free/binary-amd64/Packages.xz", packed)


def put_rpms(internet: Served, key: Key) -> None:
    """Put a repository as dnf reads it."""
    packed = gzip.compress(PRIMARY.encode())
    repomd = REPOMD.format(sha256=hashlib.sha256(packed).hexdigest()).encode()
    internet.tree.put(KEY, key.public)
    internet.tree.put(f"{INDEX}repodata/repomd.xml", repomd)
    internet.tree.put(f"{INDEX}repodata/repomd.xml.asc", key.detached(repomd))
    internet.tree.put(f"{INDEX}repodata/primary.xml.gz", packed)


def test_a_suite_of_apt(internet: Served, key: Key, web: Web) -> None:
    put_suite(internet, key)
    repository = Repository(INDEX, KEY, key.fingerprint, "deb", ("bookworm",), ("non-free",))
    found = offers(web, Places(internet.url, {}), repository, {"nvidia-smi", "other"})
    assert [offer.version for offer in found["nvidia-smi"]] == ["535.1-1", "535.2-1"]
    assert found["nvidia-smi"][0].url == f"{INDEX}pool/n_535.1-1.deb"


@pytest.mark.parametrize(
    ("size", "got"),
    [
        ("Size: many", "nvidia-smi without a number as its Size"),
        ("X: 1", "nvidia-smi without Size"),
    ],
)
def test_a_list_of_apt_that_lacks_a_field_is_refused(
    size: str, got: str, internet: Served, key: Key, web: Web
) -> None:
    put_suite(internet, key, size)
    repository = Repository(INDEX, KEY, key.fingerprint, "deb", ("bookworm",), ("non-free",))
    with pytest.raises(ResolveError, match=f"list of packages is broken .* got {got}"):
        offers(web, Places(internet.url, {}), repository, {"nvidia-smi"})


def test_a_repository_of_dnf(internet: Served, key: Key, web: Web) -> None:
    put_rpms(internet, key)
    repository = Repository(INDEX, KEY, key.fingerprint, "rpm")
    found = offers(web, Places(internet.url, {}), repository, {"nvidia-driver-cuda"})
    (offer,) = found["nvidia-driver-cuda"]
    assert (offer.version, offer.size) == ("3:580.95.05-1.el9", 7)


def test_a_repository_of_dnf_with_another_index_is_refused(
    internet: Served, key: Key, web: Web
) -> None:
    put_rpms(internet, key)
    internet.tree.put(f"{INDEX}repodata/repomd.xml", REPOMD.format(sha256="0" * 64).encode())
    repository = Repository(INDEX, KEY, key.fingerprint, "rpm")
    with pytest.raises(ResolveError, match="BAD signature"):
        offers(web, Places(internet.url, {}), repository, {"x"})


def test_the_bill_names_what_is_gone_and_what_there_is_instead(
    internet: Served, key: Key, web: Web, tmp_path: Path
) -> None:
    put_suite(internet, key)
    found = looked_up(internet, key, web, tmp_path)
    assert found.offered == {}
    assert found.gone["nvidia-smi"].offered == ["535.2-1", "535.1-1"]
    assert found.gone["libcuda1"].offered == []


def test_an_index_that_hosts_do_not_need_may_stay_unread(
    internet: Served, key: Key, web: Web, tmp_path: Path
) -> None:
    found = looked_up(internet, key, web, tmp_path)
    assert (found.unread, found.offered, found.gone) == ([INDEX], {}, {})


def looked_up(internet: Served, key: Key, web: Web, folder: Path) -> Packages:
    """Return what the bill has of two packages of the suite."""
    repository = Repository(INDEX, KEY, key.fingerprint, "deb", ("bookworm",), ("non-free",))
    packages = {"nvidia-smi": "534.9-1", "libcuda1": "535.1-1"}
    needs = Needs(
        packages={"debian-12 distro": NeededPackages((repository,), packages, needed=False)}
    )
    partial = Partial(folder, {})
    resolver = Resolver(web, Places(internet.url, {}), {}, Bill(), partial, folder / "bill")
    return resolver.bill(needs).packages["debian-12 distro"]
