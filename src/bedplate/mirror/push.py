"""From this machine's mirror to servers of the site's own: images by skopeo, files by HTTP PUT.

An image is pushed from disk: first the manifest of the hosts' platform, then what its tag names.
That may be an index of other platforms too, which the mirror does not keep. Where a registry takes
an index only with all that it names, the whole is copied from its maker's registry.
"""

from __future__ import annotations

import base64
import hashlib
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bedplate.bill.errors import ResolveError
from bedplate.bill.places import split
from bedplate.mirror import skopeo
from bedplate.mirror.errors import MirrorError
from bedplate.mirror.wanted import manifests

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bedplate.bill import Image, Places
    from bedplate.bill.web import Own, Web
    from bedplate.mirror.download import Part
    from bedplate.mirror.store import Store

RETRIES = 3
FIX = (
    "where its maker's registry is not reached from here, copy it on a machine that reaches both: "
    "bedplate mirror list SITE --format skopeo"
)
#: What a layout on disk calls its one image.
TAG = "pushed"
#: What a server answers that lies where no file may be put.
NO_PUT = (404, 405, 501)
DENIED = (401, 403)
STORED = (200, 201, 204)


@dataclass(frozen=True)
class Pushing:
    """What is needed to fill the site's own servers.

    Attributes:
        store: this machine's mirror.
        places: the site's own servers.
        registry: the registry, as `HOST/NAME`.
        own: its authorities and login.
        web: a client that has both.
        ca: authorities of the makers' registries; None for the system's.
    """

    store: Store
    places: Places
    registry: str
    own: Own
    web: Web
    ca: Path | None = None

    def image(self, name: str, entry: Image) -> str:
        """Bring an image to the registry; return `there`, `from disk` or `from its maker`.

        Raises:
            MirrorError: it does not come there.
        """
        if self._has(name, entry):
            return "there"
        with tempfile.TemporaryDirectory(prefix="bedplate-") as made:
            words = self._words(Path(made))
            came = self._from_disk(Path(made), words, name, entry)
            if not came:
                target = f"docker://{self.registry}/{name}"
                whole = [*words, "--multi-arch=all", _official(name, entry), target]
                skopeo.run(whole, f"image {name} cannot be pushed", FIX)
        if not self._has(name, entry):
            raise MirrorError(
                f"image {name} has another digest in the registry",
                f"{self.registry}/{name}",
                "another manifest than the bill's",
                entry.digest,
                "use a registry that keeps manifests as they are",
            )
        return "from disk" if came else "from its maker"

    def file(self, address: str, part: Part, *, whole: bool = False) -> bool:
        """Put a file on the server, unless one of its size is there; return whether it was put.

        With *whole* what is there is read and compared too: an index may change and keep its size.

        Raises:
            BedplateError: the server does not take it, or the mirror does not have it.
        """
        url = self.places.file(f"https://{address}")
        if part.wrong_size():
            raise MirrorError(
                f"{part.name} is not in this machine's mirror",
                str(part.target),
                part.wrong_size(),
                f"{part.size} bytes",
                "run: bedplate mirror fill SITE",
            )
        if self.web.length(url) == part.size:
            content = self.web.content(url, part.name) if whole else b""
            if not whole or hashlib.sha256(content).hexdigest() == part.sha256:
                return False
        status = self.web.put(url, part.target)
        if status not in STORED:
            fix = "see the server's log"
            if status in DENIED:
                fix = "correct bedplate_sources_login: its account must be allowed to write"
            elif status in NO_PUT:
                fix = f"copy what lies in {self.store.files} to the server's folder, with rsync"
            raise MirrorError(
                "server does not take a file", url, f"HTTP {status}", "a PUT that is accepted", fix
            )
        return True

    def _has(self, name: str, entry: Image) -> bool:
        repository, tag = self.places.repository(name), split(name)[1]
        try:
            _, _, found = self.web.manifest(f"{repository}/manifests/{tag}", name)
        except ResolveError as error:
            # A registry says so of what it lacks; whatever else it says is an error.
            if "HTTP 404" in str(error):
                return False
            raise
        return found == entry.digest

    def _from_disk(self, work: Path, words: list[str], name: str, entry: Image) -> bool:
        """Push what the mirror has of an image; say whether the registry has it then."""
        digests = manifests(name, entry)
        if any(self.store.images.manifest(one) is None for one in digests):
            return False
        repository, tag = split(name)
        for digest in reversed(digests):
            layout = self._layout(work / digest.replace(":", "-"), digest)
            if layout is None:
                return False
            target = f":{tag}" if digest == entry.digest else f"@{digest}"
            kind = "system" if digest == entry.manifest else "index-only"
            more = [f"--multi-arch={kind}", f"oci:{layout}:{TAG}"]
            try:
                target = f"docker://{self.registry}/{repository}{target}"
                skopeo.run([*words, *more, target], f"image {name} cannot be pushed", FIX)
            except MirrorError:
                if kind == "index-only":
                    return False
                raise
        return True

    def _layout(self, folder: Path, digest: str) -> Path | None:
        """Make a layout of the OCI's of links to the mirror; None if it lacks a blob."""
        images = self.store.images
        manifest = images.manifest(digest) or {}
        blobs = [manifest["config"], *manifest["layers"]] if "config" in manifest else []
        for one in (digest, *(str(blob["digest"]) for blob in blobs)):
            if not images.blob(one).is_file():
                return None
            link = folder / "blobs" / one.replace(":", "/", 1)
            link.parent.mkdir(parents=True, exist_ok=True)
            if not link.is_symlink():
                link.symlink_to(images.blob(one).absolute())
        (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
        described = {
            "mediaType": _media_type(manifest),
            "digest": digest,
            "size": images.blob(digest).stat().st_size,
            "annotations": {"org.opencontainers.image.ref.name": TAG},
        }
        index = {"schemaVersion": 2, "manifests": [described]}
        (folder / "index.json").write_text(json.dumps(index))
        return folder

    def _words(self, work: Path) -> list[str]:
        words = ["copy", "--quiet", "--preserve-digests", f"--retry-times={RETRIES}"]
        for which, ca in (("dest", self.own.ca), ("src", self.ca)):
            if ca is not None:
                folder = work / which
                folder.mkdir()
                (folder / "ca.crt").symlink_to(ca.absolute())
                words.append(f"--{which}-cert-dir={folder}")
        if self.own.login is not None:
            # A file, for this user alone: a command line is everyone's to read.
            key = base64.b64encode(":".join(self.own.login).encode()).decode()
            login = {"auths": {self.registry.partition("/")[0]: {"auth": key}}}
            (work / "auth.json").write_text(json.dumps(login))
            words.append(f"--dest-authfile={work / 'auth.json'}")
        return words


def _official(name: str, entry: Image) -> str:
    return f"docker://{split(name)[0]}@{entry.digest}"


def _media_type(manifest: Mapping[str, Any]) -> str:
    kind = "index" if "manifests" in manifest else "manifest"
    return str(manifest.get("mediaType") or f"application/vnd.oci.image.{kind}.v1+json")
