"""The report: what was wished, decided and found, per pool and host, on one self-contained page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from bedplate.common import shipped
from bedplate.evidence import overview
from bedplate.evidence.overview import HostRow, Report

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bedplate.common.evidence_file import Evidence
    from bedplate.evidence.drift import HostDrift
    from bedplate.lock import Lock


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
