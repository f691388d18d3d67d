"""`bedplate report SITE`: evidence to one HTML page and JUnit XML."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bedplate.accounting.usage import path_in
from bedplate.common import terminal
from bedplate.common.evidence_file import Result, load_evidence
from bedplate.common.harmless import cleaned
from bedplate.evidence.drift import load_drift, with_playbooks
from bedplate.evidence.junit import junit
from bedplate.evidence.report import assemble, render
from bedplate.lock import digest, load_lock
from bedplate.lock.file import write_text
from bedplate.portable.evidence import checks
from bedplate.site import load_site
from bedplate.site.concealed import secrets

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bedplate.accounting.summary import Summary
    from bedplate.common.evidence_file import Evidence
    from bedplate.evidence.overview import Report
    from bedplate.lock import Lock

PROVEN, NOT_PROVEN = 0, 2


def run(site: Path, form: str) -> int:
    """Write SITE/.bedplate/report.html and junit.xml and print the verdict, in a form.

    Returns:
        0 when every host of the lock has evidence in which nothing failed, else 2.

    Raises:
        BedplateError: the site, its lock or its evidence is missing or cannot be read.
    """
    lock = load_lock(site)
    wished = load_site(site)
    hidden = wished.secrets | secrets(site)
    evidence = with_playbooks(load_evidence(site, secrets=hidden), lock)
    # A pool's hosts have equal wishes, or the plan would have refused: the first speaks for all.
    wishes = {
        name: cleaned(hosts[0].wishes.model_dump(mode="json", exclude_defaults=True), hidden)
        for name, hosts in wished.pools.items()
    }
    drift = load_drift(site, lock, digest(site), evidence, hidden)
    report = replace(
        assemble(site.resolve().name, lock, digest(site), evidence, wishes, drift),
        usage=_usage(site, lock),
    )
    folder = site / ".bedplate"
    page = render(report)
    # A lone surrogate, as JSON can hold it, has no UTF-8: a question mark is no reason to fail.
    write_text(folder / "report.html", page.encode(errors="replace").decode())
    write_text(folder / "junit.xml", junit(report))
    if form == "table":
        _print(site, report)
    else:
        terminal.document(_content(report), form)
    return PROVEN if report.result is Result.PASS else NOT_PROVEN


def _subjects(report: Report) -> Iterator[tuple[str, Evidence | None, str]]:
    """Yield hosts, cluster and preflight by name: the evidence, and why it is none if it is so."""
    subjects = [(row.name, row.evidence, row.stale) for row in report.hosts]
    if report.cluster is not None:
        subjects.append(("cluster", report.cluster, report.cluster_stale))
    if report.preflight is not None:
        subjects.append((report.preflight.subject.name, report.preflight, False))
    for name, found, stale in subjects:
        if found is None:
            yield name, found, "no evidence"
        elif stale:
            yield name, found, "evidence of another lock"
        else:
            yield name, found, "" if found.checks else "evidence without a check"


def _print(site: Path, report: Report) -> None:
    counts = report.counts
    print(
        f"{report.result.value}: {counts['pass']} checks passed, {counts['fail']} failed,"
        f" {counts['skipped']} skipped on {len(report.hosts)} hosts"
        + (" (simulated silicon)" if report.simulated else "")
        + (" (stand-in packages)" if report.stand_in else "")
    )
    for name, found, lacks in _subjects(report):
        if found is None or lacks:
            print(f"  {name}: {lacks} — run: ansible-playbook -i {site} bedplate.gpu.site")
            continue
        for message in checks.failures([one.model_dump() for one in found.checks], name):
            print(f"  {message}")
    if report.set_aside:
        print(f"Excluded: {', '.join(report.set_aside)}.")
    if report.drifted:
        names = ", ".join(host.name for host in report.drifted)
        print(f"Drifted since: {names} — see: bedplate drift {site}")
    print(f"Wrote {site}/.bedplate/report.html and junit.xml.")


def _content(report: Report) -> dict[str, Any]:
    """Return the verdict and each host's as data; *checks* counts as `counts` of a report does."""
    return {
        "ok": report.result is Result.PASS,
        "result": report.result.value,
        "checks": dict(report.counts),
        "simulated": report.simulated,
        "stand_in": report.stand_in,
        "subjects": [
            {
                "name": name,
                "kind": found.subject.kind if found else "host",
                "pool": found.subject.pool if found else report.lock.hosts[name].pool,
                "result": (Result.FAIL if found is None or lacks else found.result).value,
                "reason": lacks,
                "checked": found.checked if found else None,
                "failed": [
                    one.model_dump(mode="json")
                    for one in (found.checks if found and not lacks else ())
                    if one.result is Result.FAIL
                ],
            }
            for name, found, lacks in _subjects(report)
        ],
        "excluded": dict(report.set_aside),
        "drifted": [host.name for host in report.drifted],
    }


def _usage(site: Path, lock: Lock) -> Summary | None:
    """Return the summary of use; what it needs is imported only where there is something."""
    if not path_in(site).exists():
        return None
    from bedplate.accounting.summary import summary

    return summary(site, lock)
