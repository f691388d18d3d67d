"""`bedplate mirror resolve SITE`: look up addresses and digests, write the bill."""

from __future__ import annotations

import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

from bedplate.bill import catalogue_check
from bedplate.bill.file import bill_path, load_bill, write_bill
from bedplate.bill.inspect_command import unfit
from bedplate.bill.match import checked_bill
from bedplate.bill.model import Bill
from bedplate.bill.needs import needs_of
from bedplate.bill.notebook import described
from bedplate.bill.own import web_of
from bedplate.bill.partial import Partial
from bedplate.bill.places import Places
from bedplate.bill.replacements import Replacement, replacements, written
from bedplate.bill.resolve import Made, Resolver
from bedplate.catalogue import catalogue_of, load_catalogue
from bedplate.common import terminal
from bedplate.common.arguments import add_authorities, path_of
from bedplate.common.errors import LockError
from bedplate.lock.model import Sources

if TYPE_CHECKING:
    from argparse import Namespace, _SubParsersAction
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from bedplate.bill.web import Traffic, Web
    from bedplate.lock import Lock

OK, STALE = 0, 2
DESCRIPTION = (
    "Look up the address, digest and size of everything that the site's lock installs, and write "
    "them to SITE/.bedplate.bill.yml: commit it with the lock. Only small files are fetched "
    "(checksum files, manifests, indexes), and once the layers of an own image of courses, to see "
    "that it starts as a notebook. Installs take exactly what the bill lists."
)
EPILOG = (
    "Exit status: 0 written or up to date, 2 --check: none or out of date; or written, and a "
    "package of the lock is not offered any more, or an image of bedplate_images is refused: "
    "courses and jobs go without it; 3 refused, 1 a bug. A run that was interrupted "
    "goes on where it stopped. Set https_proxy where the sources are reached through a proxy."
)


def add_parser(verbs: _SubParsersAction[Any], made: Made, lock_of: Callable[[Path], Lock]) -> None:
    """Add `resolve` to the verbs of `bedplate mirror`.

    *made* knows images on this machine, and *lock_of* a site's lock, if it is up to date.
    """
    parser = verbs.add_parser(
        "resolve",
        help="look up addresses and digests, write SITE/.bedplate.bill.yml",
        description=DESCRIPTION,
        epilog=EPILOG,
    )
    parser.add_argument(
        "site", type=path_of, nargs="?", metavar="SITE", help="an Ansible inventory directory"
    )
    add_authorities(parser)
    parser.add_argument(
        "--upstream",
        action="store_true",
        help="ask the vendors though the site has a mirror: before the mirror is filled",
    )
    parser.add_argument(
        "--check", action="store_true", help="look nothing up; 2 unless the bill is up to date"
    )
    parser.add_argument(
        "--check-catalogue",
        action="store_true",
        help="without a SITE: ask every address of the catalogue once, for its maintainers",
    )
    parser.add_argument(
        "--output", type=path_of, metavar="FILE", help="where --check-catalogue writes its JSON"
    )
    parser.set_defaults(run=run, usage_error=parser.error, made=made, lock_of=lock_of)


def run(options: Namespace) -> int:
    """Carry the command out and return its exit status.

    Raises:
        BedplateError: the lock cannot be used, or something could not be looked up.
    """
    if options.check_catalogue:
        if options.site is not None:
            options.usage_error("--check-catalogue takes no SITE")
        return catalogue_check.run(load_catalogue(), options.ca, options.output)
    if options.site is None:
        options.usage_error("the following arguments are required: SITE")
    site: Path = options.site
    lock: Lock = options.lock_of(site)
    if options.check:
        return _check(site, lock)
    started = time.monotonic()
    sources = _sources(lock, upstream=options.upstream)
    with closing(web_of(site, sources, options.ca)) as web:
        bill, unread = resolved(site, lock, web, upstream=options.upstream, made=options.made)
        found = _instead(site, lock, web, bill, sources)
        instead = [line for one in found for line in written(site, one)]
    _show(site, bill, written=write_bill(site, bill))
    for name, one in needs_of(lock, catalogue_of(site)).images.items():
        if one.optional and name not in bill.images:
            print(f"not in the bill: {name}, for jobs of teams; nothing has it yet")
        elif one.starts and name in bill.images:
            print(f"{one.needed_by}: a notebook with {described(bill.images[name].notebook)}")
    print(_traffic(web.traffic, time.monotonic() - started), file=sys.stderr)
    return max(_gone(bill, instead), _refused(lock, bill, unread))


