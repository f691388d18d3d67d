"""What the stand-in holds: files by host and path, images as a registry keeps them on disk."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
CHART_CONFIG = "application/vnd.cncf.helm.config.v1+json"
CHART = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
DIGEST = re.compile(r"sha256:([0-9a-f]{64})")


@dataclass(frozen=True)
class Tree:
    """A folder as the mirror's store has it: ``files/HOST/PATH`` and the registry's own data.

    `put` and `image` write small trees for tests without hosts.
    """

    root: Path

    @property
    def _registry(self) -> Path:
        return self.root / "registry/docker/registry/v2"

    def hosts(self) -> set[str]:
        """Name the hosts that files and images come from."""
        return _names(self.root / "files") | self.registries()

    def registries(self) -> set[str]:
        """Name the hosts that images come from."""
        return _names(self._registry / "repositories")

    def file(self, host: str, path: str) -> Path | None:
        """Return the file at a host's path; None if there is none."""
        parts = path.strip("/").split("/")
        if not host or {".", "..", ""} & {host, *parts}:
            return None
        found = self.root.joinpath("files", host, *parts)
        return found if found.is_file() else None

    def manifest(self, repository: str, reference: str) -> Path | None:
        """Return a manifest by tag or digest; the repository's name begins with its host."""
        folder = self._registry / "repositories" / repository / "_manifests"
        if not DIGEST.fullmatch(reference):
            try:
                reference = (folder / "tags" / reference / "current/link").read_text().strip()
            except OSError:
                return None
        kept = folder / "revisions" / reference.replace(":", "/") / "link"
        return self.blob(reference) if kept.is_file() else None

    def blob(self, digest: str) -> Path | None:
        """Return a blob by its digest."""
        match = DIGEST.fullmatch(digest)
        if not match:
            return None
        path = self._registry / "blobs/sha256" / match[1][:2] / match[1] / "data"
        return path if path.is_file() else None

    def put(self, url: str, content: bytes) -> str:
        """Write the file of an https address; return its SHA-256 in hexadecimal."""
        path = self.root / "files" / url.removeprefix("https://")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return hashlib.sha256(content).hexdigest()

    def image(
        self,
        name: str,
        layers: tuple[bytes, ...] = (b"layer",),
        history: tuple[str, ...] = (),
        environment: tuple[str, ...] = (),
        config: Mapping[str, object] | None = None,
    ) -> str:
        """Write an image for amd64 below an index, as vendors publish; return the index's digest.

        The index names an image for another processor too, which is not there.
        """
        repository, _, tag = name.rpartition(":")
        said: dict[str, object] = {"architecture": "amd64", "os": "linux", "rootfs": {}}
        if history:
            steps = [{"created_by": step, "empty_layer": step[:3] == "ENV"} for step in history]
            said["history"] = steps
        if environment or config:
            said["config"] = {"Env": list(environment), **(config or {})}
        config = self._json(repository, said)
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"mediaType": CONFIG, **config},
            "layers": [{"mediaType": LAYER, **self._blob(layer)} for layer in layers],
        }
        other = {"digest": f"sha256:{'0' * 64}", "size": 2}
        kinds = {"amd64": self._json(repository, manifest), "arm64": other}
        entries = [
            {"mediaType": MANIFEST, **kind, "platform": {"architecture": name, "os": "linux"}}
            for name, kind in kinds.items()
        ]
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}
        return self._tag(repository, tag, index)

    def chart(self, name: str, content: bytes) -> str:
        """Write an OCI chart, and its layer as a mirror's file; return the layer's SHA-256."""
        repository, _, tag = name.rpartition(":")
        layer = {"mediaType": CHART, **self._blob(content)}
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"mediaType": CHART_CONFIG, **self._blob(b"{}")},
            "layers": [layer],
        }
        self._tag(repository, tag, manifest)
        host, _, path = repository.partition("/")
        return self.put(f"https://{host}/v2/{path}/blobs/{layer['digest']}", content)

    def _tag(self, repository: str, tag: str, value: object) -> str:
        digest = str(self._json(repository, value)["digest"])
        tags = self._registry / "repositories" / repository / "_manifests/tags" / tag / "current"
        tags.mkdir(parents=True, exist_ok=True)
        (tags / "link").write_text(digest)
        return digest

    def _json(self, repository: str, value: object) -> dict[str, object]:
        described = self._blob(json.dumps(value, separators=(",", ":")).encode())
        revision = str(described["digest"]).replace(":", "/")
        folder = self._registry / "repositories" / repository / "_manifests/revisions" / revision
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "link").write_text(str(described["digest"]))
        return described

    def _blob(self, content: bytes) -> dict[str, object]:
        value = hashlib.sha256(content).hexdigest()
        path = self._registry / "blobs/sha256" / value[:2] / value / "data"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return {"digest": f"sha256:{value}", "size": len(content)}


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()
