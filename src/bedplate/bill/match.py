"""Whether a site's bill is that of its lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bedplate.bill.file import bill_path, load_bill
from bedplate.bill.model import Bill
from bedplate.bill.needs import needs_of
from bedplate.common.errors import LockError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bedplate.bill.needs import Needs
    from bedplate.catalogue import Catalogue
    from bedplate.lock import Lock

SHOWN = 4


def checked_bill(site: Path, lock: Lock, catalogue: Catalogue) -> Bill:
    """Return the bill of a site whose lock is *lock*; an empty one where nothing is installed.

    Raises:
        LockError: there is none, it cannot be read, or it was made for other needs.
    """
    needs = needs_of(lock, catalogue)
    bill = load_bill(site)
    if bill is None:
        if not needs:
            return Bill()
        raise LockError([_problem(site, "site has no bill of materials", "no file")])
    if wrong := list(differences(needs, bill)):
        more = f" and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
        got = f"{', '.join(wrong[:SHOWN])}{more}"
        raise LockError([_problem(site, "bill of materials is out of date", got)])
    return bill


def differences(needs: Needs, bill: Bill) -> Iterator[str]:
    """Say, thing by thing, what the bill lacks, has in another version, or has too much."""
    for name, needed in needs.files.items():
        found = bill.files.get(name)
        if found is None:
            yield f"no {name} {needed.version}"
        elif found.version != needed.version:
            yield f"{name} {found.version}, the lock has {needed.version}"
    for name, one in needs.images.items():
        image = bill.images.get(name)
        if image is None and not one.optional and name not in bill.refused:
            yield f"no {name}"
        elif image is not None and one.starts and not one.starts.known(image.notebook):
            yield f"{one.needed_by} was not checked as a notebook"
    for source, wanted in needs.packages.items():
        listed = bill.packages.get(source)
        if listed is None:
            yield f"no packages of {source}"
            continue
        versions = listed.offered | {name: gone.locked for name, gone in listed.gone.items()}
        asked = {repository.index for repository in wanted.repositories}
        if asked != set(listed.indexes) or not (listed.unread or versions == wanted.packages):
            yield f"other packages of {source}"
    yield from (f"{name} is not needed" for name in bill.files if name not in needs.files)
    for name, image in bill.images.items():
        if name not in needs.images and image.needed_by not in needs.files:
            yield f"{name} is not needed"
    yield from (f"{name} is not needed" for name in bill.refused if name not in needs.images)
    yield from (
        f"packages of {source} are not needed"
        for source in bill.packages
        if source not in needs.packages
    )


def _problem(site: Path, what: str, got: str) -> Problem:
    return Problem(
        what,
        str(bill_path(site)),
        got=got,
        allowed="addresses and digests of everything that the lock installs",
        fix=f"run: bedplate mirror resolve {site}",
        rule="bill",
    )
