"""Every address of the catalogue asked once: for a maintainer whose machine reaches the vendors."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from bedplate.bill.charts import OCI, index_of, reference
from bedplate.bill.errors import ResolveError
from bedplate.bill.needs import NeededFile, Repository, of_distribution
from bedplate.bill.places import Places, split
from bedplate.bill.repository import offers
from bedplate.bill.web import CONNECTIONS, Web
from bedplate.lock.file import write_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bedplate.catalogue import Catalogue

OK, FAILED = 0, 2


@dataclass(frozen=True)
class Asked:
    """One address of the catalogue: its fact, and how it is asked."""

    fact: str
    url: str
    kind: str  # file, image or repository
    repository: Repository | None = None


def addresses(catalogue: Catalogue) -> list[Asked]:
    """Return every address of the catalogue with every version that it has."""
    return sorted({*_files(catalogue), *_images(catalogue), *_repositories(catalogue)}, key=str)


def _versions(catalogue: Catalogue, component: str) -> Iterator[Any]:
    """Yield what the catalogue knows of a component, version by version."""
    if component == "kubernetes":
        yield from (fact.value for fact in catalogue.kubernetes.values())
    elif component in {"etcd", "coredns", "pause"}:
        yield from (getattr(fact.value, component) for fact in catalogue.kubernetes.values())
    else:
        names = {component, component.replace("_", "-")}
        yield from (one.value for one in catalogue.addons.values() if one.value.addon in names)
        for table in (catalogue.components, catalogue.container_runtimes):
            for fact in table.values():
                name = getattr(fact.value, "component", getattr(fact.value, "runtime", ""))
                source = getattr(fact.value, "source", "archive")
                if name.replace("-", "_") == component and source == "archive":
                    yield fact.value


def _files(catalogue: Catalogue) -> Iterator[Asked]:
    for fact in catalogue.artifacts.values():
        value = fact.value
        for version in _versions(catalogue, value.component):
            needed = NeededFile(version.version, value)
            for url in (value.url, value.checksum_file, value.release):
                if url is not None:
                    yield Asked(fact.id, needed.filled(url), "file")
        if (package := value.package) is not None:
            repository = Repository(package.index, package.key, package.fingerprint)
            yield Asked(fact.id, package.index, "repository", repository)
        if (layer := value.layer) is not None:
            for version in _versions(catalogue, value.component):
                needed = NeededFile(version.version, value)
                yield Asked(fact.id, needed.filled(layer.image), "image")
    for addon in catalogue.addons.values():
        if (address := addon.value.chart) and address.startswith(OCI):
            yield Asked(addon.id, reference(address, addon.value.version), "image")
        elif address:
            yield Asked(addon.id, index_of(address), "file")


def _images(catalogue: Catalogue) -> Iterator[Asked]:
    for fact in catalogue.images.values():
        component = fact.value.component
        for part in _versions(catalogue, component) if component else (None,):
            reference = fact.value.reference
            for field in ("version", "image_tag"):
                reference = reference.replace(f"{{{field}}}", str(getattr(part, field, "")))
            yield Asked(fact.id, reference, "image")
    for component_ in catalogue.components.values():
        if component_.value.image:
            yield Asked(component_.id, component_.value.image, "image")


def _repositories(catalogue: Catalogue) -> Iterator[Asked]:
    for fact in catalogue.repositories.values():
        value = fact.value
        repository = Repository(value.url, value.url + value.key, value.fingerprint, value.format)
        yield Asked(fact.id, value.url, "repository", repository)
    for archive in catalogue.distribution_archives.values():
        yield Asked(archive.id, archive.value.url, "repository", of_distribution(archive.value))


def run(catalogue: Catalogue, ca: Path | None, output: Path | None) -> int:
    """Ask, print what failed, write the outcome where it is wanted; 2 if anything failed."""
    web, places = Web(ca), Places(None, Places.hosts(catalogue))
    asked = addresses(catalogue)
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        reasons = list(pool.map(lambda one: _reason(web, places, one), asked))
    web.close()
    for one, reason in zip(asked, reasons, strict=True):
        if reason:
            print(f"{one.fact}: {one.url}: {reason}", file=sys.stderr)
    failed = sum(bool(reason) for reason in reasons)
    print(f"{len(asked)} addresses, {failed} failed.")
    if output is not None:
        rows = [
            {"fact": one.fact, "address": one.url, "result": reason or "ok"}
            for one, reason in zip(asked, reasons, strict=True)
        ]
        content = {
            "catalogue": catalogue.digest,
            "asked": datetime.now(UTC).date().isoformat(),
            "addresses": rows,
        }
        write_text(output, json.dumps(content, indent=1) + "\n")
    return FAILED if failed else OK


def _reason(web: Web, places: Places, one: Asked) -> str:
    """Return why an address is not as the catalogue has it; empty if it is."""
    try:
        if one.repository is not None:
            offers(web, places, one.repository, ())
        elif one.kind == "image":
            repository, tag = places.repository(one.url), split(one.url)[1]
            web.manifest(f"{repository}/manifests/{tag}", "image is not found")
        else:
            web.size(one.url, "file is not found")
    except ResolveError as error:
        return "; ".join(f"{problem.what}: {problem.got}" for problem in error.problems)
    return ""
