"""`bedplate plan SITE`: decide, show, write the lock."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from bedplate.errors import BedplateError, LockError, Problem
from bedplate.lock import content_of, load_lock, write_lock
from bedplate.planning.changes import host_changes, shown
from bedplate.planning.plan import plan

if TYPE_CHECKING:
    from argparse import Namespace
    from datetime import date
    from pathlib import Path

    from bedplate.lock.model import Pool
    from bedplate.planning.plan import Planned

OK, STALE, REFUSED = 0, 2, 3


def run(options: Namespace, today: date) -> int:
    """Plan a site as the command line asks, and return the exit status.

    Returns:
        0 planned or in step, 2 a stale lock under `--check`, 3 refused.
    """
    site: Path = options.site
    try:
        planned = plan(site, today, upgrade=options.upgrade)
        written = False
        if options.diff and planned.unread:
            raise planned.unread  # against nothing, every host would be installed
        if not (options.check or options.diff):
            written = _write(site, planned)
        elif options.check and planned.before is None:
            load_lock(site)
    except BedplateError as error:
        return _refused(error, options)
    stale = options.check and not planned.in_step
    if options.json:
        content: dict[str, Any] = {
            "ok": not stale,
            "lock": content_of(planned.plan.lock),
            "refusals": [],
            "warnings": list(planned.plan.warnings),
        }
        if options.diff:
            changes = host_changes(planned.before, planned.plan.lock)
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
        print(json.dumps(content))
    elif options.diff:
        print("\n".join(_difference(site, planned)))
    else:
        print(_table(site, planned, check=options.check, written=written))
    return STALE if stale else OK


def _refused(error: BedplateError, options: Namespace) -> int:
    stale = options.check and isinstance(error, LockError)
    if options.json:
        refusals = [problem.as_json() for problem in error.problems]
        print(json.dumps({"ok": False, "lock": None, "refusals": refusals, "warnings": []}))
    else:
        for problem in error.problems:
            print(problem, file=sys.stderr)
            after = f", after {', '.join(problem.sources)}" if problem.sources else ""
            print(f"  rule {problem.rule}{after}", file=sys.stderr)
        if not stale:
            print(f"\nRefused: {len(error.problems)} to put right.", file=sys.stderr)
    return STALE if stale else REFUSED


def _write(site: Path, planned: Planned) -> bool:
    try:
        return write_lock(site, planned.plan.lock)
    except OSError as error:
        what, fix = "lock cannot be written", "make the site's directory writable"
        raise LockError([Problem(what, str(site), got=str(error), fix=fix, rule="lock")]) from error


def _difference(site: Path, planned: Planned) -> list[str]:
    if planned.in_step:
        return [f"{site}/.bedplate.lock.yml is in step: nothing would change."]
    lock = planned.plan.lock
    known = (planned.before.hosts if planned.before else {}) | lock.hosts
    pools = {name: host.pool for name, host in known.items()}
    lines = shown(host_changes(planned.before, lock), pools)
    lines = lines or ["No host changes."]
    if planned.changes:
        lines += ["", "In the lock:", *(f"  {change}" for change in planned.changes)]
    return [*lines, "", f"Nothing was written. To lock this: bedplate plan {site}"]


def _table(site: Path, planned: Planned, *, check: bool, written: bool) -> str:
    lock = planned.plan.lock
    rows = [("WHERE", "COMPONENT", "VERSION")]
    for name, part in content_of(lock)["cluster"].items():
        if name == "not_yet":
            continue  # a warning tells of it
        for one in part if isinstance(part, list) else [part]:
            shown_as = one.get("name", name) if isinstance(part, list) else name
            rows.append(("cluster", shown_as, one.get("version", one.get("source", ""))))
    for name, pool in lock.pools.items():
        hosts = sum(host.pool == name for host in lock.hosts.values())
        rows += [(name, component, told) for component, told in _pool_rows(pool, hosts)]
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


def _pool_rows(pool: Pool, hosts: int) -> list[tuple[str, str]]:
    boards = ", ".join(f"{gpu.count} {gpu.model}" for gpu in pool.gpu)
    rows = []
    if boards:
        rows.append(("gpu", f"{boards} in each of {hosts} hosts"))
    if (other := pool.accelerator) is not None:
        rows.append(("accelerator", f"{other.count} {other.model} in each of {hosts} hosts"))
        rows.append(("device_plugin", other.device_plugin.version))
    if (driver := pool.nvidia_driver) is not None:
        rows.append(("nvidia_driver", f"{driver.version} {driver.flavour}, {driver.source}"))
    if pool.nvidia_fabric is not None:
        rows.append(("nvidia_fabric", pool.nvidia_fabric.version))
    if pool.vgpu is not None:
        cards = len(pool.vgpu.cards)
        rows.append(("vgpu_manager", f"{pool.vgpu.manager}, shares {cards} in each host"))
    rows += [("cuda_toolkit", version) for version in pool.cuda_toolkit]
    rows += [(one.name, f"{one.version} {one.variant}") for one in pool.frameworks]
    if pool.sharing.mode != "none":
        how = pool.sharing.profile or f"{pool.sharing.replicas} a card"
        rows.append(("sharing", f"{pool.sharing.mode}, {how}"))
    if pool.rdma is not None:
        rows.append(("rdma", f"{pool.rdma.stack}, {pool.rdma.method}"))
    return rows
