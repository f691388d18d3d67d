"""What a stack applies of the site's bill: files fetched and checked, images by digest."""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from bedplate.bill import Bill, File, Image, Known, Places, bill_path, checked_bill, needs_of
from bedplate.bill.errors import ResolveError
from bedplate.bill.needs import chart_of
from bedplate.bill.own import web_of
from bedplate.catalogue import catalogue_of
from bedplate.common import writing
from bedplate.common.errors import BedplateError
from bedplate.components import later
from bedplate.components.cluster import flannel
from bedplate.components.config import StackError
from bedplate.portable.message import problem

if TYPE_CHECKING:
    from bedplate.lock import Lock

#: Below the site; git ignores it.
CHARTS = Path(".bedplate", "charts")


def bill_of(site: Path, lock: Lock) -> Bill:
    """Return the bill of a site. Raises StackError where there is none, or another lock's.

    Where stacks are only shown, a site without one gets names and versions with placeholders.
    """
    if later.only_shown() and not bill_path(site).exists():
        return _outlined(site, lock)
    try:
        return checked_bill(site, lock, catalogue_of(site))
    except BedplateError as error:
        raise StackError(str(error)) from error


def _outlined(site: Path, lock: Lock) -> Bill:
    needs, read = needs_of(lock, catalogue_of(site)), later.placeholder("by the bill")
    known, digest = Known(), f"sha256:{read}"
    return Bill.model_construct(
        files={
            name: File.model_construct(
                version=one.version, url=read, sha256=read, size=0, known=known
            )
            for name, one in needs.files.items()
        },
        images={
            name: Image.model_construct(
                digest=digest, manifest=digest, size=0, needed_by=one.needed_by, known=known
            )
            for name, one in needs.images.items()
        },
    )


def fetched(site: Path, lock: Lock, artifact: str) -> str:
    """Return the text of a file of the bill.

    Raises:
        StackError: the bill does not have it, nobody serves it, or it has another digest.
    """
    return _content(site, lock, artifact, _entry(site, lock, artifact)).decode()


def chart(site: Path, lock: Lock, name: str) -> Path:
    """Return where an add-on's chart is, once it is fetched: a path from the project's folder.

    So a stack's state is the same on every machine.

    Raises:
        StackError: as `fetched`.
    """
    entry = _entry(site, lock, chart_of(name))
    place = site / CHARTS / f"{name}-{entry.version}.tgz"
    if later.only_shown():
        return place
    if not place.is_file() or hashlib.sha256(place.read_bytes()).hexdigest() != entry.sha256:
        content = _content(site, lock, chart_of(name), entry)
        writing.replace(place, content)
    return Path(os.path.relpath(place, Path.cwd()))


def _entry(site: Path, lock: Lock, artifact: str) -> File:
    entry = bill_of(site, lock).files.get(artifact)
    if entry is None:
        raise _lacking(site, artifact)
    return entry


def _content(site: Path, lock: Lock, artifact: str, entry: File) -> bytes:
    """Return the bytes that the bill has the digest of, from the vendor or the site's mirror."""
    url = Places.of(lock.sources, catalogue_of(site)).file(entry.url)
    try:
        with closing(web_of(site, lock.sources)) as web:
            content = web.content(url, artifact)
    except ResolveError as error:
        got = "; ".join(str(problem.got) for problem in error.problems)
        raise StackError(
            problem(
                "file cannot be fetched",
                url,
                got,
                f"{artifact} {entry.version}",
                "see that this machine reaches the address; where it is a mirror, start it or"
                " correct bedplate_sources of the site",
            )
        ) from error
    found = hashlib.sha256(content).hexdigest()
    if found != entry.sha256:
        raise StackError(
            problem(
                "file has another digest than the bill",
                url,
                f"sha256 {found}",
                entry.sha256,
                "do not trust this source until you know why",
            )
        )
    return content


def manifest(site: Path, lock: Lock, artifact: str) -> str:
    """Return a manifest of the bill, with the digest of each image beside its tag.

    Where stacks are only shown, nothing is fetched: what stands for it has the parts that are set.

    Raises:
        StackError: as `fetched`; or an image of the bill is not there to be pinned.
    """
    if later.only_shown():
        return flannel.OUTLINE
    text = fetched(site, lock, artifact)
    for name, entry in sorted(bill_of(site, lock).images.items()):
        if entry.needed_by != artifact:
            continue
        written = re.compile(rf"""(image:\s*["']?{re.escape(name)})(?=["']?\s*$)""", re.MULTILINE)
        text, count = written.subn(rf"\1@{entry.digest}", text)
        if not count:
            raise StackError(
                problem(
                    "image of a manifest has no digest",
                    artifact,
                    f"no line `image: {name}`",
                    "each image of the bill",
                    f"run: bedplate mirror resolve {site}",
                )
            )
    return text


def image(site: Path, lock: Lock, needed_by: str) -> str:
    """Return an image of the bill by tag and digest, by the catalogue's name of it.

    Raises:
        StackError: the bill does not have it.
    """
    found = images(site, lock).get(needed_by)
    if found is None:
        raise _lacking(site, needed_by)
    return found


def images(site: Path, lock: Lock) -> dict[str, str]:
    """Return the images of the bill by tag and digest, by the catalogue's names of them.

    Where a manifest has several, the name has the first. Raises StackError as `bill_of`.
    """
    found: dict[str, str] = {}
    for name, entry in bill_of(site, lock).images.items():
        found.setdefault(entry.needed_by, f"{name}@{entry.digest}")
    return found


def refused(site: Path, lock: Lock) -> dict[str, str]:
    """Return why own images of the lock are not in the bill, by name.

    Raises:
        StackError: there is a bill, and it cannot be used.
    """
    found = bill_of(site, lock).refused.values() if bill_path(site).exists() else ()
    return {one.needed_by.partition(".")[2]: one.reason for one in found}


def _lacking(site: Path, name: str) -> StackError:
    return StackError(
        problem(
            "bill of materials lacks something",
            str(site),
            f"no {name}",
            "everything that the lock installs",
            f"run: bedplate mirror resolve {site}",
        )
    )
