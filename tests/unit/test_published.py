"""The small files that vendors publish beside their artefacts, made for local builds."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import pytest

from bedplate.bill.errors import ResolveError
from bedplate.bill.needs import Repository
from bedplate.bill.places import Places
from bedplate.bill.repository import offers
from bedplate.bill.signatures import signed
from bedplate.bill.web import Web
from bedplate.catalogue import load_catalogue
from bedplate.mirror import FileEntry
from bedplate.portable.fetch import named_digest
from tests.substrate.images import published as small
from tests.substrate.images import signing
from tests.substrate.images.published import Made

if TYPE_CHECKING:
    from tests.substrate.internet.fixtures import Served

SHA256 = "ab" * 32
ENTRY = FileEntry(sha256=SHA256, size=7, recipe=f"sha256:{SHA256}")
CONTROL = "Package: {}\nVersion: 1.2-1\nArchitecture: amd64\nDescription: a tool\n"


def made(name: str, form: str = "", control: str = "") -> Made:
    return Made(load_catalogue().artifacts[name].value, "1.2", ENTRY, form, control)


@pytest.mark.parametrize(
    ("name", "form", "text"),
    [
        ("kubernetes-node", "bare", SHA256),
        ("cri-tools", "line", f"{SHA256}\n"),
        ("cni-plugins", "named", f"{SHA256}  cni-plugins-linux-amd64-v1.2.tgz\n"),
    ],
)
def test_checksum_files_have_their_vendors_form(name: str, form: str, text: str) -> None:
    one = made(name, form)
    ((address, content),) = small.published([one]).items()
    url = f"https://{small.address(one.artifact, one.version)}"
    assert content == text.encode()
    assert f"https://{address}" == (one.artifact.checksum_file or "").replace("{version}", "1.2")
    assert named_digest(content, url, address) == SHA256


def test_a_release_lists_its_files_with_digest_and_size() -> None:
    ((address, content),) = small.published([made("flannel-manifest")]).items()
    assert address == "api.github.com/repos/flannel-io/flannel/releases/tags/v1.2"
    (asset,) = json.loads(content)["assets"]
    assert asset == {
        "name": "kube-flannel.yml",
        "digest": f"sha256:{SHA256}",
        "size": 7,
        "browser_download_url": "https://github.com/flannel-io/flannel/releases/download/v1.2/kube-flannel.yml",
    }


def test_packages_have_an_index_that_is_signed(internet: Served) -> None:
    names = ("nvidia-container-toolkit", "nvidia-container-toolkit-base")
    packages = [made(name, control=CONTROL.format(name)) for name in names]
    for address, content in small.published(packages).items():
        internet.tree.put(f"https://{address}", content)
    fact = packages[0].artifact.package
    assert fact is not None
    places = Places(None, {})
    repository = Repository(fact.index, fact.key, signing.fingerprint())
    with internet.names():
        web = Web()  # it trusts what the machine trusts when it is made
        found = offers(web, places, repository, names)
    assert {name: [offer.url for offer in offered] for name, offered in found.items()} == {
        name: [f"{fact.index}{name}_1.2-1_amd64.deb"] for name in names
    }
    assert {offer.sha256 for offered in found.values() for offer in offered} == {SHA256}
    vendors = Repository(fact.index, fact.key, fact.fingerprint)
    with internet.names(), pytest.raises(ResolveError, match="repository has another key"):
        offers(web, places, vendors, names)
    web.close()


def test_one_changed_byte_ends_the_signature() -> None:
    text = signing.clear_signed("Origin: demo\n- a dash\nSHA256:\n 00 1 Packages  \n")
    key, fingerprint = signing.public_key(), signing.fingerprint()
    plain = b"Origin: demo\n- a dash\nSHA256:\n 00 1 Packages\n"
    assert signed(text, key, fingerprint, "here") == plain
    with pytest.raises(ResolveError, match="index is not signed by its key"):
        signed(text.replace(b" 00 1", b" 01 1"), key, fingerprint, "here")


def test_the_key_is_the_same_everywhere() -> None:
    assert (
        hashlib.sha256(signing.public_key()).hexdigest()
        == hashlib.sha256(signing.public_key()).hexdigest()
    )
    assert signing.fingerprint() == "0C199857AA1CEDB96ABC70042BDAC25355F84A38"
