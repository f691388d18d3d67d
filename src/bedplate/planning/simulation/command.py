"""`bedplate simulate SITE JOBS.csv`: what runs, what waits and why, before anyone submits it."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from bedplate.catalogue import catalogue_of
from bedplate.common import terminal
from bedplate.common.errors import Problem, SiteError
from bedplate.lock.file import write_text
from bedplate.planning.simulation import screen
from bedplate.planning.simulation.figures import Report, content
from bedplate.planning.simulation.fit import best_fit
from bedplate.planning.simulation.jobs import mib, read_jobs
from bedplate.planning.simulation.modes import Asked, other_ways
from bedplate.planning.simulation.of_lock import supply_of
from bedplate.planning.simulation.run import simulate
from bedplate.resolver.plan import checked_lock
from bedplate.site import load_site

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence
    from pathlib import Path


ALL_START, SOME_DO_NOT = 0, 2
NODE = re.compile(r"(?P<pool>[^=]+)=(?P<cpus>[0-9]{1,5}):(?P<memory>[^:=]+)")


def run(options: Namespace) -> int:
    """Simulate the jobs of a file on a site, and print or write what came of it.

    Returns:
        0 when every job starts, 2 when some never do.

    Raises:
        BedplateError: the lock is missing or stale, or the file or an option is wrong.
    """
    site: Path = options.site
    report = simulated(site, options.jobs, options.node)
    if options.output is not None:
        from bedplate.planning.simulation import page

        _write(options.output, page.render(report))
    if options.form != "table":
        terminal.document(content(report), options.form)
    else:
        terminal.show(*screen.parts(report))
        if options.output is not None:
            print(f"\nWrote {options.output}.")
    return SOME_DO_NOT if report.never else ALL_START


def simulated(site: Path, file: Path, nodes: Sequence[str]) -> Report:
    """Return the simulation of a file of jobs on a site."""
    lock = checked_lock(site)
    catalogue = catalogue_of(site)
    sizes = _sizes(nodes, sorted(lock.pools))
    supply = supply_of(lock, catalogue, sizes)
    rows = read_jobs(file, supply.pools, sorted(supply.teams))
    today = datetime.now(UTC).date()  # touches the plan's warnings alone, and none is shown
    asked = Asked(load_site(site), lock, catalogue, today, supply, rows, sizes)
    return Report(
        site.resolve().name,
        str(file),
        supply,
        rows,
        simulate(supply, rows),
        best_fit(supply, rows),
        other_ways(asked),
    )


def _sizes(nodes: Sequence[str], pools: Sequence[str]) -> dict[str, tuple[int, int]]:
    found, problems = {}, []
    for text in nodes:
        match = NODE.fullmatch(text)
        memory = mib(match["memory"]) if match is not None else None
        if match is None or memory is None or match["pool"] not in pools:
            problems.append(
                Problem(
                    "no size of a pool's nodes",
                    key="--node",
                    got=text,
                    allowed=f"POOL=CPUS:MEMORY, as pool_a=64:512Gi, with one of {', '.join(pools)}",
                    fix="correct the option",
                    rule="jobs",
                )
            )
        else:
            found[match["pool"]] = (int(match["cpus"]) * 1000, memory)
    if problems:
        raise SiteError(problems)
    return found


def _write(path: Path, page: str) -> None:
    try:
        write_text(path, page)
    except OSError as error:
        what, fix = "page cannot be written", "name a file in a folder that can be written"
        raise SiteError([Problem(what, str(path), got=str(error), fix=fix, rule="jobs")]) from error
