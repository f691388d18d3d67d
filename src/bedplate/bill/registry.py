"""An image's digests, as its registry's manifests have them (OCI's distribution specification)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from bedplate.bill.model import Image, Known
from bedplate.bill.places import split
from bedplate.bill.web import ResolveError, refused

if TYPE_CHECKING:
    from bedplate.bill.places import Places
    from bedplate.bill.web import Web

INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
ACCEPT = ", ".join(INDEXES + MANIFESTS)
PLATFORM = {"os": "linux", "architecture": "amd64"}


def image(
    web: Web, places: Places, reference: str, needed_by: str, kept: Image | None = None
) -> Image:
    """Look an image up by its tag; what is *kept* stays as long as its registry has it.

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
    tag = split(reference)[1]
    top, kind, digest = manifest(web, f"{where}/manifests/{tag}", what)
    chosen, inner = digest, top
    if kind in INDEXES:
        chosen = _for_platform(top, where, reference)
        inner, kind, _ = manifest(web, f"{where}/manifests/{chosen}", what, chosen)
    try:
        blobs = [inner["config"], *inner["layers"]]
        size = sum(int(blob["size"]) for blob in blobs)
    except (KeyError, TypeError, ValueError) as error:
        raise refused(what, where, f"a manifest of type {kind or 'unknown'}") from error
    host = reference.partition("/")[0]
    return Image(
        digest=digest,
        manifest=chosen,
        size=size,
        needed_by=needed_by,
        known=Known(registry=places.registries.get(host, host)),
    )


def manifest(
    web: Web, url: str, what: str, expected: str | None = None
) -> tuple[dict[str, Any], str, str]:
    """Return a manifest, its media type and the digest of its bytes.

    Raises:
        ResolveError: the registry does not give it, or gives other bytes than those of *expected*.
    """
    body, kind, digest = web.manifest(url, ACCEPT, what)
    if expected is not None and digest != expected:
        raise refused(what, url, f"content {digest}", f"content {expected}")
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
