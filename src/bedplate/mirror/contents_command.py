"""`bedplate mirror fill|check SITE`: what the mirror holds."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bedplate.bill import Places, checked_bill, needs_of
from bedplate.bill.web import Web
from bedplate.catalogue import catalogue_of
from bedplate.lock import load_lock
from bedplate.mirror import check
from bedplate.mirror.fill import JOBS, Filling
from bedplate.mirror.progress import sized
from bedplate.mirror.store import Store, cache

if TYPE_CHECKING:
    from argparse import Namespace, _SubParsersAction

OK, DAMAGED = 0, 1


def add_parser(verbs: _SubParsersAction[Any]) -> None:
    """Add the verbs to those of `bedplate mirror`."""
    fill = _verb(
        verbs,
        "fill",
        run_fill,
        "download what SITE/.bedplate.bill.yml lists",
        "Download every file and image of the site's bill from its vendor into the mirror, and "
        "compare each with its digest. What is there is read and kept; a run that was interrupted "
        "goes on where it stopped. Set https_proxy where vendors are reached through a proxy.",
    )
    fill.add_argument(
        "--ca",
        type=Path,
        metavar="FILE",
        help="certificates of the authorities to trust instead of the system's, in PEM",
    )
    fill.add_argument(
        "--jobs", type=int, default=JOBS, metavar="N", help=f"downloads at once (default: {JOBS})"
    )
    fill.set_defaults(usage_error=fill.error)
    _verb(
        verbs,
        "check",
        run_check,
        "compare what is on disk with SITE/.bedplate.bill.yml; 1 where something is wrong",
        "Read every file and blob of the site's bill in the mirror and compare size and digest. "
        "Exit status: 0 all is there, 1 something is missing, truncated or changed, 3 refused.",
    )


def _verb(
    verbs: _SubParsersAction[Any], name: str, run: object, text: str, description: str
) -> Any:
    parser = verbs.add_parser(name, help=text, description=description)
    parser.add_argument("site", type=Path, metavar="SITE", help="an Ansible inventory directory")
    parser.set_defaults(run=run)
    return parser


def run_fill(options: Namespace) -> int:
    """Fill the mirror by the site's bill.

    Raises:
        BedplateError: the bill cannot be used, something could not be fetched, the disk is full.
    """
    if options.ca is not None and not options.ca.is_file():
        options.usage_error(f"no such file: {options.ca}")
    if options.jobs < 1:
        options.usage_error("--jobs must be at least 1")
    site: Path = options.site
    lock, catalogue = load_lock(site), catalogue_of(site)
    bill = checked_bill(site, lock, catalogue)
    built = {name for name, one in needs_of(lock, catalogue).images.items() if one.built}
    store = Store(cache() / "mirror")
    web = Web(options.ca)
    try:
        with store.filling(lambda holder: _waiting(store, holder)):
            started = time.monotonic()
            vendors = Places(None, Places.hosts(catalogue))
            filling = Filling(store, web, vendors, built, options.jobs)
            count = filling.fill(bill)
            seconds = time.monotonic() - started
    finally:
        web.close()
    fetched = filling.progress.fetched
    print(
        f"{store.root} holds the {len(bill.files)} files and {len(bill.images)} images of "
        f"{site} ({sized(filling.progress.total)}): {count} parts fetched, {sized(fetched)} in "
        f"{seconds:.1f} s ({sized(fetched / max(seconds, 0.001))}/s)"
    )
    return OK


def _waiting(store: Store, holder: str) -> None:
    print(
        f"waiting for another fill of {store.root}" + (f" (process {holder})" if holder else ""),
        file=sys.stderr,
        flush=True,
    )


def run_check(options: Namespace) -> int:
    """Compare the mirror with the site's bill.

    Raises:
        BedplateError: the bill cannot be used.
    """
    site: Path = options.site
    lock, catalogue = load_lock(site), catalogue_of(site)
    bill = checked_bill(site, lock, catalogue)
    store = Store(cache() / "mirror")
    found = check.check(bill, store, Places(None, Places.hosts(catalogue)))
    for damage in found:
        print(damage)
    count = f"{len(bill.files)} files and {len(bill.images)} images of {site}"
    if found:
        print(
            f"{store.root}: {len(found)} of the {count} are not as the bill has them; "
            f"to fetch them again: bedplate mirror fill {site}",
            file=sys.stderr,
        )
        return DAMAGED
    print(f"{store.root} holds the {count}, with the bill's sizes and digests")
    return OK
