"""What a case demands of the resolver, under any catalogue and any rules."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

from bedplate.resolver import Plan, resolve

if TYPE_CHECKING:
    from bedplate.catalogue import Catalogue
    from tests.resolver.cases import Case

TODAY = date(2026, 11, 21)


def faults(case: Case, catalogue: Catalogue) -> list[str]:
    """Return what of a case does not hold."""
    accepted, refused = (resolve(s.site(), catalogue, TODAY) for s in (case.right, case.wrong))
    found = []
    if isinstance(accepted, Plan):
        lock = accepted.lock.model_dump(mode="json")
        for path, right in case.decided.items():
            if (got := _at(lock, path)) != right:
                found.append(f"{path} is {got}, not {right}")
        if case.warned and not any(case.warned in text for text in accepted.warnings):
            found.append(f"no warning has {case.warned}: {accepted.warnings}")
    else:
        found.append(f"refused: {'; '.join(map(str, accepted.problems))}")
    if isinstance(refused, Plan):
        found.append("the wrong one is accepted")
    elif (rules := {problem.rule for problem in refused.problems}) != {case.rule}:
        told = "; ".join(map(str, refused.problems))
        found.append(f"refused by {', '.join(sorted(rules))}: {told}")
    return found


def _at(lock: Any, path: str) -> Any:
    for part in path.split("."):
        lock = lock[int(part)] if part.isdecimal() else lock[part]
        if lock is None:
            return None
    return lock
