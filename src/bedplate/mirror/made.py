"""Images that the site builds itself: from a file or another store into this machine's mirror."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bedplate.bill import Image, Known, needs_of
from bedplate.bill.places import split
from bedplate.catalogue import catalogue_of
from bedplate.common import reading
from bedplate.common.arguments import path_of
from bedplate.mirror import locked, service, skopeo
from bedplate.mirror.errors import MirrorError
from bedplate.mirror.store import Store, cache, digest_of

if TYPE_CHECKING:
    from argparse import Namespace, _SubParsersAction

LAYOUT = "made"
#: What skopeo takes from disk; others ask a daemon or a registry.
FORMS = "oci-archive:FILE, docker-archive:FILE, containers-storage:NAME or docker-daemon:NAME:TAG"
PLATFORM = {"os": "linux", "architecture": "amd64"}


def add_parser(verbs: _SubParsersAction[Any]) -> None:
    """Add the verb to those of `bedplate mirror`."""
    parser = verbs.add_parser(
        "add",
        help="take an image that the site builds itself into the mirror",
        description="Take an image that was built from the files of `bedplate frameworks` into "
        "this machine's mirror, under its name in the lock. Then run `bedplate mirror resolve`.",
    )
    parser.add_argument("site", type=path_of, metavar="SITE", help="an Ansible inventory directory")
    parser.add_argument("image", metavar="IMAGE", help="its name in the lock, with its tag")
    parser.add_argument("source", metavar="SOURCE", help=FORMS)
    parser.set_defaults(run=run)


def run(options: Namespace) -> int:
    """Add one image.

    Raises:
        BedplateError: the site builds no such image, or it cannot be read.
    """
    lock = locked.compared(options.site)
    needed = needs_of(lock, catalogue_of(options.site)).images
    built = sorted(name for name, one in needed.items() if one.built)
    if options.image not in built:
        raise MirrorError(
            "site builds no such image itself",
            str(options.site),
            options.image,
            ", ".join(built) or "none: no course or team has a framework",
            "write one of these names; images of makers come with: bedplate mirror fill",
        )
    skopeo.expect()
    store = Store(cache() / "mirror")
    with store.filling():
        digest = add(store, options.image, options.source)
        service.refresh_all(store)
    print(f"{options.image}: {digest}\nnext: bedplate mirror resolve {options.site} --upstream")
    return 0


def add(store: Store, name: str, source: str) -> str:
    """Take an image into the mirror and return its manifest's digest.

    Raises:
        MirrorError: skopeo cannot read it, or it is for another platform.
    """
    store.root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=store.root, prefix=".w-") as made:
        folder = Path(made)
        words = ["copy", "--quiet", "--multi-arch=system", source, f"oci:{folder}:{LAYOUT}"]
        skopeo.run(words, f"image {name} cannot be read from {source}", f"name it as {FORMS}")
        try:
            digest, blobs, platform = _parts(folder)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise MirrorError(
                f"image {name} is of another structure",
                source,
                "a manifest or a configuration without what an image's has",
                "an image of the OCI's or of docker's, with configuration and layers",
                "build it again, or name another one",
            ) from error
        if platform != PLATFORM:
            raise MirrorError(
                f"image {name} is for another platform",
                source,
                "/".join(map(str, platform.values())),
                "/".join(PLATFORM.values()),
                "build it on such a machine",
            )
        for one in (*blobs, digest):
            _take(store, folder, one)
    repository, tag = split(name)
    store.images.name(repository, tag, (digest,), blobs)
    return digest


def _parts(folder: Path) -> tuple[str, list[str], dict[str, Any]]:
    """Return an image's digest, those of its blobs, and its platform, as whoever built it says."""
    index = reading.document(folder / "index.json")
    digest = str(index["manifests"][0]["digest"])
    manifest = reading.document(_blob(folder, digest))
    blobs = [str(one["digest"]) for one in (manifest["config"], *manifest["layers"])]
    config = reading.document(_blob(folder, blobs[0]))
    return digest, blobs, {key: config.get(key) for key in PLATFORM}


def found(name: str, needed_by: str) -> Image | None:
    """Return the bill's entry of an image that is in this machine's mirror; None if it is not."""
    images = Store(cache() / "mirror").images
    digest = images.tagged(*split(name))
    manifest = images.manifest(digest) if digest else None
    chosen = digest
    for one in (manifest or {}).get("manifests", ()):
        if PLATFORM.items() <= dict(one.get("platform", {})).items():
            chosen = str(one["digest"])
            manifest = images.manifest(chosen)
    if manifest is None or "config" not in manifest:
        return None
    size = sum(int(blob["size"]) for blob in (manifest["config"], *manifest["layers"]))
    known = Known(registry=name.partition("/")[0])
    return Image(digest=digest, manifest=chosen, size=size, needed_by=needed_by, known=known)


def _blob(folder: Path, digest: str) -> Path:
    return folder / "blobs" / digest.replace(":", "/", 1)


def _take(store: Store, folder: Path, digest: str) -> None:
    """Move a blob to its place, if its bytes are those of its name."""
    path, place = _blob(folder, digest), store.images.blob(digest)
    with path.open("rb") as file:
        if f"sha256:{digest_of(file)}" != digest:
            raise MirrorError("blob has other bytes", str(path), "another digest", digest, "again")
    place.parent.mkdir(parents=True, exist_ok=True)
    path.chmod(0o644)
    path.replace(place)
