"""Drives resolver and checker together, for the tests of both."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

from bedplate.lock import render
from bedplate.resolver import Plan, Refusal, resolve
from tests.properties.checker import hosts_of, violations
from tests.properties.plain import Facts

if TYPE_CHECKING:
    from bedplate.catalogue import Catalogue
    from bedplate.lock import Lock
    from tests.properties.building import Plain
    from tests.properties.plain import Violation

#: Touches warnings only.
TODAY = date(2026, 11, 21)


def decided(plain: Plain, catalogue: Catalogue, previous: Lock | None = None) -> Plan | Refusal:
    """Return what the resolver says of a site."""
    return resolve(plain.site(), catalogue, TODAY, previous)


def broken(plain: Plain, facts: Facts, plan: Plan) -> list[Violation]:
    """Return what the checker has against a plan."""
    return violations(facts, hosts_of(plain.site()), plan.lock.model_dump(mode="json"))


def facts_of(catalogue: Catalogue) -> Facts:
    """Return a catalogue that was made in a test as the checker wants it."""
    tables, read = {}, {}
    for file, table in catalogue.tables().items():
        facts = list(table.values())
        tables[file] = [
            fact.value.model_dump(mode="json", by_alias=True) | {"sure": fact.sure}
            for fact in facts
        ]
        read[file] = [fact.source.read.isoformat() for fact in facts]
    return Facts(tables, read)


def said(answer: Plan | Refusal) -> str:
    """Return an answer byte for byte: the lock, or all problems."""
    if isinstance(answer, Plan):
        return render(answer.lock)
    return "\n".join(map(str, answer.problems))
