"""What the demo fills a real registry with, and what the resolver finds of it, both ways."""

from __future__ import annotations

import hashlib
import io
import tarfile
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import yaml

from bedplate.bill import Places
from bedplate.bill.charts import chart
from bedplate.bill.registry import layer
from bedplate.bill.web import Web
from bedplate.mirror.errors import MirrorError
from bedplate.mirror.store import Store
from tests.substrate.images import oci, recipes
from tests.substrate.images.filling import fill
from tests.substrate.internet.fixtures import serving

if TYPE_CHECKING:
    from pathlib import Path

    from tests.substrate.internet.fixtures import Served

EVERY_IMAGE = recipes.images


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, recipes.Tool]:
    """The built registry, charts in the place of the built ones, and nothing else to fill with."""
    known = recipes.known_tools()
    monkeypatch.setattr(recipes, "files", lambda _: [])
    monkeypatch.setattr(recipes, "images", lambda _: [])
    for wanted in recipes.charts(known):
        tool = replace(known[wanted.tool], folder=tmp_path / wanted.tool)
        name = wanted.address.rpartition("/")[2]
        (tool.folder / "share").mkdir(parents=True)
        described = yaml.safe_dump({"name": name, "version": tool.version}).encode()
        member = (f"{name}/Chart.yaml", described, 0o644)
        oci.pack(tool.folder / "share" / f"{name}-{tool.version}.tgz", [member])
        known[wanted.tool] = tool
    return known


def looked_up(internet: Served, tools: dict[str, recipes.Tool]) -> None:
    """Look every chart up both ways: the same entries, with the digests of the charts' bytes."""
    for wanted in recipes.charts(tools):
        web, version = Web(internet.authority), tools[wanted.tool].version
        there = chart(web, Places(internet.url, {}), wanted.address, version, "chart")
        with internet.names():
            assert chart(web, Places(None, {}), wanted.address, version, "chart") == there
            got = web.content(there.url, "chart")
        assert web.content(Places(internet.url, {}).file(there.url), "chart") == got
        web.close()
        (made,) = (tools[wanted.tool].folder / "share").glob("*.tgz")
        assert hashlib.sha256(got).hexdigest() == there.sha256
        assert (got, there.size) == (made.read_bytes(), made.stat().st_size)


def test_what_is_filled_is_what_the_resolver_finds(
    tmp_path: Path, tools: dict[str, recipes.Tool]
) -> None:
    assert {"kueue"} <= {one.tool for one in recipes.charts(tools)}
    store = Store(tmp_path / "internet" / "tree")
    done = fill(store, tools)
    with serving(tmp_path / "internet") as internet:
        looked_up(internet, tools)
    assert "registry.k8s.io/kueue/charts/kueue:0.19.2" in done.images


def test_the_demo_is_filled_without_what_only_tests_need(
    tmp_path: Path, tools: dict[str, recipes.Tool]
) -> None:
    lacking = tools | {"volcano": replace(tools["volcano"], folder=tmp_path / "none")}
    store = Store(tmp_path / "tree")
    with pytest.raises(MirrorError, match="no volcano"):
        fill(store, lacking)
    done = fill(store, lacking, demo=True)
    assert "registry.k8s.io/kueue/charts/kueue:0.19.2" in done.images
    assert not [name for name in (*done.images, *done.files) if "volcano" in name]


def test_a_program_comes_from_a_layer_of_its_own(
    tmp_path: Path, tools: dict[str, recipes.Tool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file that hosts unpack: its address is that of the layer in the official registry."""
    (lone,) = recipes.lone_files(tools).items()
    tool = replace(tools["nvidia-dra-driver"], folder=tmp_path / "driver")
    (tool.folder / "bin").mkdir(parents=True)
    (tool.folder / "bin" / "gpu-kubelet-plugin").write_bytes(b"program")
    recipe = next(one for one in EVERY_IMAGE(tools) if one.name == lone[0])
    monkeypatch.setattr(recipes, "images", lambda _: [recipe])
    store = Store(tmp_path / "internet" / "tree")
    changed = tools | {"nvidia-dra-driver": tool}
    before = fill(store, changed)
    (place,) = (name for name in before.files if "/dra-driver-nvidia-gpu/blobs/" in name)
    store.place(place).unlink()
    assert fill(store, changed) == before
    with serving(tmp_path / "internet") as internet, internet.names():
        web = Web(internet.authority)
        there = layer(web, Places(None, {}), *lone, tool.version, "program")
        content = web.content(there.url, "program")
        mirrored = layer(web, Places(internet.url, {}), *lone, tool.version, "program")
        web.close()
    assert mirrored == there
    assert there.url == f"https://{place}"
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        assert archive.getnames() == [lone[1].lstrip("/")]


def test_a_damaged_chart_is_found_and_mended(
    tmp_path: Path, tools: dict[str, recipes.Tool], capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(tmp_path / "internet" / "tree")
    before = fill(store, tools)
    (store.root / ".w-killed/root").mkdir(parents=True)
    assert fill(store, tools) == before
    assert not list(store.root.glob(".w-*"))
    assert " 0 made" in capsys.readouterr().out.splitlines()[-1]
    (layer,) = (name for name in before.files if "/charts/kueue/blobs/sha256:" in name)
    digest = layer.rpartition(":")[2]
    blob = store.registry / "docker/registry/v2/blobs/sha256" / digest[:2] / digest / "data"
    for place in (store.place(layer), blob):
        content = bytearray(place.read_bytes())
        content[20] ^= 1
        place.write_bytes(content)
    assert fill(store, tools) == before
    assert " 1 made" in capsys.readouterr().out.splitlines()[-1]
    assert hashlib.sha256(blob.read_bytes()).hexdigest() == digest
    assert hashlib.sha256(store.place(layer).read_bytes()).hexdigest() == digest
