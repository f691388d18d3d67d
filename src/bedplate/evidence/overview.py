"""What the report's first screen says: failures by check, and how each pool is."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bedplate.evidence.model import Result

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bedplate.evidence.model import Evidence
    from bedplate.evidence.report import HostRow, Report

#: What is no check, yet counts as a failure; each with its fix.
MISSING = ("no evidence", "the host was never verified", "Run the site's playbook.")
STALE = (
    "evidence of another lock",
    "it was verified under another lock than the present one",
    "Run the site's playbook again.",
)
EMPTY = ("evidence without a check", "nothing was looked at", "Run the site's playbook again.")


@dataclass(frozen=True)
class Failure:
    """A check that failed, and everywhere that it failed.

    Attributes:
        check: its id, or what is missing.
        what: what it is about.
        subjects: names of hosts, `cluster` or `preflight`.
        reason: the first subject's.
        fix: the first subject's.
    """

    check: str
    what: str
    subjects: Sequence[str]
    reason: str
    fix: str


@dataclass(frozen=True)
class PoolRow:
    """How many hosts of a pool have which verdict. Hosts in no pool have the name None."""

    name: str | None
    hosts: int
    counts: Counter[str]


def _of(evidence: Evidence | None, *, stale: bool) -> Iterator[tuple[str, str, str, str]]:
    if evidence is None:
        yield MISSING[0], MISSING[1], "", MISSING[2]
    elif stale:
        yield STALE[0], STALE[1], "", STALE[2]
    elif not evidence.checks:
        yield EMPTY[0], EMPTY[1], "", EMPTY[2]
    else:
        for check in evidence.checks:
            if check.result is Result.FAIL:
                yield check.id, check.what, check.reason, check.fix


def failures(report: Report) -> list[Failure]:
    """Return what failed, by check: what most hosts have in common comes first."""
    subjects = [(row.name, row.evidence, row.stale) for row in report.hosts]
    if report.cluster is not None:
        subjects.append(("cluster", report.cluster, report.cluster_stale))
    if report.preflight is not None:
        subjects.append(("preflight", report.preflight, False))
    found: dict[str, tuple[str, str, str, list[str]]] = {}
    for name, evidence, stale in subjects:
        for check, what, reason, fix in _of(evidence, stale=stale):
            found.setdefault(check, (what, reason, fix, []))[3].append(name)
    rows = [
        Failure(check, what, tuple(dict.fromkeys(names)), reason, fix)
        for check, (what, reason, fix, names) in found.items()
    ]
    return sorted(rows, key=lambda row: (-len(row.subjects), row.check))


def pools(report: Report) -> list[PoolRow]:
    """Return the pools, those with most failed hosts first."""
    names = dict.fromkeys([*report.lock.pools, *(row.pool for row in report.hosts)])
    rows = []
    for name in names:
        hosts = [row for row in report.hosts if row.pool == name]
        rows.append(PoolRow(name, len(hosts), Counter(row.result.value for row in hosts)))
    return sorted(rows, key=lambda row: (-row.counts[Result.FAIL.value], row.name or "~"))


def by_verdict(rows: Sequence[HostRow]) -> list[HostRow]:
    """Return the hosts, those that failed first."""
    return sorted(rows, key=lambda row: row.result is not Result.FAIL)
