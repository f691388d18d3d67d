"""A manifest of the bill as the cluster stack applies it: each image with its digest."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest
import yaml

from bedplate.bill import load_bill, write_bill
from bedplate.components.cluster import artifact
from bedplate.components.config import StackError
from bedplate.lock import load_lock
from tests.unit.bill.made import make, mirrored_demo

if TYPE_CHECKING:
    from pathlib import Path

    from tests.substrate.internet.fixtures import Served

NAME = "ghcr.io/flannel-io/flannel:v0.28.4"
MANIFEST = f"spec:\n  containers:\n  - image: {NAME}\n    name: one\n  - image: '{NAME}'"


def put(site: Path, internet: Served, text: str) -> None:
    """Put a manifest on the stand-in and into the bill, which has its image, too."""
    made = make(site)
    file = made.files["flannel-manifest"]
    sha256 = internet.tree.put(file.url, text.encode())
    image = next(iter(made.images.values()))
    files = {**made.files, "flannel-manifest": file.model_copy(update={"sha256": sha256})}
    images = {**made.images, NAME: image.model_copy(update={"needed_by": "flannel-manifest"})}
    write_bill(site, made.model_copy(update={"files": files, "images": images}))


@pytest.fixture
def site(tmp_path: Path, internet: Served) -> Path:
    """The demo's site with the stand-in as its mirror."""
    return mirrored_demo(tmp_path / "site", internet.url)


def test_each_image_has_its_digest_however_it_is_written(site: Path, internet: Served) -> None:
    put(site, internet, MANIFEST)
    text = artifact.manifest(site, load_lock(site), "flannel-manifest")
    bill = load_bill(site)
    assert bill is not None
    pinned = f"{NAME}@{bill.images[NAME].digest}"
    containers = yaml.safe_load(text)["spec"]["containers"]
    assert [one["image"] for one in containers] == [pinned, pinned]


def test_an_image_that_cannot_be_pinned_is_refused(site: Path, internet: Served) -> None:
    put(site, internet, "spec: {}\n")
    with pytest.raises(StackError, match="image of a manifest has no digest"):
        artifact.manifest(site, load_lock(site), "flannel-manifest")


def test_another_manifest_than_the_bills_is_refused(site: Path, internet: Served) -> None:
    put(site, internet, MANIFEST)
    changed = MANIFEST.replace("name: one", "name: two")
    sha256 = hashlib.sha256(changed.encode()).hexdigest()
    bill = load_bill(site)
    assert bill is not None
    internet.tree.put(bill.files["flannel-manifest"].url, changed.encode())
    with pytest.raises(StackError, match=f"another digest than the bill.*got sha256 {sha256}"):
        artifact.manifest(site, load_lock(site), "flannel-manifest")
