"""`bedplate catalogue check`: for those who keep the catalogue, or a site's own facts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from bedplate.bill.repository import listed
from bedplate.catalogue import catalogue_of, load_catalogue
from bedplate.common import terminal
from bedplate.common.errors import Problem, SiteError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import date
    from pathlib import Path

    from bedplate.catalogue import Catalogue

OK, FOUND = 0, 2


@dataclass(frozen=True)
class Old:
    """Rows of one kind that were read on one day at one place."""

    kind: str
    read: str
    url: str
    facts: tuple[str, ...]


@dataclass(frozen=True)
class Contradiction:
    """A package of a driver in a version that no index of its system has."""

    fact: str
    package: str
    version: str
    offered: tuple[str, ...]


def run(options: Namespace, today: date) -> int:
    """Check, print what was found, and return the exit status.

    Raises:
        BedplateError: the facts of the site are wrong, or an index cannot be read.
    """
    site: Path | None = options.site
    if site is not None and not site.is_dir():
        allowed, fix = "an inventory directory", "name the folder with the site's hosts.yml"
        raise SiteError([Problem("no such site", str(site), allowed=allowed, fix=fix)])
    catalogue = load_catalogue() if site is None else catalogue_of(site)
    aged = None if options.older_than is None else today - timedelta(days=options.older_than)
    old = list(older(catalogue, aged)) if aged else []
    indexes: dict[tuple[str, str], list[Path]] = {}
    for system, source, path in options.index:
        if system not in catalogue.systems:
            known = ", ".join(sorted(catalogue.systems))
            fix = "choose one of them"
            raise SiteError(
                [Problem("no such system", key="--index", got=system, allowed=known, fix=fix)]
            )
        indexes.setdefault((system, source), []).append(path)
    wrong, compared, left = contradictions(catalogue, indexes)
    rows = sum(map(len, catalogue.tables().values()))
    if options.form != "table":
        content = {"catalogue": catalogue.digest, "rows": rows, "compared": compared, "left": left}
        content |= {"old": [asdict(one) for one in old], "wrong": [asdict(one) for one in wrong]}
        terminal.document(content, options.form)
    else:
        for line in _lines(old, wrong):
            print(line)
        print(f"{rows} rows agree with one another.")
        if aged:
            print(f"{sum(len(one.facts) for one in old)} rows were read before {aged}.")
        if indexes:
            print(f"{compared} drivers compared with an index, {left} not in it by any name.")
    return FOUND if old or wrong else OK


def older(catalogue: Catalogue, than: date) -> Iterator[Old]:
    """Yield the rows that were read before a day, oldest first, those of one source together."""
    found: dict[tuple[date, str, str], list[str]] = {}
    for kind, table in catalogue.tables().items():
        for fact in table.values():
            if fact.source.read < than:
                found.setdefault((fact.source.read, kind, fact.source.url), []).append(fact.id)
    for (read, kind, url), facts in sorted(found.items()):
        yield Old(kind, str(read), url, tuple(facts))


def contradictions(
    catalogue: Catalogue, indexes: Mapping[tuple[str, str], Sequence[Path]]
) -> tuple[list[Contradiction], int, int]:
    """Return what indexes contradict, how many drivers were compared, and how many could not be.

    Raises:
        ResolveError: an index cannot be read.
    """
    wrong: list[Contradiction] = []
    compared = left = 0
    for (system, source), paths in indexes.items():
        facts = [
            fact
            for fact in catalogue.driver_packages.values()
            if (fact.value.os, fact.value.source) == (system, source)
        ]
        names = {
            name for fact in facts for name in {**fact.value.packages, **(fact.value.fabric or {})}
        }
        offered: dict[str, list[str]] = {}
        for path in paths:
            for name, versions in listed(path, names).items():
                offered.setdefault(name, []).extend(versions)
        for fact in facts:
            wanted = {**fact.value.packages, **(fact.value.fabric or {})}
            if not offered.keys() & wanted.keys():
                left += 1
                continue
            compared += 1
            wrong += [
                Contradiction(fact.id, name, version, tuple(offered.get(name, ())))
                for name, version in wanted.items()
                if version not in offered.get(name, ())
            ]
    return wrong, compared, left


def _lines(old: Sequence[Old], wrong: Sequence[Contradiction]) -> Iterator[str]:
    for one in old:
        more = f" and {len(one.facts) - 1} more" if len(one.facts) > 1 else ""
        yield f"{one.read}  {one.kind}.yml  {one.facts[0]}{more}: {one.url}"
    for other in wrong:
        there = ", ".join(other.offered) or "no version of it"
        yield f"{other.fact}: {other.package} {other.version} is not offered; offered: {there}"
