"""The command line: what neither ansible-playbook nor pulumi does already."""

from __future__ import annotations

import argparse
import json
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from bedplate.errors import BedplateError, LockError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bedplate.lock import Lock
    from bedplate.planning import Planned

OK, BUG, STALE, REFUSED = 0, 1, 2, 3
EPILOG = "Exit status: 0 planned or in step, 2 stale lock (--check), 3 refused, 1 a bug."


def _today(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"got {text!r}, allowed YYYY-MM-DD") from error


def parser(*, with_mirror: bool = False) -> argparse.ArgumentParser:
    """Return the parser of `bedplate`; the mirror brings its own part when it is asked for."""
    top = argparse.ArgumentParser(
        prog="bedplate",
        description="Bare metal in, GPU cluster out: decide once what goes together.",
        epilog="Hosts are changed by ansible-playbook and clusters by pulumi; both read the lock.",
    )
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    plan = commands.add_parser(
        "plan",
        help="decide every version and write SITE/.bedplate.lock.yml",
        description="Decide every version of a site and write SITE/.bedplate.lock.yml, or refuse. "
        "No host is contacted.",
        epilog=EPILOG,
    )
    plan.add_argument("site", type=Path, metavar="SITE", help="an Ansible inventory directory")
    plan.add_argument("--json", action="store_true", help="print one JSON object")
    plan.add_argument("--check", action="store_true", help="write nothing; 2 if the lock is stale")
    plan.add_argument(
        "--today",
        type=_today,
        metavar="DATE",
        help="the date that end-of-life warnings are about (default: the clock's)",
    )
    report = commands.add_parser(
        "report",
        help="evidence to SITE/.bedplate/report.html and junit.xml",
        description="Put the evidence of the verify steps into one HTML page and JUnit XML.",
    )
    report.add_argument("site", type=Path, metavar="SITE", help="an Ansible inventory directory")
    if with_mirror:
        from bedplate.mirror import command

        command.add_parser(commands)
    else:
        commands.add_parser("mirror", help="look after a site's mirror", add_help=False)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["mirror"]:
        asked = parser(with_mirror=True).parse_args(given)
        return _told(lambda: int(asked.run(asked)))
    options = parser().parse_args(given)
    if options.command == "report":
        from bedplate.evidence import command as report

        return _told(lambda: report.run(options.site))
    today = options.today or datetime.now(UTC).date()
    return _plan(options.site, today, as_json=options.json, check=options.check)


def _told(run: Callable[[], int]) -> int:
    try:
        return run()
    except BedplateError as error:
        print(error, file=sys.stderr)
        return REFUSED


def _plan(site: Path, today: date, *, as_json: bool, check: bool) -> int:
    from bedplate.lock import load_lock, write_lock
    from bedplate.planning import plan

    try:
        planned = plan(site, today)
        written = False
        if not check:
            written = _write(site, planned, write_lock)
        elif planned.before is None:
            load_lock(site)
    except BedplateError as error:
        stale = check and isinstance(error, LockError)
        if as_json:
            refusals = [problem.as_json() for problem in error.problems]
            print(json.dumps({"ok": False, "lock": None, "refusals": refusals, "warnings": []}))
        else:
            print(error, file=sys.stderr)
            if not stale:
                print(f"\nRefused: {len(error.problems)} to put right.", file=sys.stderr)
        return STALE if stale else REFUSED
    stale = check and not planned.in_step
    if as_json:
        content = {
            "ok": not stale,
            "lock": planned.plan.lock.model_dump(mode="json"),
            "refusals": [],
            "warnings": list(planned.plan.warnings),
        }
        print(json.dumps(content))
    else:
        print(_table(site, planned, check=check, written=written))
    return STALE if stale else OK


def _write(site: Path, planned: Planned, write: Callable[[Path, Lock], bool]) -> bool:
    from bedplate.errors import Problem

    try:
        return write(site, planned.plan.lock)
    except OSError as error:
        what, fix = "lock cannot be written", "make the site's directory writable"
        raise LockError([Problem(what, str(site), got=str(error), fix=fix)]) from error


def _table(site: Path, planned: Planned, *, check: bool, written: bool) -> str:
    lock = planned.plan.lock
    rows = [("WHERE", "COMPONENT", "VERSION")]
    for name, part in lock.cluster.model_dump(mode="json").items():
        rows.append(("cluster", name, part.get("version", part.get("source", ""))))
    for name, pool in lock.pools.items():
        hosts = sum(host.pool == name for host in lock.hosts.values())
        gpus = ", ".join(f"{gpu.count} {gpu.model}" for gpu in pool.gpu)
        rows.append((name, "gpu", f"{gpus} in each of {hosts} hosts"))
        if (driver := pool.nvidia_driver) is not None:
            told = f"{driver.version} {driver.flavour}, {driver.source}"
            rows.append((name, "nvidia_driver", told))
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    lines = [f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c}" for a, b, c in rows]
    lines += ["", "Why:"]
    lines += [f"  {r.subject} {r.component} {r.decided}: {r.because}" for r in planned.plan.reasons]
    if planned.plan.warnings:
        lines += ["", "Warnings:", *(f"  {warning}" for warning in planned.plan.warnings)]
    if planned.changes:
        lines += ["", "Changes:", *(f"  {change}" for change in planned.changes)]
    path = f"{site}/.bedplate.lock.yml"
    if planned.in_step:
        end = f"{path} is in step."
    elif check:
        end = f"{path} is stale — run: bedplate plan {site}"
    else:
        end = f"Wrote {path}." if written else f"{path} is in step."
    return "\n".join([*lines, "", end])


if __name__ == "__main__":
    sys.exit(main())
