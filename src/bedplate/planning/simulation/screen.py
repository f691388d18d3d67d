"""The table that `bedplate simulate` prints."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from bedplate.common.terminal import table
from bedplate.planning.simulation.figures import FORMULA
from bedplate.planning.simulation.jobs import span

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.table import Table

    from bedplate.planning.simulation.figures import Report
    from bedplate.planning.simulation.supply import Policy

WIDTH = 100
JOBS = ("JOB", "JOBS", "ASKS FOR", "STARTED", "STOPPED", "IN", "WAIT: MEAN", "LONGEST")
POOLS = ("POOL", "GPUS", "IN USE: MEAN", "MOST", "GIVES")
WAYS = ("POOL", "MODE", "SETTING", "AT ONCE", "NEVER", "MEMORY", "REMARK")


def parts(report: Report) -> list[str | Table]:
    """Return what is printed."""
    lines: list[str | Table] = [*summary(report), "", table(JOBS, job_rows(report))]
    if reasons := list(_reasons(report)):
        lines += ["", "Why they wait:", *reasons]
    lines += ["", table(POOLS, pool_rows(report)), "", *_wrapped(fragmentation(report))]
    lines += _wrapped(f"Formula: {FORMULA}.", "  ")
    lines += ["", "Another sharing mode, the same jobs at once, without quotas:"]
    lines.append(table(WAYS, way_rows(report)))
    if report.supply.notes:
        lines += ["", *(line for note in report.supply.notes for line in _wrapped(note))]
    return lines


def summary(report: Report) -> list[str]:
    """Return the figures of the whole in a few sentences."""
    jobs, fit, most = report.jobs, report.fit, report.most_running
    lines = [f"{jobs} jobs on {report.site}, {policy(report.supply.policy)}."]
    proved = "" if fit.proved else " (the search for more was stopped at its limit)"
    lines.append(f"At once, in the best order: {fit} of {jobs}{proved}.")
    if most is not None:
        lines.append(
            f"Over time: at most {most.running} at once (at {span(most.time)}), "
            f"{jobs - report.never} started, {report.never} never; last change at "
            f"{span(report.outcome.end)}."
        )
    return lines


def policy(of: Policy) -> str:
    """Return how the queue is worked off."""
    order = "strict order" if of.strict else "best-effort order"
    fair = ", fair sharing" if of.fair else ""
    placed = {"gradient": "placed by the extender"}.get(of.place, of.place)
    if not of.named:
        return f"without schedulers: {order}, {placed}"
    return f"preset {of.named}: {order}{fair}, {placed}"


def fragmentation(report: Report) -> str:
    """Return the figures of fragmentation in a sentence."""
    lost = report.fragmentation
    return (
        f"Fragmentation: {lost.mean:.1f} of {lost.mean_free:.1f} free GPUs on average, at most "
        f"{lost.most:.1f} of {lost.most_free:.1f} (at {span(lost.most_at)}), are in pieces too "
        "small for the jobs."
    )


def job_rows(report: Report) -> list[tuple[str, ...]]:
    """Return a row for each row of the file."""
    return [
        (
            one.row.name,
            str(one.row.count),
            str(one.row.request),
            str(one.started),
            str(one.evictions),
            ", ".join(one.pools) or "-",
            span(round(one.mean_wait)),
            span(one.longest_wait) if one.started == one.row.count else "without end",
        )
        for one in report.by_row
    ]


def pool_rows(report: Report) -> list[tuple[str, ...]]:
    """Return a row for each pool."""
    return [
        (
            one.name,
            str(one.gpus),
            f"{100 * one.mean / one.gpus:.0f} %",
            f"{100 * one.most / one.gpus:.0f} %",
            one.gives,
        )
        for one in report.pools
    ]


def way_rows(report: Report) -> list[tuple[str, ...]]:
    """Return a row for each sharing mode of each pool."""
    return [
        (
            one.pool,
            one.mode,
            one.setting or "-",
            str(one.fit) if one.fit else "-",
            str(one.fit.impossible) if one.fit else "-",
            one.memory or "-",
            one.remark,
        )
        for one in report.ways
    ]


def reasons(report: Report) -> list[tuple[str, str]]:
    """Return the rows that waited, each with what held it longest."""
    return [
        (f"{one.row.name} ({one.waited} of {one.row.count})", one.why)
        for one in report.by_row
        if one.why
    ]


def _reasons(report: Report) -> Iterator[str]:
    for name, why in reasons(report):
        yield from _wrapped(f"{name}: {why}", "  ")


def _wrapped(text: str, indent: str = "") -> list[str]:
    after = f"{indent}  "
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=after,
        break_on_hyphens=False,
        break_long_words=False,
    )
