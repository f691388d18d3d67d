"""`bedplate mirror inspect SITE IMAGE`: does an image run in the site's pools."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from bedplate.bill import notebook
from bedplate.bill.errors import ResolveError
from bedplate.bill.image_needs import asked, machines, mismatches
from bedplate.bill.needs import KEY_OF_OWN, starts_of
from bedplate.bill.own import web_of
from bedplate.bill.places import Places
from bedplate.catalogue import catalogue_of
from bedplate.common.arguments import add_authorities, path_of
from bedplate.common.errors import Problem
from bedplate.lock import load_lock

if TYPE_CHECKING:
    from argparse import Namespace, _SubParsersAction

    from bedplate.bill.image_needs import Asks
    from bedplate.bill.web import Web
    from bedplate.catalogue import Catalogue
    from bedplate.lock import Lock

OK, NOWHERE = 0, 2
DESCRIPTION = (
    "Read an image's configuration from its registry, or from the site's mirror, and say in which "
    "pools with GPUs it runs: its platform, its CUDA, what it requires of the driver, and the GPUs "
    "that it has code for. Nothing is pulled. With --notebook its layers are read, the newest "
    "first, for what the hub starts: jupyterhub-singleuser, JupyterLab, user 1000 and its home."
)
EPILOG = (
    "Exit status: 0 it runs in every pool with GPUs, and has what a notebook needs where that is "
    "asked; 2 not in all of them, or it has not; 3 refused, 1 a bug."
)


def add_parser(verbs: _SubParsersAction[Any]) -> None:
    """Add `inspect` to the verbs of `bedplate mirror`."""
    parser = verbs.add_parser(
        "inspect",
        help="say in which of the site's pools an image runs",
        description=DESCRIPTION,
        epilog=EPILOG,
    )
    parser.add_argument("site", type=path_of, metavar="SITE", help="an Ansible inventory directory")
    parser.add_argument("image", metavar="IMAGE", help="HOST/NAME:TAG or HOST/NAME@sha256:…")
    parser.add_argument("--pool", metavar="NAME", help="this pool alone")
    parser.add_argument(
        "--notebook",
        action="store_true",
        help="say whether it has what a course's notebook starts with; reads layers, as many as "
        "it takes",
    )
    add_authorities(parser)
    parser.set_defaults(run=run, usage_error=parser.error)


def run(options: Namespace) -> int:
    """Carry the command out and return its exit status.

    Raises:
        BedplateError: the lock cannot be used, or the image's configuration cannot be read.
    """
    host, slash, rest = options.image.partition("/")
    named = slash and ("." in host or ":" in host) and (":" in rest or "@" in rest)
    if "@" in options.image.partition("@sha256:")[0]:
        options.usage_error("IMAGE has a user or a password in it, which are not taken from there")
    if not named:
        options.usage_error(f"{options.image} is not HOST/NAME:TAG or HOST/NAME@sha256:…")
    lock, catalogue = load_lock(options.site), catalogue_of(options.site)
    if options.pool not in {None, *lock.pools}:
        options.usage_error(
            f"no pool {options.pool}; the pools are {', '.join(sorted(lock.pools))}"
        )
    versions: dict[str, str] = {}
    unable: list[Problem] = []
    with closing(web_of(options.site, lock.sources, options.ca)) as web:
        places = Places.of(lock.sources, catalogue)
        digest, asks = asked(web, places, options.image)
        if options.notebook:
            starts = starts_of(lock, catalogue)
            versions, unable = notebook.of_image(web, places, options.image, starts)
    print(f"{options.image.partition('@')[0]}: {digest}")
    print(f"  {asks.platform}, {f'CUDA {asks.cuda}' if asks.cuda else 'no CUDA that it names'}")
    wrong = problems(options.image, asks, lock, catalogue, options.pool)
    for pool in sorted(lock.pools):
        if options.pool in {None, pool} and lock.pools[pool].gpu:
            print(f"  pool {pool}: {'does not run' if pool in wrong else 'runs'}")
            for one in wrong.get(pool, ()):
                print(f"    {one}")
    if options.notebook:
        has = "does not start" if unable else f"has {notebook.described(versions)}"
        print(f"  notebook: {has}")
    for one in unable:
        print(f"    {one}")
    return NOWHERE if wrong or unable else OK


def unfit(
    web: Web, places: Places, lock: Lock, catalogue: Catalogue
) -> dict[str, tuple[Problem, ...]]:
    """Return what is wrong with own images, by the setting, whatever the site says of them.

    They cannot be read, or do not run in their pools.
    """
    found: dict[str, tuple[Problem, ...]] = {}
    for name, one in lock.cluster.images.items() if lock.cluster else ():
        try:
            _, asks = asked(web, places, one.image)
            wrong = problems(one.image, asks, lock, catalogue, one.pool).get(one.pool, [])
        except ResolveError as error:
            wrong = list(error.problems)
        if wrong:
            found[f"{KEY_OF_OWN}.{name}"] = tuple(wrong)
    return found


def problems(
    image: str, asks: Asks, lock: Lock, catalogue: Catalogue, pool: str | None = None
) -> dict[str, list[Problem]]:
    """Return what keeps an image from running in pools with GPUs, by pool; only of those."""
    found: dict[str, list[Problem]] = {}
    for name, decided in lock.pools.items():
        if pool not in {None, name}:
            continue
        for machine in machines(decided, catalogue):
            for one in mismatches(asks, machine):
                problem = Problem(
                    one.what,
                    f"pool {name}",
                    got=f"{one.got} in {image}",
                    allowed=one.allowed,
                    fix="take an image for this driver and GPU, or another pool",
                    rule="image",
                )
                found.setdefault(name, []).append(problem)
    return found
