"""What a case demands of the resolver, under any catalogue and any rules."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

from bedplate.resolver import Plan, Refusal, resolve

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bedplate.catalogue import Catalogue
    from tests.resolver.cases import Case

TODAY = date(2026, 11, 21)


def faults(case: Case, catalogue: Catalogue) -> list[str]:
    """Return what of a case does not hold."""
    accepted, refused = (resolve(s.site(), catalogue, TODAY) for s in (case.right, case.wrong))
    found = unlike(accepted, case.decided)
    if isinstance(accepted, Plan):
        warned = "\n".join(accepted.warnings)
        if case.warned and case.warned not in warned:
            found.append(f"no warning has {case.warned}: {warned}")
        if case.silent and case.silent in warned:
            found.append(f"a warning has {case.silent}: {warned}")
    if isinstance(refused, Plan):
        found.append("the wrong one is accepted")
    elif (rules := {problem.rule for problem in refused.problems}) != {case.rule}:
        told = "; ".join(map(str, refused.problems))
        found.append(f"refused by {', '.join(sorted(rules))}: {told}")
    return found


def unlike(answer: Plan | Refusal, decided: Mapping[str, Any]) -> list[str]:
    """Return what of an answer is not as it should be decided, by path in the lock."""
    if isinstance(answer, Refusal):
        return [f"refused: {'; '.join(map(str, answer.problems))}"]
    lock = answer.lock.model_dump(mode="json")
    got = {path: _at(lock, path) for path in decided}
    return [f"{p} is {got[p]}, not {right}" for p, right in decided.items() if got[p] != right]


def _at(lock: Any, path: str) -> Any:
    for part in path.split("."):
        lock = lock[int(part)] if part.isdecimal() else lock[part]
        if lock is None:
            return None
    return lock
