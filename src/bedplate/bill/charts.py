"""A chart's address and digest: an OCI artefact's only layer, or a chart repository's entry."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

import yaml

from bedplate.bill.errors import refused
from bedplate.bill.model import File, Known
from bedplate.bill.places import HTTPS, split
from bedplate.bill.registry import blob, manifest

if TYPE_CHECKING:
    from bedplate.bill.places import Places
    from bedplate.bill.web import Web

OCI = "oci://"
#: What Helm calls the layer of an artefact that is the chart's archive.
CONTENT = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
INDEX = "index.yaml"
SHA256 = "sha256:"
HEXADECIMAL = re.compile(r"[0-9a-f]{64}")


def chart(web: Web, places: Places, address: str, version: str, what: str) -> File:
    """Look a chart up by its fact's address and its version.

    Raises:
        ResolveError: it is not there, or has no digest.
    """
    if address.startswith(OCI):
        return _artefact(web, places, reference(address, version), version, what)
    return _listed(web, places, address, version, what)


def reference(address: str, version: str) -> str:
    """Return the name of an OCI chart with its tag: the version where the address has none."""
    name = address.removeprefix(OCI).replace("{version}", version)
    return name if ":" in name.rpartition("/")[2] else f"{name}:{version}"


def index_of(address: str) -> str:
    """Return the address of the index of a chart's repository."""
    return f"{address.rpartition('/')[0]}/{INDEX}"


def _artefact(web: Web, places: Places, named: str, version: str, what: str) -> File:
    where = f"{places.repository(named)}/manifests/{split(named)[1]}"
    found, kind, _ = manifest(web, where, what)
    try:
        layers = [one for one in found["layers"] if one["mediaType"] == CONTENT]
        (digest, size) = str(layers[0]["digest"]), int(layers[0]["size"])
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise refused(
            what, where, f"no chart: {kind or 'unknown'}", f"a layer {CONTENT}"
        ) from error
    return blob(places, named, version, digest, size)


def _listed(web: Web, places: Places, address: str, version: str, what: str) -> File:
    index = index_of(address)
    where = places.file(index)
    name = address.rpartition("/")[2]
    content = web.content(where, what)
    try:
        entries = _entries(yaml.load(content, _loader()), name)  # noqa: S506 - a safe one
    except (yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise refused(what, where, f"no chart {name}", f"a list of {name}") from error
    entry = entries.get(version)
    if entry is None:
        there = ", ".join(list(entries)[:4]) or "no version of it"
        fix = "choose a version that is there with bedplate_pins, and plan again"
        raise refused(what, where, there, version, fix)
    sha256 = str(entry.get("digest") or "none").removeprefix(SHA256)
    urls = [urljoin(index, str(url)) for url in entry.get("urls") or ()]
    url = urls[0] if urls else "none"
    if not HEXADECIMAL.fullmatch(sha256) or not url.startswith(HTTPS):
        got = f"digest {sha256}, address {url}"
        raise refused(what, where, got, "a SHA-256 and an https address")
    size = web.size(places.file(url), what)
    return File(version=version, url=url, sha256=sha256, size=size, known=Known(charts=index))


def _entries(index: Any, name: str) -> dict[str, dict[str, Any]]:
    """Return the entries of a chart by version, without the v that some write before it."""
    return {str(entry["version"]).removeprefix("v"): entry for entry in index["entries"][name]}


def _loader() -> Any:
    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)
