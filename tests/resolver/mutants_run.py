"""Whether the cases of the rules see a mutant. The answer counts, not the words of a refusal."""

from __future__ import annotations

import signal
from functools import cache
from typing import TYPE_CHECKING
from unittest import mock

from bedplate.resolver import Plan, resolve
from tests.resolver.case_tables import CASES
from tests.resolver.judging import TODAY, unlike
from tests.resolver.mutants import rule_mutants
from tests.resolver.mutants_facts import fact_mutants
from tests.resolver.preferred import PREFERRED
from tests.resolver.small_world import world

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bedplate.catalogue import Catalogue
    from tests.resolver.cases import Case
    from tests.resolver.mutants import Mutant


#: Seconds of this process's own time after which a question has no end; others take hundredths.
ENDLESS = 5


@cache
def mutants() -> tuple[Mutant, ...]:
    """Return every mutant, of rules and of facts."""
    return (*rule_mutants(), *fact_mutants())


def killed(mutant: Mutant, *, thorough: bool = False) -> str | None:
    """Return the name of the first case that sees a mutant, None if it survives.

    Cases of the rules that it is about come first; all others are tried only when thorough.
    """
    catalogue = mutant.catalogue or world()
    near = [case for case in CASES if case.rule in mutant.rules]
    far = [case for case in CASES if case.rule not in mutant.rules] if thorough else []
    search = mock.patch("bedplate.resolver.resolve.search", return_value=[])
    program = mutant.program
    rules = mock.patch("bedplate.resolver.solving.rules", return_value=program)
    with search:
        if program is None:
            return next(_seen(near, far, catalogue), None)
        with rules:
            return next(_seen(near, far, catalogue), None)


def _seen(near: list[Case], far: list[Case], catalogue: Catalogue) -> Iterator[str]:
    """Yield the names of cases that do not hold."""
    for cases in (near, far):
        for case in cases:
            if not _holds(lambda case=case: _case_holds(case, catalogue)):
                yield f"{case.rule}: {case.name}"
        for name, (site, right) in PREFERRED.items() if cases is near else ():
            if not _holds(
                lambda site=site, right=right: (
                    not unlike(resolve(site.site(), catalogue, TODAY), right)
                )
            ):
                yield name


def _case_holds(case: Case, catalogue: Catalogue) -> bool:
    if isinstance(resolve(case.wrong.site(), catalogue, TODAY), Plan):
        return False
    right = resolve(case.right.site(), catalogue, TODAY)
    if unlike(right, case.decided):
        return False
    warned = "\n".join(right.warnings) if isinstance(right, Plan) else ""
    return (not case.warned or case.warned in warned) and not (
        case.silent and case.silent in warned
    )


class _Endless(BaseException):
    """A mutant that does not come to an end; no `except Exception` on the way is to catch it."""


def _holds(asked: Callable[[], bool]) -> bool:
    """Tell whether something holds; a mutant that breaks the resolver, or never ends, is seen."""

    def stop(_signal: int, _frame: object) -> None:
        raise _Endless

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, ENDLESS)
    try:
        return asked()
    except (Exception, _Endless):
        return False
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
