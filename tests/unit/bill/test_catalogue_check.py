"""`bedplate mirror resolve --check-catalogue`: every address of the catalogue, asked once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from bedplate.bill import web
from bedplate.bill.catalogue_check import addresses
from bedplate.catalogue import load_catalogue
from bedplate.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

    from tests.substrate.internet.fixtures import Served

KUBERNETES = "https://dl.k8s.io/v1.36.3/kubernetes-node-linux-amd64.tar.gz"
PAUSE = "registry.k8s.io/pause:3.10.2"


def test_every_version_of_every_artefact_and_image_is_asked() -> None:
    asked = {one.url: one.kind for one in addresses(load_catalogue())}
    assert asked[KUBERNETES] == asked[f"{KUBERNETES}.sha256"] == "file"
    assert asked[PAUSE] == "image"
    assert asked["registry.k8s.io/kueue/charts/kueue:0.19.2"] == "image"
    assert asked["registry.k8s.io/kueue/kueue:v0.19.2"] == "image"
    assert asked["https://volcano-sh.github.io/helm-charts/index.yaml"] == "file"
    assert asked["nvcr.io/nvidia/k8s-device-plugin:v0.19.1"] == "image"
    assert asked["https://nvidia.github.io/libnvidia-container/stable/deb/amd64/"] == "repository"
    releases = {fact.value.version for fact in load_catalogue().kubernetes.values()}
    assert {url.split("/")[3] for url in asked if "dl.k8s.io" in url} == {f"v{v}" for v in releases}
    assert not [url for url in asked if "{" in url]


def test_what_is_there_and_what_is_not_is_written_down(
    internet: Served,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(web, "BACKOFF", 0)
    internet.tree.put(KUBERNETES, b"archive")
    internet.tree.image(PAUSE)
    output = tmp_path / "upstream.json"
    words = ["--check-catalogue", "--ca", str(internet.authority), "--output", str(output)]
    with internet.names():
        assert main(["mirror", "resolve", *words]) == 2
    written = json.loads(output.read_text())
    results = {row["address"]: row["result"] for row in written["addresses"]}
    assert written["catalogue"] == load_catalogue().digest
    assert results[KUBERNETES] == results[PAUSE] == "ok"
    assert results[f"{KUBERNETES}.sha256"] == "file is not found: HTTP 404 Not Found"
    said = capsys.readouterr()
    asked = len(written["addresses"])
    assert f"{asked} addresses, {asked - 2} failed." in said.out
    assert f"artifact/kubernetes-node: {KUBERNETES}.sha256: file is not found" in said.err


def test_a_site_and_the_catalogue_are_not_asked_together(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["mirror", "resolve", "site", "--check-catalogue"])
    assert ended.value.code == 3
    assert "--check-catalogue takes no SITE" in capsys.readouterr().err
