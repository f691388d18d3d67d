"""What a report is of, and its first screen: failures by check, and how each pool is."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bedplate.common.evidence_file import Result
from bedplate.lock.sharing_line import sharing_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bedplate.accounting.summary import Summary
    from bedplate.common.evidence_file import Evidence
    from bedplate.evidence.drift import HostDrift
    from bedplate.lock import Lock

#: What is no check, yet counts as a failure; each with its fix.
MISSING = ("no evidence", "the host was never verified", "Run the site's playbook.")
STALE = (
    "evidence of another lock",
    "it was verified under another lock than the present one",
    "Run the site's playbook again.",
)
EMPTY = ("evidence without a check", "nothing was looked at", "Run the site's playbook again.")


#: What a run leaves on a host on which it has not come to its end, or whose driver it took back.
SET_ASIDE = ("site.finished", "host.reachable", "host.read", "driver.kept")
#: The same in the cluster's evidence, of a node that upgrade.yml keeps closed.
CLOSED = re.compile(r"node\.(?P<name>.+)\.in_service")


@dataclass(frozen=True)
class HostRow:
    """One host of the lock beside its evidence, which may be missing or of another lock."""

    name: str
    pool: str | None
    address: str
    evidence: Evidence | None
    stale: bool

    @property
    def set_aside(self) -> str:
        """Why a run has set the host aside; empty where none has."""
        checks = self.evidence.checks if self.evidence is not None else ()
        failed = (c for c in checks if c.id in SET_ASIDE and c.result is Result.FAIL)
        return next((check.reason for check in failed), "")

    @property
    def result(self) -> Result:
        """Missing evidence and evidence of another lock both count as a failure."""
        if self.evidence is None or self.stale:
            return Result.FAIL
        return self.evidence.result


@dataclass(frozen=True)
class Report:
    """Everything that the page shows."""

    site: str
    lock: Lock
    wishes: Mapping[str, Mapping[str, Any]]
    hosts: Sequence[HostRow]
    cluster: Evidence | None
    cluster_stale: bool = False
    strangers: Sequence[Evidence] = field(default=())
    drift: Sequence[HostDrift] = field(default=())
    usage: Summary | None = None
    preflight: Evidence | None = None

    @property
    def set_aside(self) -> Mapping[str, str]:
        """Hosts that a run has set aside, each with its reason.

        Also nodes that are whole again and still closed: nothing but upgrade.yml gives them back.
        """
        known = self.cluster is not None and not self.cluster_stale
        checks = self.cluster.checks if self.cluster is not None and known else ()
        failed = [(CLOSED.fullmatch(c.id), c.reason) for c in checks if c.result is Result.FAIL]
        closed = {match["name"]: reason for match, reason in failed if match}
        found = {row.name: row.set_aside for row in self.hosts if row.set_aside}
        return dict(sorted({**closed, **found}.items()))

    @property
    def sharing(self) -> Mapping[str, str]:
        """How each pool with GPUs shares them, by name."""
        hosts = Counter(host.pool for host in self.lock.hosts.values())
        lines = {name: sharing_line(pool, hosts[name]) for name, pool in self.lock.pools.items()}
        return {name: line for name, line in lines.items() if line}

    @property
    def drifted(self) -> Sequence[HostDrift]:
        """Hosts that differ from what they were set up to be."""
        return [host for host in self.drift if host.state == "drifted"]

    @property
    def simulated(self) -> bool:
        """Whether any of it was found on simulated silicon."""
        found = [row.evidence for row in self.hosts] + [self.cluster]
        return any(item is not None and item.simulated for item in found)

    @property
    def stand_in(self) -> bool:
        """Whether any of it was found with packages that stood in for the vendor's."""
        return any(row.evidence is not None and row.evidence.stand_in for row in self.hosts)

    @property
    def counts(self) -> Counter[str]:
        """How many checks passed, failed, were skipped.

        What has no evidence, evidence of another lock or evidence without a check is one failure.
        """
        tally: Counter[str] = Counter({result.value: 0 for result in Result})
        for row in self.hosts:
            tally.update(_results(row.evidence, stale=row.stale))
        if self.cluster is not None:
            tally.update(_results(self.cluster, stale=self.cluster_stale))
        if self.preflight is not None:
            tally.update(_results(self.preflight, stale=False))
        return tally

    @property
    def cluster_result(self) -> Result:
        """The verdict over the cluster; nothing is asked of a cluster without evidence."""
        if self.cluster is None:
            return Result.SKIPPED
        return Result.FAIL if self.cluster_stale else self.cluster.result

    @property
    def result(self) -> Result:
        """The verdict over all hosts and the cluster."""
        results = [row.result for row in self.hosts]
        if self.cluster is not None:
            results.append(self.cluster_result)
        if self.preflight is not None:
            results.append(self.preflight.result)
        if Result.FAIL in results or not results:
            return Result.FAIL
        return Result.PASS if Result.PASS in results else Result.SKIPPED


def _results(evidence: Evidence | None, *, stale: bool) -> list[str]:
    if evidence is None or stale or not evidence.checks:
        return [Result.FAIL.value]
    return [check.result.value for check in evidence.checks]


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
