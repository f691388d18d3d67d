"""Images and single layers of them, as a registry's manifests have them (OCI's specification)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from bedplate.bill.errors import ResolveError, refused
from bedplate.bill.model import File, Image, Known
from bedplate.bill.places import split
from bedplate.bill.web import INDEXES

if TYPE_CHECKING:
    from bedplate.bill.places import Places
    from bedplate.bill.web import Web

PLATFORM = {"os": "linux", "architecture": "amd64"}


def image(
    web: Web,
    places: Places,
    reference: str,
    needed_by: str,
    kept: Image | None = None,
    *,
    digest: str | None = None,
) -> Image:
    """Look an image up by *digest*, or by its tag; what is *kept* stays while its registry has it.

    Raises:
        ResolveError: the registry does not give it, or has none for linux/amd64.
    """
    where = places.repository(reference)
    what = f"image {reference} is not found"
    if kept is not None:
        try:
            manifest(web, f"{where}/manifests/{kept.digest}", what, kept.digest)
        except ResolveError:
            pass  # its maker has removed what it replaced: the tag says what there is now
        else:
            return kept
    found, chosen, inner, kind = built(web, where, reference, what, digest)
    try:
        blobs = [inner["config"], *inner["layers"]]
        size = sum(int(blob["size"]) for blob in blobs)
    except (KeyError, TypeError, ValueError) as error:
        raise refused(what, where, f"a manifest of type {kind or 'unknown'}") from error
    known = _known(places, reference)
    return Image(digest=found, manifest=chosen, size=size, needed_by=needed_by, known=known)


def layer(web: Web, places: Places, reference: str, adds: str, version: str, what: str) -> File:
    """Look up the layer of an image that adds one file, by what the image says of its layers.

    Raises:
        ResolveError: the registry does not give the image, or no layer of it adds just this file.
    """
    where = places.repository(reference)
    _, chosen, inner, _ = built(web, where, reference, what)
    place = f"{where}/manifests/{chosen}"
    try:
        history = configuration(web, where, inner, what)["history"]
        steps = [one for one in history if not one.get("empty_layer")]
        layers = dict(enumerate(inner["layers"])) if len(steps) == len(inner["layers"]) else {}
        made = [layers[at] for at, step in enumerate(steps) if at in layers and _adds(step, adds)]
        digest, size = str(made[0]["digest"]), int(made[0]["size"])
        gzipped = str(made[0]["mediaType"]).endswith(("+gzip", ".gzip"))
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise refused(what, place, f"no layer that adds {adds}", "one such layer") from error
    if len(made) != 1 or not gzipped:
        raise refused(what, place, f"{len(made)} layers that add {adds}", "one, packed by gzip")
    return blob(places, reference, version, digest, size)


def blob(places: Places, reference: str, version: str, digest: str, size: int) -> File:
    """Return the entry of a file that is a layer of what *reference* names."""
    url, known = f"{places.official(reference)}/blobs/{digest}", _known(places, reference)
    sha256 = digest.removeprefix("sha256:")
    return File(version=version, url=url, sha256=sha256, size=size, known=known)


def _known(places: Places, reference: str) -> Known:
    host = reference.partition("/")[0]
    return Known(registry=places.registries.get(host, host))


def _adds(step: dict[str, Any], path: str) -> bool:
    """Tell whether a step of an image's history copies a file to this path."""
    words = str(step.get("created_by", "")).split()
    return "COPY" in words[:1] and path in words


def configuration(web: Web, where: str, manifest: dict[str, Any], what: str) -> dict[str, Any]:
    """Return what an image's manifest names as its configuration.

    Raises:
        ResolveError: the registry does not give it.
        KeyError, TypeError, ValueError: it is none.
    """
    digest = str(manifest["config"]["digest"])
    return dict(json.loads(web.content(f"{where}/blobs/{digest}", what, digest)))


def built(
    web: Web, where: str, reference: str, what: str, digest: str | None = None
) -> tuple[str, str, dict[str, Any], str]:
    """Return the digest of what a tag or *digest* names; of its platform digest, manifest, type.

    Raises:
        ResolveError: the registry does not give it, or has none for linux/amd64.
    """
    asked = digest or split(reference)[1]
    top, kind, found = manifest(web, f"{where}/manifests/{asked}", what, digest)
    if kind not in INDEXES:
        return found, found, top, kind
    chosen = _for_platform(top, where, reference)
    inner, kind, _ = manifest(web, f"{where}/manifests/{chosen}", what, chosen)
    return found, chosen, inner, kind


def manifest(
    web: Web, url: str, what: str, expected: str | None = None
) -> tuple[dict[str, Any], str, str]:
    """Return a manifest, its media type and the digest of its bytes.

    Raises:
        ResolveError: the registry does not give it, or gives other bytes than those of *expected*.
    """
    body, kind, digest = web.manifest(url, what, expected)
    try:
        found = dict(json.loads(body))
    except (ValueError, TypeError) as error:
        raise refused(what, url, "an answer that is no manifest") from error
    return found, str(found.get("mediaType", kind)), digest


def _for_platform(index: dict[str, Any], where: str, reference: str) -> str:
    for entry in index.get("manifests", ()):
        platform = entry.get("platform", {})
        if all(platform.get(key) == value for key, value in PLATFORM.items()):
            return str(entry["digest"])
    listed = sorted(
        f"{one.get('platform', {}).get('os')}/{one.get('platform', {}).get('architecture')}"
        for one in index.get("manifests", ())
    )
    raise refused(
        f"image {reference} has no build for linux/amd64",
        where,
        ", ".join(listed) or "an empty index",
        "linux/amd64",
        "choose another version",
    )
