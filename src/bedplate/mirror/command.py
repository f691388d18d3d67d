"""`bedplate mirror serve|status|stop|list SITE`; `resolve` and `inspect` are the bill's."""

from __future__ import annotations

import argparse
import shutil
import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bedplate.arguments import path_of
from bedplate.bill import command as resolving
from bedplate.bill import inspect_command as inspecting
from bedplate.bill import load_bill
from bedplate.bill.places import HTTPS
from bedplate.lock import load_lock
from bedplate.mirror import contents_command, service
from bedplate.mirror.errors import MirrorError
from bedplate.mirror.packages import command as packages
from bedplate.mirror.store import Store, cache

if TYPE_CHECKING:
    from collections.abc import Sequence


VERBS = {
    "serve": "start the mirror on this machine",
    "status": "say whether it serves; 1 if not",
    "stop": "stop it",
    "list": "list what it holds for the site",
}


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add ``mirror`` to the command line; `main` is set as its ``run``."""
    parser = subparsers.add_parser(
        "mirror", help="look up a site's files and images, serve them from here"
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    resolving.add_parser(verbs)
    inspecting.add_parser(verbs)
    contents_command.add_parser(verbs)
    packages.add_parser(verbs)
    for verb, text in VERBS.items():
        one = verbs.add_parser(verb, help=text)
        one.add_argument(
            "site", type=path_of, metavar="SITE", help="an Ansible inventory directory"
        )
        one.set_defaults(run=main)


def main(arguments: argparse.Namespace) -> int:
    """Run one verb; ``status`` ends with 1 when hosts are not served.

    Raises:
        MirrorError: the site has no mirror, or it can't be started.
    """
    site: Path = arguments.site
    url = _url(site)
    match arguments.verb:
        case "serve":
            mirror = _mirror(url)
            _refuse_other_contents(site, mirror.store)
            started = mirror.start(_registry())
            print(f"{url}: {'serving' if started else 'already serving'} {mirror.store.root}")
            return 0
        case "stop":
            name = service.find(url)
            stopped = service.stop(name) if name else []
            print(f"{url}: " + (f"stopped {', '.join(stopped)}" if stopped else "not running"))
            return 0
        case "status":
            mirror = _mirror(url)
            healthy = mirror.healthy()
            print(f"{url}: {'serving' if healthy else 'not serving'}, logs in {mirror.run}")
            return 0 if healthy else 1
        case _:
            contents = _mirror(url).store.contents()
            for address, file in sorted(contents.files.items()):
                print(f"file   {file.size:>12} sha256:{file.sha256} https://{address}")
            for name, image in sorted(contents.images.items()):
                print(f"image  {image.size:>12} {image.digest} {name}")
            return 0


def _url(site: Path) -> str:
    sources = load_lock(site).sources
    if sources.mode == "mirror" and sources.url:
        return sources.url.rstrip("/")
    raise MirrorError(
        "site has no mirror",
        str(site),
        f"bedplate_sources.mode {sources.mode}",
        "mode mirror, with its url",
        f"set bedplate_sources, and run: bedplate plan {site}",
    )


def _refuse_other_contents(site: Path, store: Store) -> None:
    bill = load_bill(site)
    if bill is None:
        return  # it is written from what the mirror serves
    here = store.contents()
    files = {file.url.removeprefix(HTTPS): file.sha256 for file in bill.files.values()}
    found = {address: entry.sha256 for address, entry in here.files.items()}
    lacking = [address for address, sha256 in files.items() if found.get(address) != sha256]
    digests = {name: entry.digest for name, entry in here.images.items()}
    lacking += [name for name, image in bill.images.items() if digests.get(name) != image.digest]
    if lacking:
        raise MirrorError(
            "mirror does not hold what the site's bill lists",
            str(store.root),
            f"without or with another {', '.join(sorted(lacking))}",
            "every file and image of the bill",
            "copy each file to files/HOST/PATH below it, and each image into its registry as "
            "HOST/NAME; where the change is intended, remove the bill and run: "
            f"bedplate mirror resolve {site}",
        )


def _mirror(url: str) -> service.Mirror:
    address = urllib.parse.urlsplit(url)
    host, port = address.hostname or "", address.port or 80
    name = service.find(url) or f"{host}-{port}"
    return service.Mirror(name, host, Store(cache() / "mirror"), port)


def _registry() -> Path:
    own = sorted((cache() / "tools").glob("registry-*/bin/registry"))
    found = own[-1] if own else shutil.which("registry")
    if not found:
        raise MirrorError(
            "the mirror needs an OCI registry",
            f"{cache() / 'tools'} and PATH",
            "no program 'registry'",
            "the CNCF Distribution registry",
            "put its program `registry` on PATH",
        )
    return Path(found)


def run(given: Sequence[str]) -> int:
    """Parse and run the words after ``bedplate mirror``."""
    top = argparse.ArgumentParser(prog="bedplate")
    add_parser(top.add_subparsers(required=True))
    return main(top.parse_args(["mirror", *given]))