def resolved(
    site: Path, lock: Lock, web: Web, *, upstream: bool = False, made: Made | None = None
) -> tuple[Bill, dict[str, str]]:
    """Return the bill of a site's lock, going on from what an interrupted run has found.

    Next to it are own images whose entries stay though they could not be read, and why.

    With *upstream* the vendors' addresses are asked, whatever mirror the site has. Its keys count
    there too: what answers may sign again.

    Raises:
        ResolveError: something else than an own image could not be looked up.
    """
    catalogue = catalogue_of(site)
    sources = _sources(lock, upstream=upstream)
    places = Places.of(sources, catalogue)
    keys = dict(sources.keys)
    wrong = unfit(web, places, lock, catalogue)
    partial = Partial(site, {"mirror": places.asked, "keys": keys})
    before = load_bill(site) or Bill()
    resolver = Resolver(web, places, keys, before, partial, bill_path(site), made, wrong)
    bill = resolver.bill(needs_of(lock, catalogue))
    partial.done()
    return bill, resolver.unread


def _sources(lock: Lock, *, upstream: bool) -> Sources:
    return Sources(mode="upstream", keys=lock.sources.keys) if upstream else lock.sources


def _instead(site: Path, lock: Lock, web: Web, bill: Bill, sources: Sources) -> list[Replacement]:
    if not any(found.gone for found in bill.packages.values()):
        return []
    catalogue = catalogue_of(site)
    ways = Places.of(sources, catalogue), sources.keys
    return list(replacements(web, ways, lock, catalogue, bill))


def _check(site: Path, lock: Lock) -> int:
    try:
        bill = checked_bill(site, lock, catalogue_of(site))
    except LockError as error:
        print(error, file=sys.stderr)
        return STALE
    _refused(lock, bill, {})  # named, and no reason to hold up the rest
    print(f"{bill_path(site)} is up to date.")
    return OK


def _show(site: Path, bill: Bill, *, written: bool) -> None:
    rows = [
        (name, one.version, one.size, f"sha256:{one.sha256}") for name, one in bill.files.items()
    ]
    rows += [(name, "", image.size, image.digest) for name, image in bill.images.items()]
    rows.sort()
    listed = (
        (name, version, f"{size / 1e6:.1f} MB", f"{digest[:19]}…")
        for name, version, size, digest in rows
    )
    terminal.show(terminal.table(None, listed, right=[2]))
    for source, found in bill.packages.items():
        count = f"{len(found.offered)} of {len(found.offered) + len(found.gone)}"
        print(f"{source}: {count} packages are offered")
        for index in found.unread:
            print(f"{source}: {index} could not be read, so its packages were not looked up")
    total = sum(row[2] for row in rows)
    path = bill_path(site)
    print(
        f"\n{len(bill.files)} files and {len(bill.images)} images, {total / 1e6:.0f} MB.\n"
        + (f"Wrote {path}: commit it." if written else f"{path} is up to date.")
    )


def _traffic(traffic: Traffic, seconds: float) -> str:
    return (
        f"{traffic.requests} requests to {len(traffic.hosts)} hosts, "
        f"{traffic.received / 1e3:.0f} kB, {seconds:.1f} s"
    )


def _refused(lock: Lock, bill: Bill, unread: Mapping[str, str]) -> int:
    """Report own images that are refused, or were not read, with the courses that have them."""

    def said(needed_by: str) -> str:
        name = needed_by.partition(".")[2]
        those = ", ".join(one for one, course in lock.courses.items() if name in course.frameworks)
        return f"{needed_by} of {those or 'no course'}"

    for setting, reason in sorted(unread.items()):
        print(f"{said(setting)} could not be read, its entry stays: {reason}", file=sys.stderr)
    for one in bill.refused.values():
        what = f"{said(one.needed_by)} is refused, courses and jobs go without it"
        print(f"{what}: {one.reason}", file=sys.stderr)
    return STALE if bill.refused or unread else OK


def _gone(bill: Bill, instead: Sequence[str]) -> int:
    """Report the packages that their index does not offer any more."""
    lines = [
        f"{source}: {name} {gone.locked} is not offered; offered: "
        f"{', '.join(gone.offered) or 'no version of it'}"
        for source, found in bill.packages.items()
        for name, gone in found.gone.items()
    ]
    if not lines:
        return OK
    print("\n".join(lines), file=sys.stderr)
    print(
        "Hosts that do not have these versions yet cannot install them: choose another driver "
        "with bedplate_driver or bedplate_pins, and plan again.",
        file=sys.stderr,
    )
    print("\n".join(instead), file=sys.stderr)
    return STALE
