"""`bedplate mirror serve|status|stop SITE`; `resolve` and `inspect` are the bill's."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from bedplate.bill import Places, load_bill
from bedplate.bill import command as resolving
from bedplate.bill import inspect_command as inspecting
from bedplate.catalogue import catalogue_of
from bedplate.common import terminal
from bedplate.common.arguments import add_output, path_of
from bedplate.lock import load_lock
from bedplate.mirror import check, contents_command, locked, made, push_command, service
from bedplate.mirror.address import Address
from bedplate.mirror.errors import MirrorError
from bedplate.mirror.packages import command as packages
from bedplate.mirror.store import Store, cache

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

#: So many things that are wrong are named in a refusal.
SHOWN = 4
VERBS = {
    "serve": "serve it from this machine, in the background",
    "status": "say whether it is served; exit status 1 if not, or if files of the bill are missing",
    "stop": "stop serving it",
}


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add ``mirror`` to the command line; `main` is set as its ``run``."""
    parser = subparsers.add_parser(
        "mirror", help="look up a site's files and images, serve them from here"
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    resolving.add_parser(verbs, made.found, locked.checked)
    inspecting.add_parser(verbs)
    contents_command.add_parser(verbs)
    packages.add_parser(verbs)
    made.add_parser(verbs)
    push_command.add_parser(verbs)
    for verb, text in VERBS.items():
        said = f"{text[:1].upper()}{text[1:]}."
        one = verbs.add_parser(verb, help=text, description=said)
        one.add_argument(
            "site", type=path_of, metavar="SITE", help="an Ansible inventory directory"
        )
        one.set_defaults(run=main)
        if verb == "status":
            add_output(one)
        if verb == "serve":
            for name, what in (("certificate", "with those it stands on"), ("key", "its key")):
                one.add_argument(
                    f"--{name}", type=path_of, metavar="FILE", help=f"for https: {what}, in PEM"
                )


def main(arguments: argparse.Namespace) -> int:
    """Run one verb; ``status`` ends with 1 when hosts are not served with all of the bill.

    Raises:
        BedplateError: the site has no mirror, it can't be started, or its lock is out of date.
    """
    site: Path = arguments.site
    address = _address(site)
    match arguments.verb:
        case "serve":
            mirror = _mirror(address, arguments.certificate, arguments.key)
            _refuse_other_contents(site, mirror.store)
            started = mirror.start()
            print(f"{address}: {'serving' if started else 'already serving'} {mirror.store.root}")
            return 0
        case "stop":
            name = service.find(address)
            stopped = service.stop(name) if name else []
            print(f"{address}: " + ("stopped" if stopped else "not running"))
            return 0
        case _:
            locked.checked(site)
            name = service.find(address)
            run = service.run_directory(name or address.name)
            healthy = service.healthy(run)
            wrong = _wrong(site, Store(cache() / "mirror"))
            if arguments.form != "table":
                lacking = [asdict(damage) for damage in wrong]
                state = {"address": str(address), "serving": healthy, "logs": str(run)}
                terminal.document(state | {"wrong": lacking}, arguments.form)
            else:
                print(f"{address}: {'serving' if healthy else 'not serving'}, logs in {run}")
                terminal.show(*map(str, wrong))
            return 0 if healthy and not wrong else 1


def _address(site: Path) -> Address:
    sources = load_lock(site).sources
    if sources.mode == "mirror" and sources.url:
        return Address.of(sources.url)
    if sources.registry is not None:
        raise MirrorError(
            "site has servers of its own, and no mirror that is served from here",
            str(site),
            f"bedplate_sources.registry {sources.registry}",
            "mode mirror, with its url",
            f"run: bedplate mirror push {site}",
        )
    raise MirrorError(
        "site has no mirror",
        str(site),
        f"bedplate_sources.mode {sources.mode}",
        "mode mirror, with its url",
        f"set bedplate_sources, and run: bedplate plan {site}",
    )


def _wrong(site: Path, store: Store) -> list[check.Damage]:
    """Return what of the site's bill is missing or has another size; none without a bill."""
    bill = load_bill(site)
    if bill is None:
        return []  # it is written from what the mirror serves
    places = Places(None, Places.hosts(catalogue_of(site)))
    return check.check(bill, store, places, sizes_only=True)


def _refuse_other_contents(site: Path, store: Store) -> None:
    if wrong := _wrong(site, store):
        more = f" and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
        raise MirrorError(
            "mirror does not hold what the site's bill lists",
            str(store.root),
            "; ".join(str(one) for one in wrong[:SHOWN]) + more,
            "every file and image of the bill",
            f"run: bedplate mirror fill {site}; where the mirror is right and the bill is not, "
            f"remove the bill and run: bedplate mirror resolve {site}",
        )


def _mirror(address: Address, certificate: Path | None, key: Path | None) -> service.Mirror:
    secure = address.scheme == "https"
    if secure != (certificate is not None) or secure != (key is not None):
        given = [f"--{name}" for name, one in (("certificate", certificate), ("key", key)) if one]
        raise MirrorError(
            "the address and the certificate do not go together",
            f"bedplate_sources.url {address}",
            " and ".join(given) or "no certificate",
            "--certificate and --key with https, neither with http",
            "name both, or have the site's address begin with http://",
        )
    for path in filter(None, (certificate, key)):
        if not path.is_file():
            raise MirrorError("no such file", str(path), "nothing", "a file in PEM", "name it")
    files = [path and path.absolute() for path in (certificate, key)]
    name = service.find(address) or address.name
    return service.Mirror(name, address.host, Store(cache() / "mirror"), address.port, *files)


def run(given: Sequence[str]) -> int:
    """Parse and run the words after ``bedplate mirror``."""
    top = argparse.ArgumentParser(prog="bedplate")
    add_parser(top.add_subparsers(required=True))
    options = top.parse_args(["mirror", *given])
    status: int = options.run(options)
    return status
