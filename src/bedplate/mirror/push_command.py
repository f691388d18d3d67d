"""`bedplate mirror push SITE`: fill a registry and a file server of the site's own."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

from bedplate.bill import Places, checked_bill
from bedplate.bill.own import own_of
from bedplate.bill.web import Own, Web
from bedplate.catalogue import catalogue_of
from bedplate.common.arguments import file_of, path_of
from bedplate.common.errors import BedplateError
from bedplate.mirror import locked, push, skopeo, wanted
from bedplate.mirror.errors import MirrorError
from bedplate.mirror.packages import deb, held, rpm
from bedplate.mirror.store import Store, cache

if TYPE_CHECKING:
    from argparse import Namespace, _SubParsersAction
    from collections.abc import Callable
    from pathlib import Path

    from bedplate.common.errors import Problem

PACKAGES = (".deb", ".rpm")
TOPS = (deb.SIGNED, rpm.TOP, rpm.SIGNATURE)
ABOUT = (
    "Bring what SITE/.bedplate.bill.yml lists to the site's own registry and file server "
    "(bedplate_sources.registry and files): images by skopeo, files and packages by HTTP PUT from "
    "this machine's mirror. What is there stays, so that the same command ends a run that was "
    "interrupted. The login is the site's, and must be allowed to write."
)


def add_parser(verbs: _SubParsersAction[Any]) -> None:
    """Add the verb to those of `bedplate mirror`."""
    parser = verbs.add_parser(
        "push", help="fill the site's own registry and file server", description=ABOUT
    )
    parser.add_argument("site", type=path_of, metavar="SITE", help="an Ansible inventory directory")
    parser.add_argument(
        "--ca",
        type=file_of,
        metavar="FILE",
        help="certificates of the authorities to trust for makers' registries, in PEM",
    )
    parser.set_defaults(run=run, usage_error=parser.error)


def run(options: Namespace) -> int:
    """Push all that the bill lists; go on after what fails, and say all of it in the end.

    Raises:
        BedplateError: the site has no servers of its own, or something did not come there.
    """
    site: Path = options.site
    lock, catalogue = locked.compared(site), catalogue_of(site)
    sources = lock.sources
    if sources.registry is None or sources.files is None:
        raise MirrorError(
            "site has no registry and file server of its own",
            str(site),
            f"bedplate_sources.mode {sources.mode}, url {sources.url}",
            "mode mirror, with files and registry",
            f"set bedplate_sources, and run: bedplate plan {site}",
        )
    bill = checked_bill(site, lock, catalogue)
    skopeo.expect()
    store = Store(cache() / "mirror")
    places, own = Places.of(sources, catalogue), own_of(site, sources) or Own(())
    problems: list[Problem] = []

    def tried(what: Callable[[], str | bool]) -> str | bool:
        try:
            return what()
        except BedplateError as error:
            problems.extend(error.problems)
            return False

    with closing(Web(None, own)) as web:
        pushing = push.Pushing(store, places, sources.registry, own, web, options.ca)
        put = 0
        files = wanted.files(bill, store)
        for address, part in files.items():
            put += bool(tried(partial(pushing.file, address, part)))
        if sources.mirrors_packages:
            packages = held.parts(site, store)
            # The signed index last: until then hosts read the one before.
            for address in sorted(packages, key=lambda one: one.endswith(TOPS)):
                part, index = packages[address], not address.endswith(PACKAGES)
                put += bool(tried(partial(pushing.file, address, part, whole=index)))
            files = files | packages
        for name, entry in sorted(bill.images.items()):
            came = tried(partial(pushing.image, name, entry))
            print(f"{name}: {came or 'not pushed'}", flush=True)
    if problems:
        raise BedplateError(problems)
    print(
        f"{sources.files} has the {len(files)} files ({put} of them put now), and "
        f"{sources.registry} the {len(bill.images)} images of {site}"
    )
    return 0
