"""`bedplate mirror packages SITE`: fill the mirror with the packages of a site's hosts."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from bedplate.bill import place
from bedplate.bill.web import Web
from bedplate.common.arguments import add_authorities, path_of
from bedplate.common.progress import sized
from bedplate.mirror import locked
from bedplate.mirror.errors import MirrorError
from bedplate.mirror.packages import keys
from bedplate.mirror.packages.filling import fill
from bedplate.mirror.store import Store, cache

if TYPE_CHECKING:
    from argparse import Namespace, _SubParsersAction
    from collections.abc import Sequence
    from pathlib import Path

    from bedplate.lock import Lock

DESCRIPTION = (
    "Fetch the packages that the site's hosts install, with all that these depend on, and write "
    "them into the mirror as repositories of the site's own, one for each system. Indexes and "
    "packages are verified by the archives' keys; the new index is signed by the site's key, which "
    "the first run makes. SITE/.bedplate.packages.yml has its public half: commit it."
)
EPILOG = (
    "Needs gpg; for Debian and Ubuntu apt-get and apt-ftparchive (package apt-utils); for Rocky "
    "Linux dnf, rpm and createrepo_c, which Debian and Ubuntu have too. The private key lies in "
    "BEDPLATE_KEYS, or in ~/.local/share/bedplate/keys, for the user alone and without a "
    "passphrase: keep it. A run that was interrupted goes on where it stopped."
)


def add_parser(verbs: _SubParsersAction[Any]) -> None:
    """Add `packages` to the verbs of `bedplate mirror`."""
    parser = verbs.add_parser(
        "packages",
        help="fill it with the packages of the site's hosts, signed by the site's key",
        description=DESCRIPTION,
        epilog=EPILOG,
    )
    parser.add_argument("site", type=path_of, metavar="SITE", help="an Ansible inventory directory")
    parser.add_argument(
        "--system",
        action="append",
        default=[],
        metavar="OS",
        help="a system of hosts that are in no pool, as debian-12; may be repeated",
    )
    add_authorities(parser)
    parser.set_defaults(run=run, usage_error=parser.error)


def run(options: Namespace) -> int:
    """Carry the command out and return its exit status.

    Raises:
        BedplateError: the site has no mirror for its packages, or something can't be had.
    """
    site: Path = options.site
    lock = locked.compared(site)
    if not lock.sources.mirrors_packages:
        got = f"mode {lock.sources.mode}"
        if lock.sources.mode == "mirror":
            got += f", packages {lock.sources.packages}"
        raise MirrorError(
            "site takes its packages from its hosts' own sources",
            str(site),
            got,
            "mode mirror, packages mirror",
            f"set bedplate_sources, and run: bedplate plan {site}",
        )
    fill_and_show(site, lock, Store(cache() / "mirror"), options.ca, options.system)
    return 0


def fill_and_show(
    site: Path, lock: Lock, store: Store, ca: Path | None, systems: Sequence[str] = ()
) -> None:
    """Fill the mirror with a site's packages, and print what it has then.

    Raises:
        BedplateError: something can't be had.
    """
    with closing(Web(ca)) as web:
        for one in fill(site, lock, store, web, more=systems, ca=ca):
            state = "written" if one.changed else "up to date"
            print(f"{one.system}: {one.packages} packages, {sized(one.size)}, {state}")
    known = place.load(site)
    if known is not None:
        print(f"signed by {known.fingerprint}; its private key is in {keys.home()}: keep it")
