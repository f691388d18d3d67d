"""The report: what was wished, decided and found, per pool and host, on one self-contained page."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from bedplate import shipped
from bedplate.evidence import overview
from bedplate.evidence.model import Evidence, Result
from bedplate.lock.sharing_line import sharing_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bedplate.accounting.summary import Summary
    from bedplate.evidence.drift import HostDrift
    from bedplate.lock import Lock


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


def assemble(
    site: str,
    lock: Lock,
    lock_digest: str,
    evidence: Sequence[Evidence],
    wishes: Mapping[str, Mapping[str, Any]],
    drift: Sequence[HostDrift] = (),
) -> Report:
    """Put evidence beside the hosts of the lock.

    A host of the lock without evidence is shown as such; evidence about a host that the lock does
    not know (one that was taken out of the site) is listed apart and judged by nobody.
    """
    by_host = {item.subject.name: item for item in evidence if item.subject.kind == "host"}
    rows = tuple(
        HostRow(
            name=name,
            pool=host.pool,
            address=str(host.address),
            evidence=by_host.get(name),
            stale=name in by_host and by_host[name].lock != lock_digest,
        )
        for name, host in sorted(lock.hosts.items())
    )
    cluster = next((item for item in evidence if item.subject.kind == "cluster"), None)
    strangers = tuple(item for name, item in sorted(by_host.items()) if name not in lock.hosts)
    cluster_stale = cluster is not None and cluster.lock != lock_digest
    # What was measured under another lock tells of another cluster; nobody need measure again.
    measured = (item for item in evidence if item.subject.kind == "preflight")
    preflight = next((item for item in measured if item.lock == lock_digest), None)
    return Report(
        site,
        lock,
        wishes,
        rows,
        cluster,
        cluster_stale,
        strangers,
        drift,
        preflight=preflight,
    )


def render(report: Report) -> str:
    """Render the page: HTML with its style inside and no script, readable from a file."""
    environment = Environment(
        loader=FileSystemLoader(shipped.templates("report")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2").render(
        report=report,
        failures=overview.failures(report),
        pools=overview.pools(report),
        hosts=overview.by_verdict(report.hosts),
    )
