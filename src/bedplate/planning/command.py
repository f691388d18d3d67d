"""`bedplate plan SITE`: decide, show, write the lock."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from bedplate.common import terminal
from bedplate.common.errors import BedplateError, LockError, Problem
from bedplate.common.refusals import as_problems
from bedplate.lock import content_of, load_lock, write_lock
from bedplate.planning import screen
from bedplate.planning.changes import host_changes
from bedplate.planning.hub import with_certificate
from bedplate.resolver.plan import plan

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable
    from datetime import date
    from pathlib import Path

    from bedplate.planning.changes import Installed
    from bedplate.resolver.plan import Planned

OK, STALE, REFUSED, NOT_INSTALLABLE = 0, 2, 3, 4


def run(options: Namespace, today: date, installed: Callable[[Path, Planned], Installed]) -> int:
    """Plan a site as the command line asks, and return the exit status.

    Args:
        installed: returns what the site's hosts have; asked with `--diff` alone.

    Returns:
        0 planned or up to date, 2 a lock that is out of date under `--check`, 3 refused, 4 planned
        and not installable by this version (0 under `--allow-planned`).
    """
    site: Path = options.site
    try:
        with as_problems():
            planned = plan(site, today, upgrade=options.upgrade)
            planned = with_certificate(planned, site, today)
            has = installed(site, planned) if options.diff and not planned.unread else None
            written = False
            if options.diff and planned.unread:
                raise planned.unread  # against nothing, every host would be installed
            if not (options.check or options.diff):
                written = _write(site, planned)
            elif options.check and planned.before is None:
                load_lock(site)
    except BedplateError as error:
        return _refused(error, options)
    status = _status(planned, options)
    if options.form != "table":
        terminal.document(_content(planned, status, has), options.form)
    elif has is not None:
        print(screen.difference(site, planned, has))
    else:
        check, why = options.check, options.why
        terminal.show(*screen.parts(site, planned, check=check, written=written, why=why))
    return status


def _status(planned: Planned, options: Namespace) -> int:
    if options.check and not planned.up_to_date:
        return STALE
    if planned.plan.not_installable and not options.allow_planned:
        return NOT_INSTALLABLE
    return OK


def _content(planned: Planned, status: int, has: Installed | None) -> dict[str, Any]:
    content: dict[str, Any] = {
        "ok": status == OK,
        "lock": content_of(planned.plan.lock),
        "refusals": [],
        "not_installable": [problem.as_json() for problem in planned.plan.not_installable],
        "warnings": list(planned.plan.warnings),
    }
    if has is not None:
        changes = host_changes(planned.before, planned.plan.lock, has.parts)
        content["diff"] = {
            host: [
                {
                    "component": one.component,
                    "before": one.before,
                    "after": one.after,
                    "effects": list(one.effects),
                }
                for one in its
            ]
            for host, its in changes.items()
        }
    return content


def _refused(error: BedplateError, options: Namespace) -> int:
    stale = options.check and isinstance(error, LockError)
    if options.form != "table":
        refusals = [problem.as_json() for problem in error.problems]
        content = {"ok": False, "lock": None, "refusals": refusals, "not_installable": []}
        terminal.document({**content, "warnings": []}, options.form)
    else:
        for problem in error.problems:
            terminal.refuse(problem)
            source = f", source {', '.join(problem.sources)}" if problem.sources else ""
            print(f"  rule {problem.rule}{source}", file=sys.stderr)
        if not stale:
            errors = "1 error" if len(error.problems) == 1 else f"{len(error.problems)} errors"
            terminal.show("", terminal.styled(f"{errors}; no lock was written.", "red"), error=True)
    return STALE if stale else REFUSED


def _write(site: Path, planned: Planned) -> bool:
    try:
        return write_lock(site, planned.plan.lock)
    except OSError as error:
        what, fix = "lock cannot be written", "make the site's directory writable"
        raise LockError([Problem(what, str(site), got=str(error), fix=fix, rule="lock")]) from error
