"""`bedplate report SITE`: evidence to one HTML page and JUnit XML."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bedplate.accounting.usage import path_in
from bedplate.evidence.drift import load_drift
from bedplate.evidence.junit import junit
from bedplate.evidence.model import Result, load_evidence
from bedplate.evidence.report import assemble, render
from bedplate.harmless import cleaned
from bedplate.lock import digest, load_lock
from bedplate.lock.file import write_text
from bedplate.portable.evidence import checks
from bedplate.site import load_site
from bedplate.site.concealed import secrets

if TYPE_CHECKING:
    from pathlib import Path

    from bedplate.accounting.summary import Summary
    from bedplate.lock import Lock

PROVEN, NOT_PROVEN = 0, 2


def run(site: Path) -> int:
    """Write SITE/.bedplate/report.html and junit.xml and print the verdict.

    Returns:
        0 when every host of the lock has evidence in which nothing failed, else 2.

    Raises:
        BedplateError: the site, its lock or its evidence is missing or cannot be read.
    """
    lock = load_lock(site)
    wished = load_site(site)
    hidden = wished.secrets | secrets(site)
    evidence = load_evidence(site, secrets=hidden)
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
    counts = report.counts
    print(
        f"{report.result.value}: {counts['pass']} checks passed, {counts['fail']} failed,"
        f" {counts['skipped']} skipped on {len(report.hosts)} hosts"
        + (" (simulated silicon)" if report.simulated else "")
        + (" (stand-in packages)" if report.stand_in else "")
    )
    subjects = [(row.name, row.evidence, row.stale) for row in report.hosts]
    if report.cluster is not None:
        subjects.append(("cluster", report.cluster, report.cluster_stale))
    if report.preflight is not None:
        subjects.append((report.preflight.subject.name, report.preflight, False))
    for name, found, stale in subjects:
        if found is None or stale or not found.checks:
            state = "no evidence" if found is None else "evidence of another lock"
            state = state if found is None or stale else "evidence without a check"
            print(f"  {name}: {state} — run: ansible-playbook -i {site} bedplate.gpu.site")
            continue
        for message in checks.failures([one.model_dump() for one in found.checks], name):
            print(f"  {message}")
    if report.set_aside:
        print(f"Excluded: {', '.join(report.set_aside)}.")
    if report.drifted:
        names = ", ".join(host.name for host in report.drifted)
        print(f"Drifted since: {names} — see: bedplate drift {site}")
    print(f"Wrote {folder}/report.html and junit.xml.")
    return PROVEN if report.result is Result.PASS else NOT_PROVEN


def _usage(site: Path, lock: Lock) -> Summary | None:
    """Return the summary of use; what it needs is imported only where there is something."""
    if not path_in(site).exists():
        return None
    from bedplate.accounting.summary import summary

    return summary(site, lock)
