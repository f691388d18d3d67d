"""`bedplate mirror add`: an image that the site builds, from disk into mirror and bill."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.bill import Bill, Places
from bedplate.bill.needs import NeededImage, Needs, needs_of
from bedplate.bill.partial import Partial
from bedplate.bill.resolve import Resolver
from bedplate.bill.web import Web
from bedplate.catalogue import load_catalogue
from bedplate.cli.main import main
from bedplate.lock import load_lock
from bedplate.mirror import made
from bedplate.mirror.fill import Filling
from bedplate.mirror.store import Store, cache
from tests.substrate.images import oci

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def needed(site: Path) -> tuple[str, NeededImage]:
    """One of the images that the site builds."""
    images = needs_of(load_lock(site), load_catalogue()).images
    return next(item for item in sorted(images.items()) if item[1].built)


def layout(
    folder: Path, architecture: str = "amd64", raw: bytes | None = None, **changes: Any
) -> str:
    """Write an image as a build leaves it, and return how skopeo names it.

    *raw* is another configuration; *changes* are those of the manifest, without what is None.
    """
    blobs = folder / "blobs/sha256"
    blobs.mkdir(parents=True)

    def add(content: bytes, kind: str) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        (blobs / digest).write_bytes(content)
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}

    layer = oci.pack(folder / "layer", [("hello", b"notebook", 0o644)])
    config = {
        "architecture": architecture,
        "os": "linux",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": [layer.diff_id]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": oci.MANIFEST,
        "config": add(json.dumps(config).encode() if raw is None else raw, oci.CONFIG),
        "layers": [add(layer.path.read_bytes(), oci.LAYER)],
    }
    manifest = {key: one for key, one in (manifest | changes).items() if one is not None}
    described = add(json.dumps(manifest).encode(), oci.MANIFEST)
    named = {"annotations": {"org.opencontainers.image.ref.name": "built"}}
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    (folder / "index.json").write_text(
        json.dumps({"schemaVersion": 2, "manifests": [described | named]})
    )
    return f"oci:{folder}:built"


def test_a_built_image_goes_into_mirror_and_bill(
    site: Path, needed: tuple[str, NeededImage], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, one = needed
    source = layout(tmp_path / "built")
    assert main(["mirror", "add", str(site), name, source]) == 0
    said = capsys.readouterr().out
    assert f"next: bedplate mirror resolve {site} --upstream" in said
    web = Web()
    asked = [web, Places(None, {}), {}, Bill(), Partial(tmp_path, {}), tmp_path / "b", made.found]
    bill = Resolver(*asked).bill(Needs(images={name: one}))
    entry = bill.images[name]
    assert f"{name}: {entry.digest}\n" in said
    store = Store(cache() / "mirror")
    assert Filling(store, web, Places(None, {}), {name}).fill(bill) == 0
    web.close()
    assert store.contents().images[name].digest == entry.digest
    assert not list(store.root.glob(".w-*"))


def test_other_names_and_platforms_are_refused(
    site: Path, needed: tuple[str, NeededImage], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = layout(tmp_path / "other", "arm64")
    assert main(["mirror", "add", str(site), "registry.k8s.io/pause:1", source]) == 3
    said = capsys.readouterr().err
    assert "site builds no such image itself" in said
    assert needed[0] in said
    assert main(["mirror", "add", str(site), needed[0], source]) == 3
    assert "is for another platform" in capsys.readouterr().err
    assert main(["mirror", "add", str(site), needed[0], f"oci:{tmp_path}/nowhere:x"]) == 3
    said = capsys.readouterr().err
    assert f"image {needed[0]} cannot be read from oci:{tmp_path}/nowhere:x" in said


@pytest.mark.parametrize(
    ("raw", "changes"),
    [
        (b"[]", {}),
        (b"\xff", {}),
        (b"[" * 100_000 + b"]" * 100_000, {}),
        (None, {"layers": None}),
        (None, {"layers": 7}),
        (None, {"config": None}),
    ],
    ids=["a-list", "no-text", "deep", "no-layers", "a-number-of-layers", "no-configuration"],
)
def test_what_is_no_image_is_refused_in_one_line(
    raw: bytes | None,
    changes: dict[str, Any],
    site: Path,
    needed: tuple[str, NeededImage],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """skopeo copies most of them: it looks into no configuration."""
    source = layout(tmp_path / "built", raw=raw, **changes)
    assert main(["mirror", "add", str(site), needed[0], source]) == 3
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(
        (
            f"image {needed[0]} is of another structure — {source} — got ",
            f"image {needed[0]} cannot be read from {source} — ",
        )
    )
    assert list((cache() / "mirror").glob(".w-*")) == []
