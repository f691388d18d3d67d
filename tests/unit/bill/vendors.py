"""What a site's lock needs, put into a stand-in for the internet with contents made of names."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from bedplate.bill import needs_of
from bedplate.bill.charts import OCI, index_of, reference
from bedplate.catalogue import catalogue_of, load_catalogue
from bedplate.cli.main import main
from bedplate.lock import load_lock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bedplate.catalogue import Catalogue
    from bedplate.catalogue.driver_facts import DistributionArchive
    from bedplate.lock import Lock
    from tests.substrate.internet.fixtures import Served
    from tests.substrate.internet.tree import Tree
    from tests.substrate.standin.signing import Key

#: Hosts whose repositories the tests' key signs.
HOSTS = ("nvidia.github.io", "ftp.debian.org", "security.debian.org")
DEMO = Path(__file__).parents[3] / "inventories" / "demo"
FLANNEL = "ghcr.io/flannel-io/flannel:v0.28.4"
#: The objects of flannel's own manifest that a stack looks into, and no more of them.
MANIFEST_OF_FLANNEL = f"""\
apiVersion: v1
kind: Namespace
metadata: {{name: kube-flannel}}
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: kube-flannel-cfg, namespace: kube-flannel}}
data: {{net-conf.json: '{{"Network": "10.244.0.0/16", "Backend": {{"Type": "vxlan"}}}}'}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {{name: kube-flannel-ds, namespace: kube-flannel}}
spec:
  selector: {{matchLabels: {{app: flannel}}}}
  template:
    metadata: {{labels: {{app: flannel}}}}
    spec:
      containers:
      - name: kube-flannel
        image: {FLANNEL}
"""


def put_repository(tree: Tree, index: str, key: Key, packages: list[dict[str, str]]) -> None:
    """Put a signed apt repository without suites."""
    text = "\n\n".join(
        "\n".join(f"{name}: {value}" for name, value in one.items()) for one in packages
    )
    body = (text + "\n").encode()
    release = (
        "Origin: test\nMD5Sum:\n 0 0 Packages\nSHA256:\n "
        f"{hashlib.sha256(body).hexdigest()} {len(body)} Packages\n"
    )
    tree.put(f"{index}InRelease", key.clear_signed(release.encode()))
    tree.put(f"{index}Packages", body)


def put_chart(tree: Tree, address: str, version: str, content: bytes) -> str:
    """Put a chart where its fact says that it is published; return its SHA-256."""
    if address.startswith(OCI):
        return tree.chart(reference(address, version), content)
    name = address.rpartition("/")[2]
    file = f"{name}-{version}.tgz"
    sha256 = tree.put(f"{address.rpartition('/')[0]}/{file}", content)
    entry = {"name": name, "version": version, "urls": [file], "digest": sha256}
    index = {"apiVersion": "v1", "entries": {name: [entry]}}
    tree.put(index_of(address), json.dumps(index).encode())
    return sha256


def put_layer(tree: Tree, image: str, adds: str, content: bytes) -> str:
    """Put an image with a layer for one file; return the layer's SHA-256."""
    steps = ("COPY rootfs /", "ENV A=b", f"COPY /made {adds} # buildkit", "COPY /x /usr/bin/x")
    tree.image(image, (b"base", content, b"last"), steps)
    sha256 = hashlib.sha256(content).hexdigest()
    host, _, path = image.rpartition(":")[0].partition("/")
    return tree.put(f"https://{host}/v2/{path}/blobs/sha256:{sha256}", content)


def put_archive(
    tree: Tree, archive: DistributionArchive, key: Key, packages: list[tuple[str, str]]
) -> None:
    """Put a distribution's archive with some packages, in the last component of each suite."""
    tree.put(archive.key, key.public)
    text = "\n".join(
        f"Package: {name}\nVersion: {version}\nFilename: pool/{name}_{version}.deb\nSize: 3\n"
        f"SHA256: {'0' * 64}\n"
        for name, version in packages
    )
    for suite in archive.suites:
        lines = []
        for component in archive.components:
            body = text.encode() if component == archive.components[-1] else b""
            name = f"{component}/binary-amd64/Packages"
            tree.put(f"{archive.url}dists/{suite}/{name}", body)
            lines.append(f" {hashlib.sha256(body).hexdigest()} {len(body)} {name}")
        release = "\n".join([f"Suite: {suite}", "SHA256:", *lines, ""])
        tree.put(f"{archive.url}dists/{suite}/InRelease", key.clear_signed(release.encode()))


def put(tree: Tree, lock: Lock, key: Key, catalogue: Catalogue | None = None) -> None:
    """Put everything that a lock needs."""
    needs = needs_of(lock, catalogue or load_catalogue())
    packages: list[dict[str, str]] = []
    for name, needed in needs.files.items():
        fact = needed.artifact
        content = f"{name} {needed.version}\n".encode()
        if fact.names_images:
            content = MANIFEST_OF_FLANNEL.encode()
            tree.image(FLANNEL)
        if (package := fact.package) is not None:
            tree.put(package.key, key.public)
            version = needed.filled(package.version)
            file = f"{package.name}_{version}_amd64.deb"
            tree.put(f"{package.index}{file}", content)
            packages.append(
                {
                    "Package": package.name,
                    "Version": version,
                    "Filename": f"./{file}",
                    "Size": str(len(content)),
                    "SHA256": hashlib.sha256(content).hexdigest(),
                }
            )
            put_repository(tree, package.index, key, packages)
            continue
        if fact.layer is not None:
            put_layer(tree, needed.filled(fact.layer.image), fact.layer.adds, content)
            continue
        if fact.chart is not None:
            put_chart(tree, fact.chart, needed.version, content)
            continue
        url = needed.filled(fact.url or "")
        sha256 = tree.put(url, content)
        if fact.checksum_file is not None:
            line = f"{sha256}  {url.rpartition('/')[2]}\n".encode()
            tree.put(needed.filled(fact.checksum_file), line)
        else:
            asset = {"name": url.rpartition("/")[2], "digest": f"sha256:{sha256}"}
            release = {"assets": [{**asset, "size": len(content)}]}
            tree.put(needed.filled(fact.release or ""), json.dumps(release).encode())
    for name in needs.images:
        tree.image(name)


def planned(
    copy: Path,
    internet: Served,
    key: Key,
    sources: dict[str, Any],
    facts: Mapping[str, list[dict[str, Any]]] | None = None,
) -> Path:
    """Copy the demo's site with other sources, and facts, and plan it.

    What it needs is on the stand-in.
    """
    shutil.copytree(DEMO, copy, ignore=shutil.ignore_patterns(".bedplate*"))
    for path in (copy / "group_vars").rglob("*.yml"):
        content = yaml.safe_load(path.read_text()) or {}
        if "bedplate_sources" in content:
            keys = dict.fromkeys(HOSTS, key.fingerprint)
            content["bedplate_sources"] = {**sources, "keys": keys}
        # The notebooks of courses are the site's own to build: no maker's registry has them.
        for name in ("bedplate_courses", "bedplate_hub", "bedplate_storage"):
            content.pop(name, None)
        path.write_text(yaml.safe_dump(content))
    for name, entries in (facts or {}).items():
        (copy / "facts").mkdir(exist_ok=True)
        (copy / "facts" / name).write_text(yaml.safe_dump(entries))
    assert main(["plan", str(copy)]) == 0
    put(internet.tree, load_lock(copy), key, catalogue_of(copy))
    return copy
