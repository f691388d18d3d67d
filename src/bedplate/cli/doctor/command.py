"""`bedplate doctor [SITE]`: all that this machine lacks, each with the command that fixes it."""

from __future__ import annotations

import getpass
import os
import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING

from bedplate.bill import needs_of
from bedplate.catalogue import catalogue_of
from bedplate.cli.doctor import hosts, machine
from bedplate.cli.doctor.finding import BOTH, Finding
from bedplate.common import terminal
from bedplate.common.errors import BedplateError
from bedplate.common.harmless import printable, without_secrets
from bedplate.common.refusals import as_problems
from bedplate.components.locked_site import artifacts, packages
from bedplate.resolver.plan import checked_lock
from bedplate.site.load import checked, raw_site
from bedplate.site.remaining import WrongSiteError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from bedplate.lock import Lock
    from bedplate.site import Site
    from bedplate.site.ansible_adapter import RawSite

OK, LACKING = 0, 2


def run(options: Namespace) -> int:
    """Check, print what was found, and return 0 where nothing is lacking, else 2."""
    found = list(_findings(options.site))
    lacking = [one for one in found if one.state == "LACKING"]
    if options.form != "table":
        content = {"ok": not lacking, "findings": [asdict(one) for one in found]}
        terminal.document(content, options.form)
    else:
        _show(found)
        print(f"\n{len(lacking)} lacking of {len(found)} checks.")
    return LACKING if lacking else OK


def _show(found: Sequence[Finding]) -> None:
    """Print a table, and below a row its command in one piece, to be copied."""
    first = max(len(one.check) for one in found)
    second = max(len(one.state) for one in found)
    for one in found:
        needed = f", needed by {one.needed_by}" if one.state == "LACKING" else ""
        row = (one.check.ljust(first), one.state.ljust(second), one.found + needed)
        terminal.show(terminal.table(None, [row]))
        if one.fix:
            terminal.show(f"    fix: {printable(one.fix)}")


def _findings(path: Path | None) -> Iterator[Finding]:
    if path is None:
        yield from machine.findings(None, cluster=True, gpgv=True, kubernetes=None)
        yield from machine.state_of(None)
        return
    inventory, raw, site = _inventory(path)
    lock, locked = None, [Finding("lock", "not checked", "the inventory cannot be used")]
    if inventory.state == "OK":
        lock, locked = _lock(path)
    cluster = site is None or bool(site.nodes)
    kubernetes = lock.cluster.kubernetes.version if lock and lock.cluster else None
    gpgv = lock is None or _verifies(path, lock)
    yield from machine.findings(path, cluster=cluster, gpgv=gpgv, kubernetes=kubernetes)
    if cluster:
        yield from machine.state_of(path)
    yield from (inventory, *locked)
    if path.is_dir():
        yield _writable(path)
    if raw is None or site is None:
        yield Finding("hosts", "not checked", "the inventory cannot be used")
        return
    yield from hosts.names(site)
    of_name = {host.name: host for host in raw.hosts}
    reached = [(of_name[name], host.connection) for name, host in sorted(site.hosts.items())]
    yield from hosts.findings(reached)


def _problem(check: str, error: BedplateError, needed_by: str, fix: str = "") -> Finding:
    """Return the first problem; its own fix where no command is given."""
    first, *more = error.problems
    found = f"{without_secrets(f'{first.where}: ' * bool(first.where) + first.what)}"
    found += f", and {len(more)} more" if more else ""
    return Finding(check, "LACKING", found, needed_by, fix or first.fix.removeprefix("run: "))


def _inventory(path: Path) -> tuple[Finding, RawSite | None, Site | None]:
    raw = site = None
    try:
        with as_problems():
            raw = raw_site(path)
            site = checked(path, raw)
    except BedplateError as error:
        # Of a site with mistakes in its settings, the hosts can be looked at.
        site = error.site if isinstance(error, WrongSiteError) else None
        fix = f"bedplate plan {shlex.quote(str(path))}" if len(error.problems) > 1 else ""
        return _problem("inventory", error, BOTH, fix), raw, site
    return Finding("inventory", "OK", f"{len(site.hosts)} hosts", BOTH), raw, site


def _lock(path: Path) -> tuple[Lock | None, list[Finding]]:
    """Read the lock and what goes with it, as plays and stacks do before they change anything."""
    lock, check, found = None, "lock", list[Finding]()
    try:
        with as_problems():
            lock = checked_lock(path)
            found.append(Finding(check, "OK", "up to date", BOTH))
            check = "bill"
            artifacts(path, lock)
            packages(path, lock)
            found.append(Finding(check, "OK", "up to date", BOTH))
    except BedplateError as error:
        found.append(_problem(check, error, BOTH))
    return lock, found


def _verifies(path: Path, lock: Lock) -> bool:
    """Tell whether `bedplate mirror` verifies signatures: of packages that the lock needs."""
    needs = needs_of(lock, catalogue_of(path))
    packed = any(file.artifact.package for file in needs.files.values())
    return bool(packed or needs.packages or lock.sources.mirrors_packages)


def _writable(path: Path) -> Finding:
    needed_by = "bedplate plan and all that writes evidence"
    folders = [str(one) for one in (path, path / ".bedplate") if one.is_dir()]
    if not (closed := [one for one in folders if not os.access(one, os.W_OK | os.X_OK)]):
        return Finding("site", "OK", "is writable", needed_by)
    fix = f"sudo chown -R {shlex.quote(getpass.getuser())} {shlex.join(closed)}"
    return Finding("site", "LACKING", f"{', '.join(closed)} is not writable", needed_by, fix)
