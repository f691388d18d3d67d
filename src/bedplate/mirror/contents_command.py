"""`bedplate mirror fill|check|list|pack|unpack SITE`: what the mirror holds."""

from __future__ import annotations

import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

from bedplate.bill import Places, checked_bill, needs_of
from bedplate.bill.web import Web
from bedplate.catalogue import catalogue_of
from bedplate.common import terminal, writing
from bedplate.common.arguments import add_authorities, add_output, path_of
from bedplate.common.progress import sized
from bedplate.mirror import check, listing, locked, service
from bedplate.mirror.carry import Carrying
from bedplate.mirror.fill import JOBS, Filling
from bedplate.mirror.packages import command as packages
from bedplate.mirror.packages import held, listed
from bedplate.mirror.store import Store, cache

if TYPE_CHECKING:
    from argparse import Namespace, _SubParsersAction
    from pathlib import Path

    from bedplate.bill import Bill
    from bedplate.lock import Lock

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
    add_authorities(fill)
    fill.add_argument(
        "--jobs", type=int, default=JOBS, metavar="N", help=f"downloads at once (default: {JOBS})"
    )
    fill.set_defaults(usage_error=fill.error)
    listed = _verb(
        verbs,
        "list",
        run_list,
        "list what the bill has, for people, programs, skopeo or a firewall",
        "List the files, images and packages of the site. table names what the mirror lacks; "
        "skopeo is a file for `skopeo sync`, hosts are host names and ports for a firewall.",
    )
    add_output(listed, "skopeo", "hosts")
    for name, run, text in (
        ("pack", run_pack, "write what the bill lists to one file, to carry on a disk"),
        ("unpack", run_unpack, "take what `pack` wrote, after all of it is verified by the bill"),
    ):
        packed = _verb(verbs, name, run, text, f"{text[0].upper()}{text[1:]}.")
        packed.add_argument("file", type=path_of, metavar="FILE", help="a tar archive")
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
    parser.add_argument("site", type=path_of, metavar="SITE", help="an Ansible inventory directory")
    parser.set_defaults(run=run)
    return parser


def run_fill(options: Namespace) -> int:
    """Fill the mirror by the site's bill.

    Raises:
        BedplateError: the bill cannot be used, something could not be fetched, the disk is full.
    """
    if options.jobs < 1:
        options.usage_error("--jobs must be at least 1")
    site: Path = options.site
    lock = locked.compared(site)
    bill, store, vendors = _known(site, lock)
    needs = needs_of(lock, catalogue_of(site))
    built = {name for name, one in needs.images.items() if one.built}
    waiting = store.filling(lambda holder: _waiting(store, holder))
    with closing(Web(options.ca)) as web, waiting:
        started = time.monotonic()
        filling = Filling(store, web, vendors, built, options.jobs)
        count = filling.fill(bill)
        seconds = time.monotonic() - started
        service.refresh_all(store)
    fetched = filling.progress.fetched
    print(
        f"{store.root} holds the {len(bill.files)} files and {len(bill.images)} images of "
        f"{site} ({sized(filling.progress.total)}): {count} parts fetched, {sized(fetched)} in "
        f"{seconds:.1f} s ({sized(fetched / max(seconds, 0.001))}/s)"
    )
    if web.traffic.hosts:
        print(f"fetched from: {', '.join(sorted(web.traffic.hosts))}")
    if lock.sources.mirrors_packages:
        packages.fill_and_show(site, lock, store, options.ca)
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
    lock = locked.compared(site, reads=True)
    bill, store, vendors = _known(site, lock)
    found = check.check(bill, store, vendors)
    more = held.parts(site, store) if lock.sources.mirrors_packages else {}
    found += check.damaged(more.values())
    for damage in found:
        print(damage)
    count = f"{len(bill.files)} files and {len(bill.images)} images of {site}"
    if more:
        count = f"{len(more)} files of packages, {count}"
    if found:
        print(
            f"{store.root}: {len(found)} of the {count} are not as the bill has them; "
            f"to fetch them again: bedplate mirror fill {site}",
            file=sys.stderr,
        )
        return DAMAGED
    print(f"{store.root} holds the {count}, with the bill's sizes and digests")
    return OK


def run_list(options: Namespace) -> int:
    """List the site's bill.

    Raises:
        BedplateError: the bill cannot be used.
    """
    site: Path = options.site
    lock = locked.compared(site, reads=True)
    bill, store, vendors = _known(site, lock)
    also = listed.packages(site, lock, catalogue_of(site), store)
    match options.form:
        case "json" | "yaml":
            terminal.document(listing.content(bill, vendors, also), options.form)
        case "skopeo":
            print(listing.skopeo(bill), end="")
        case "hosts":
            print(listing.hosts(bill, vendors, also), end="")
        case _:
            found = check.check(bill, store, vendors, sizes_only=True)
            wrong = {one.name: one.wrong for one in reversed(found)}
            rows = listing.rows(bill, wrong, also)
            terminal.show(terminal.table(listing.HEAD, rows, right=[1]))
    return OK


def run_pack(options: Namespace) -> int:
    """Write the site's part of the mirror to one file, and its checksum beside it.

    Raises:
        BedplateError: the bill cannot be used, the mirror lacks something, the disk is full.
    """
    bill, store, vendors = _known(options.site, locked.compared(options.site))
    target: Path = options.file
    with store.filling(lambda holder: _waiting(store, holder)):
        carrying = Carrying(bill, store, vendors)
        sha256 = carrying.pack(target)
    sums = target.with_name(f"{target.name}.sha256")
    writing.replace(sums, f"{sha256}  {target.name}\n".encode())
    print(
        f"{target}: {sized(carrying.progress.total)}, sha256:{sha256}\n"
        f"{sums}: its checksum, for sha256sum -c. On the other side, with the same site: "
        f"bedplate mirror unpack SITE {target.name}"
    )
    return OK


def run_unpack(options: Namespace) -> int:
    """Verify a packed mirror by the site's bill and put it into this machine's mirror.

    Raises:
        BedplateError: the bill cannot be used, the file is not what it lists, the disk is full.
    """
    bill, store, vendors = _known(options.site, locked.compared(options.site, reads=True))
    with store.filling(lambda holder: _waiting(store, holder)):
        size = Carrying(bill, store, vendors).unpack(options.file)
        service.refresh_all(store)
    print(
        f"{store.root} has the {len(bill.files)} files and {len(bill.images)} images of "
        f"{options.site} ({sized(size)}), each verified by its digest"
    )
    return OK


def _known(site: Path, lock: Lock) -> tuple[Bill, Store, Places]:
    """Return a site's bill, this machine's mirror, and the vendors' addresses."""
    catalogue = catalogue_of(site)
    bill = checked_bill(site, lock, catalogue)
    return bill, Store(cache() / "mirror"), Places(None, Places.hosts(catalogue))
