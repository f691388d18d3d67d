"""`bedplate usage SITE`: GPU-hours and share-hours by user, course, team or queue."""

from __future__ import annotations

import csv
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from bedplate.accounting import recorder
from bedplate.accounting.book import Book, lines, read_lines
from bedplate.accounting.records import written
from bedplate.accounting.store import Store
from bedplate.accounting.units import capacity, units
from bedplate.accounting.usage import Row, Window, path_in, reasons, rows, window_of
from bedplate.catalogue import catalogue_of
from bedplate.common import kubeconfig, reading, terminal
from bedplate.common.errors import Problem, SiteError
from bedplate.lock import load_lock
from bedplate.lock.file import write_text
from bedplate.pods.api import Api, ApiError
from bedplate.pods.kubeaccess import AccessError, access_of

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from bedplate.accounting.records import Units
    from bedplate.lock import Lock

#: Bytes of records: millions of them.
MOST = 1 << 32
COLUMNS = (
    *("name", "gpu_hours", "share_hours", "not_placed", "workloads", "running"),
    *("idle_gpu_hours", "no_figure_gpu_hours"),
)
#: Reasons for missing figures that are printed.
REASONS = 5
#: GPU-hours below which nothing is known: what is left of sums that are none.
SOME = 1e-6
#: Seconds for an answer: a page of 500 Workloads comes from a busy API server too.
PATIENCE = 60.0


def run(options: Namespace) -> int:
    """Read the records, keep them in the site, and print the sums.

    Raises:
        BedplateError: lock, kubeconfig or records cannot be read, or the API does not answer.
    """
    site: Path = options.site
    lock, catalogue = load_lock(site), catalogue_of(site)
    now = int(time.time())
    since, until = _moment("--since", options.since), _moment("--until", options.until)
    book = read(site)
    if not options.offline:
        with access_of(kubeconfig.path_in(site)) as entry:
            merge(Api(entry.access, PATIENCE), book, units(lock, catalogue), now)
        write_text(path_in(site), lines(book))
    found = list(book)
    window = window_of(found, since, until, now)
    _show(
        options,
        capacity(lock, catalogue),
        rows(found, window, options.by, courses(lock)),
        window,
        reasons(found, window),
    )
    return 0


def read(site: Path) -> Book:
    """Return the records that the site keeps; none where there are none yet."""
    path = path_in(site)
    try:
        return Book(read_lines(reading.content(path, MOST).decode()))
    except FileNotFoundError:
        return Book()
    except (OSError, ValueError) as error:
        fix = "restore it, or move it away: what the cluster still knows is read again"
        problem = Problem("records cannot be read", str(path), got=str(error), fix=fix)
        raise SiteError([problem]) from error


def merge(api: Api, book: Book, known: Units, now: int) -> None:
    """Add what the recorder has kept, and what all Workloads say now.

    Raises:
        AccessError: the API refuses, or does not answer.
    """
    try:
        book.add(Store(api).everything())
        alive, _ = recorder.look(api, book, known, now)
    except ApiError as error:
        fix = "see that the cluster is up and has Kueue, and that you may list its Workloads"
        problem = Problem("usage cannot be read", "the cluster's API", got=str(error), fix=fix)
        raise AccessError([problem]) from error
    # What is gone ended after it was last seen: without a recorder nobody knows when.
    book.lose(alive, 0)


def courses(lock: Lock) -> list[str]:
    """Return the names of the courses; each has a queue of its name."""
    return sorted(lock.courses)


def _moment(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
        found = (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        fix = "write a date, or a date with a time"
        allowed = "YYYY-MM-DD[THH:MM[:SS][+HH:MM]]"
        problem = Problem("no time", key=option, got=text, allowed=allowed, fix=fix)
        raise SiteError([problem]) from error
    return int(found.timestamp())


def _show(
    options: Namespace, gpus: float, found: list[Row], window: Window, why: list[str]
) -> None:
    total = gpus * window.hours
    used = sum(row.gpu_hours for row in found)
    if options.form == "csv":
        table = csv.writer(sys.stdout, lineterminator="\n")
        table.writerow((options.by, *COLUMNS[1:]))
        table.writerows(_cells(row) for row in found)
        return
    if options.form != "table":
        content = {
            "since": written(window.start),
            "until": written(window.end),
            "by": options.by,
            "rows": [dict(zip(COLUMNS, _values(row), strict=True)) for row in found],
            "gpu_hours": round(used, 6),
            "offered_gpu_hours": round(total, 6),
            "not_allocated_gpu_hours": round(total - used, 6),
            "idle_gpu_hours": round(idle_of(found), 6) if measured_of(found) >= SOME else None,
            "measured_gpu_hours": round(measured_of(found), 6),
            "no_figure": why,
        }
        terminal.document(content, options.form)
        return
    head = (options.by, "GPU-hours", "idle", "no figure", "share-hours", "workloads", "running")
    body = [
        (
            row.name,
            *(f"{one:.2f}" for one in (row.gpu_hours, row.idle, row.no_figure, row.share_hours)),
            row.workloads,
            row.running,
        )
        for row in found
    ]
    right = range(1, len(head))
    listed = terminal.table(head, body, right) if body else "No workload held a GPU."
    share = f" ({(total - used) / total:.0%})" if total else ""
    terminal.show(
        f"From {written(window.start)} to {written(window.end)}, {window.hours:.2f} hours:",
        "",
        listed,
        "",
        f"GPU-hours in all: {used:.2f} of {total:.2f} that the lock's nodes offer.",
        f"Not allocated: {total - used:.2f}{share}.",
        idle_line(found),
        *(f"No figure: {one}." for one in why[:REASONS]),
        *([f"No figure: {len(why) - REASONS} more."] if len(why) > REASONS else []),
    )


def idle_of(found: Iterable[Row]) -> float:
    """Return the GPU-hours in which GPUs were allocated and not used, as far as that is known."""
    return sum(row.idle for row in found)


def measured_of(found: Iterable[Row]) -> float:
    """Return the GPU-hours of which it is known whether the GPU was used."""
    return sum(max(0.0, row.gpu_hours - row.no_figure) for row in found)


def idle_line(found: Sequence[Row]) -> str:
    """Return the sentence about what was allocated and idle."""
    known = measured_of(found)
    if known < SOME:
        where = "the recorder asks the nodes' readers in sites with a hub"
        return f"Allocated and idle: unknown, there is no figure yet: {where}."
    idle = idle_of(found)
    return f"Allocated and idle: {idle:.2f} ({idle / known:.0%} of {known:.2f} with a figure)."


def _values(row: Row) -> tuple[str | float | int, ...]:
    hours = (row.gpu_hours, row.share_hours, row.not_placed)
    figures = (row.idle, row.no_figure)
    return (
        row.name,
        *(round(one, 6) for one in hours),
        row.workloads,
        row.running,
        *(round(one, 6) for one in figures),
    )


def _cells(row: Row) -> tuple[str | float | int, ...]:
    """Return the values; a name that a spreadsheet would compute is text."""
    name, *more = _values(row)
    return (f"'{name}" if str(name)[:1] in "=+-@" else name, *more)
