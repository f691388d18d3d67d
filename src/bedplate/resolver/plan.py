"""Read, resolve and compare: what `bedplate plan` and the lock's lookup have in common."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from bedplate.catalogue import catalogue_of
from bedplate.common.errors import LockError, Problem, RefusedError, SiteError
from bedplate.common.lock_place import FACTS
from bedplate.lock import Lock, differences, in_words, load_lock, lock_path
from bedplate.resolver import Plan, Refusal, installable, resolve
from bedplate.resolver.outcome import Notice
from bedplate.resolver.running import cluster_runs, one_step, refuse_unreachable
from bedplate.site import load_site
from bedplate.site.remaining import WrongSiteError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import date
    from pathlib import Path

    from bedplate.catalogue import Catalogue
    from bedplate.site import Site

#: How many differences of a stale lock its refusal lists.
LISTED = 5


@dataclass(frozen=True)
class Planned:
    """A plan beside the lock that was there before, or why that could not be read."""

    plan: Plan
    before: Lock | None
    catalogue: Catalogue
    site: Site
    unread: LockError | None = None

    @property
    def changes(self) -> list[str]:
        """Return what the plan changes, key by key; empty when the lock is up to date."""
        return differences(self.before, self.plan.lock) if self.before else []

    @property
    def in_words(self) -> list[str]:
        """Return what the plan changes as clauses for a reader, without a digest."""
        return in_words(self.before, self.plan.lock) if self.before else []

    @property
    def up_to_date(self) -> bool:
        """Tell whether the lock on disk is the one that was planned."""
        return self.before == self.plan.lock


def plan(site: Path, today: date, *, upgrade: bool = False) -> Planned:
    """Plan a site. Raises SiteError or RefusedError with all problems.

    What is locked already stays where the settings still allow it, unless an *upgrade* is asked
    for; the Kubernetes of a running cluster goes up by one minor version at most then, and a
    setting that moves it further, or back, is refused. A lock that cannot be read keeps nothing
    where it is, which the plan warns of.
    """
    before: Lock | None = None
    unread: LockError | None = None
    if lock_path(site).exists():
        try:
            before = load_lock(site)
        except LockError as error:
            unread = error  # planned anew: that is what the message about such a lock asks for
    running = before if cluster_runs(site) else None
    catalogue = catalogue_of(site)
    kept = before
    if upgrade:
        kept = one_step(running, catalogue) if running else None
    try:
        wished = load_site(site)
    except WrongSiteError as error:
        raise _with_further(error, catalogue, today) from error
    outcome = resolve(wished, catalogue, today, kept)
    if isinstance(outcome, Refusal):
        raise RefusedError(_all_of(outcome, wished, catalogue))
    if running is not None:
        refuse_unreachable(wished, running, outcome.lock, catalogue)
    if unread is not None:
        lost = (
            Notice(
                f"resolved again: the old lock {problem.where}: {problem.what}, "
                f"got {problem.got}; nothing that it had is kept"
            )
            for problem in unread.problems
        )
        outcome = replace(outcome, notices=(*lost, *outcome.notices))
    if catalogue.added or catalogue.overridden:
        outcome = replace(outcome, notices=(*of_facts(site, catalogue), *outcome.notices))
    return Planned(outcome, before, catalogue, wished, unread)


def checked_lock(site: Path) -> Lock:
    """Return the lock of *site*. Raises LockError if it is missing or out of date."""
    lock = load_lock(site)
    planned = plan(site, datetime.now(UTC).date())
    if not planned.up_to_date:
        listed = planned.in_words
        more = f"; and {len(listed) - LISTED} more" if len(listed) > LISTED else ""
        what = f"lock is stale: {'; '.join(listed[:LISTED])}{more}"
        fix = f"run: bedplate plan {site}"
        raise LockError([Problem(what, str(lock_path(site)), fix=fix, rule="lock")])
    return lock


def _all_of(refusal: Refusal, site: Site, catalogue: Catalogue) -> list[Problem]:
    """Return why there is no plan, with what could not be installed by any."""
    known = refusal.problems
    return [*known, *installable.without_lock(site, catalogue, known)]


def _with_further(error: WrongSiteError, catalogue: Catalogue, today: date) -> SiteError:
    """Return a site's problems with those that planning the right part of it finds."""
    if error.site is None or not error.site.hosts:
        return error
    outcome = resolve(error.site, catalogue, today)
    if isinstance(outcome, Refusal):
        return error.with_further(_all_of(outcome, error.site, catalogue))
    return error.with_further(outcome.not_installable)


def of_facts(site: Path, catalogue: Catalogue) -> Iterator[Notice]:
    """Report what a site's own facts do to the catalogue."""
    from bedplate.site.ansible_adapter import ignores_facts

    where = f"{site}/{FACTS}"
    if catalogue.added:
        yield Notice(f"{where} adds to the catalogue", items=catalogue.added)
    if catalogue.overridden:
        yield Notice(f"{where} overrides the catalogue", items=catalogue.overridden)
    if (catalogue.added or catalogue.overridden) and not ignores_facts():
        yield Notice(
            f"Ansible's commands try {where} as an inventory, and warn",
            hint=f"write ignore_patterns = ^{FACTS}$ below [inventory] of ansible.cfg",
        )
