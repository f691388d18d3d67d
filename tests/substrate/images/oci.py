"""Images and charts as the OCI specification has them, and pushing them to a registry over HTTP.

Layers are tar files in which nothing depends on when or where they were made.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import io
import json
import shutil
import tarfile
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

from bedplate.mirror.errors import MirrorError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
CHART_CONFIG = "application/vnd.cncf.helm.config.v1+json"
CHART = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
EPOCH = "1970-01-01T00:00:00Z"
# Fast rather than small: everything stays on this machine.
COMPRESSION = 1


@dataclass(frozen=True)
class Layer:
    """A compressed layer on disk: its digest and size, and the digest of the plain tar."""

    path: Path
    digest: str
    diff_id: str
    size: int


class _Hashing(io.RawIOBase):
    """Pass bytes on and hash them on the way."""

    def __init__(self, target: gzip.GzipFile) -> None:
        self.target = target
        self.sha256 = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        block = bytes(memoryview(data))  # type: ignore[arg-type] # any buffer
        self.sha256.update(block)
        return self.target.write(block)


def pack(target: Path, members: Iterable[tuple[str, Path | bytes | str | None, int]]) -> Layer:
    """Write a deterministic tar.gz.

    Args:
        target: where to.
        members: (name, content, mode): a file's path or its bytes, where a link leads, or None for
            a directory.
    """
    with target.open("wb") as file, _compressor(file) as compressed:
        plain = _Hashing(compressed)
        with tarfile.open(fileobj=plain, mode="w|", format=tarfile.PAX_FORMAT) as archive:
            for name, content, mode in members:
                entry = tarfile.TarInfo(name)
                entry.mode = mode
                if content is None:
                    entry.type = tarfile.DIRTYPE
                    archive.addfile(entry)
                elif isinstance(content, str):
                    entry.type, entry.linkname = tarfile.SYMTYPE, content
                    archive.addfile(entry)
                elif isinstance(content, bytes):
                    entry.size = len(content)
                    archive.addfile(entry, io.BytesIO(content))
                else:
                    entry.size = content.stat().st_size
                    with content.open("rb") as source:
                        archive.addfile(entry, source)
    return _layer(target, plain)


def compress(tar: Path, target: Path) -> Layer:
    """Make a layer of a plain tar file."""
    with tar.open("rb") as source, target.open("wb") as file, _compressor(file) as compressed:
        plain = _Hashing(compressed)
        while block := source.read(1 << 20):
            plain.write(block)
    return _layer(target, plain)


def _compressor(file: IO[bytes]) -> gzip.GzipFile:
    return gzip.GzipFile("", "wb", COMPRESSION, file, mtime=0)


def _layer(path: Path, plain: _Hashing) -> Layer:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Layer(
        path, f"sha256:{digest}", f"sha256:{plain.sha256.hexdigest()}", path.stat().st_size
    )


@dataclass(frozen=True)
class Registry:
    """A registry on this machine that takes pushes without a login.

    Attributes:
        port: on the loopback.
        data: its directory, in the layout of CNCF Distribution's filesystem driver.
        read: digests of blobs that were read whole, and are what they are called. Images share
            layers: each is read once.
    """

    port: int
    data: Path
    read: set[str] = field(default_factory=set, compare=False)

    def has(self, kind: str, repository: str, digest: str) -> bool:
        """Say whether a repository holds a ``manifests`` or ``blobs`` entry of this digest."""
        status, _, _ = self._ask("HEAD", f"/v2/{repository}/{kind}/{digest}")
        return status == 200

    def is_intact(self, name: str, digest: str) -> bool:
        """Say whether an image or chart is there whole: by tag, with each blob's very bytes."""
        repository, tag = split(name)
        manifest = self._manifest(repository, tag, digest)
        if manifest and "manifests" in manifest:
            chosen = manifest["manifests"][0]["digest"]
            manifest = self._manifest(repository, chosen, chosen)
        return manifest is not None and all(
            self._blob_digest(repository, blob["digest"]) == blob["digest"]
            for blob in [manifest["config"], *manifest["layers"]]
        )

    def _manifest(self, repository: str, reference: str, digest: str) -> dict[str, Any] | None:
        """Return a manifest whose bytes have this digest; None if there is no such."""
        status, headers, body = self._ask("GET", f"/v2/{repository}/manifests/{reference}")
        if status != 200 or headers.get("Docker-Content-Digest") != digest:
            return None
        if f"sha256:{hashlib.sha256(body).hexdigest()}" != digest:
            return None
        found: dict[str, Any] = json.loads(body)
        return found

    def push(
        self, name: str, layers: list[Layer], config: Mapping[str, object], last: str = "bedplate"
    ) -> tuple[str, int]:
        """Push an image under its official name; return its index's digest, its size in bytes.

        As vendors do, the tag names an index of platforms; here it has one.
        *config* is the image configuration's ``config`` object: entrypoint, environment, labels.
        *last* is what the image's history says of its last layer.
        """
        repository, tag = split(name)
        for layer in layers:
            with layer.path.open("rb") as file:
                self._push_blob(repository, layer.digest, layer.size, file)
        steps = [*(["bedplate"] * len(layers[1:])), last]
        body = _json(
            {
                "created": EPOCH,
                "architecture": "amd64",
                "os": "linux",
                "config": config,
                "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
                "history": [{"created": EPOCH, "created_by": step} for step in steps],
            }
        )
        digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
        self._push_blob(repository, digest, len(body), io.BytesIO(body))
        manifest = _json(
            {
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "config": {"mediaType": CONFIG, "digest": digest, "size": len(body)},
                "layers": [
                    {"mediaType": LAYER, "digest": layer.digest, "size": layer.size}
                    for layer in layers
                ],
            }
        )
        entry = {
            "mediaType": MANIFEST,
            "digest": self._push_manifest(repository, manifest, MANIFEST),
            "size": len(manifest),
            "platform": {"architecture": "amd64", "os": "linux"},
        }
        index = _json({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]})
        top = self._push_manifest(repository, index, INDEX, tag)
        return top, sum(layer.size for layer in layers)

    def push_chart(self, name: str, chart: bytes, metadata: Mapping[str, object]) -> str:
        """Push a chart's archive under its official name, as Helm does; return its digest.

        *metadata* is what its Chart.yaml says.
        """
        repository, tag = split(name)
        blobs = []
        for kind, content in ((CHART_CONFIG, _json(metadata)), (CHART, chart)):
            digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
            self._push_blob(repository, digest, len(content), io.BytesIO(content))
            blobs.append({"mediaType": kind, "digest": digest, "size": len(content)})
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": blobs[0],
            "layers": blobs[1:],
        }
        return self._push_manifest(repository, _json(manifest), MANIFEST, tag)

    def _push_manifest(self, repository: str, content: bytes, kind: str, tag: str = "") -> str:
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        self._drop_damaged(digest)
        path = f"/v2/{repository}/manifests/{tag or digest}"
        status, _, said = self._ask("PUT", path, content, {"Content-Type": kind})
        self._expect(201, status, path, said)
        return digest

    def _push_blob(self, repository: str, digest: str, size: int, file: IO[bytes]) -> None:
        if self._blob_digest(repository, digest) == digest:
            return
        self._drop_damaged(digest)
        status, headers, said = self._ask("POST", f"/v2/{repository}/blobs/uploads/")
        self._expect(202, status, f"/v2/{repository}/blobs/uploads/", said)
        location = headers["Location"]
        path = f"{location}{'&' if '?' in location else '?'}digest={digest}"
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        status, _, said = self._ask("PUT", path, file, headers)
        self._expect(201, status, path, said)

    def _drop_damaged(self, digest: str) -> None:
        """Remove a blob with other bytes than its digest's: the registry keeps what it has."""
        algorithm, _, value = digest.partition(":")
        folder = self.data / "docker/registry/v2/blobs" / algorithm / value[:2] / value
        try:
            with (folder / "data").open("rb") as file:
                if hashlib.file_digest(file, algorithm).hexdigest() == value:
                    return
        except FileNotFoundError:
            return
        shutil.rmtree(folder)

    def _blob_digest(self, repository: str, digest: str) -> str:
        if digest in self.read:
            return digest if self.has("blobs", repository, digest) else ""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request("GET", f"/v2/{repository}/blobs/{digest}")
            response = connection.getresponse()
            if response.status != 200:
                return ""
            found = hashlib.sha256()
            while block := response.read(1 << 20):
                found.update(block)
            self.read.update({digest} & {f"sha256:{found.hexdigest()}"})
        except http.client.IncompleteRead:
            return ""  # shorter on disk than the registry says
        finally:
            connection.close()
        return f"sha256:{found.hexdigest()}"

    def _ask(
        self,
        method: str,
        path: str,
        body: bytes | IO[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            accept = {"Accept": f"{INDEX}, {MANIFEST}"}
            connection.request(method, path, body, accept | dict(headers or {}))
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    def _expect(self, wanted: int, status: int, path: str, said: bytes) -> None:
        if status != wanted:
            raise MirrorError(
                "the registry refused a push",
                path,
                f"status {status}: {said.decode(errors='replace')[:300]}",
                f"status {wanted}",
                "check the free space of the mirror's directory",
            )


def split(name: str) -> tuple[str, str]:
    """Return an official name's repository, host first, and its tag."""
    repository, colon, tag = name.rpartition(":")
    if not colon or "/" in tag or "." not in repository.split("/")[0]:
        raise MirrorError(
            "not an official image name",
            "recipe",
            name,
            "HOST/PATH:TAG",
            "write the registry's host and a tag",
        )
    return repository, tag


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
