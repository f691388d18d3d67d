"""`bedplate mirror serve|status|stop|list SITE`."""

from __future__ import annotations

import argparse
import shutil
import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bedplate.bill import command as bill
from bedplate.mirror import service
from bedplate.mirror.errors import MirrorError
from bedplate.mirror.index import load_index
from bedplate.mirror.store import Store, cache

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bedplate.mirror.index import MirrorIndex


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
    bill.add_parser(verbs)
    for verb, text in VERBS.items():
        one = verbs.add_parser(verb, help=text)
        one.add_argument("site", type=Path, metavar="SITE", help="an Ansible inventory directory")
        one.set_defaults(run=main)


def main(arguments: argparse.Namespace) -> int:
    """Run one verb; ``status`` ends with 1 when hosts are not served.

    Raises:
        MirrorError: no mirror has been made for the site, or it can't be started.
    """
    index = load_index(arguments.site)
    match arguments.verb:
        case "serve":
            return _serve(index)
        case "stop":
            name = service.find(index.url)
            stopped = service.stop(name) if name else []
            print(
                f"{index.url}: " + (f"stopped {', '.join(stopped)}" if stopped else "not running")
            )
            return 0
        case "status":
            mirror = _mirror(index)
            healthy = mirror.healthy()
            print(f"{index.url}: {'serving' if healthy else 'not serving'}, logs in {mirror.run}")
            return 0 if healthy else 1
        case _:
            for name, file in sorted(index.files.items()):
                print(f"file   {name:55} {file.version:12} {file.size:>12} sha256:{file.sha256}")
            for name, image in sorted(index.images.items()):
                print(f"image  {name:68} {image.size:>12} {image.digest}")
            return 0


def _serve(index: MirrorIndex) -> int:
    mirror = _mirror(index)
    _refuse_other_contents(index, mirror.store)
    started = mirror.start(_registry())
    print(f"{index.url}: {'serving' if started else 'already serving'} {mirror.store.root}")
    return 0


def _refuse_other_contents(index: MirrorIndex, store: Store) -> None:
    here = store.contents()
    lacking = [name for name, entry in index.files.items() if here.files.get(name) != entry]
    lacking += [name for name, entry in index.images.items() if here.images.get(name) != entry]
    if lacking:
        raise MirrorError(
            "the mirror no longer holds what the site's index promises",
            str(store.root),
            f"without or with another {', '.join(sorted(lacking))}",
            "every entry of the index",
            "fill the mirror again and plan the site anew",
        )


def _mirror(index: MirrorIndex) -> service.Mirror:
    address = urllib.parse.urlsplit(index.url)
    host, port = address.hostname or "", address.port or 80
    name = service.find(index.url) or f"{host}-{port}"
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
            "run 'python tests/substrate/tools/build.py registry' in Bedplate's checkout",
        )
    return Path(found)


def run(given: Sequence[str]) -> int:
    """Parse and run the words after ``bedplate mirror``."""
    top = argparse.ArgumentParser(prog="bedplate")
    add_parser(top.add_subparsers(required=True))
    return main(top.parse_args(["mirror", *given]))
