"""Asking clingo: the best decision, whether settings go together, and which of them do not."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING

import clingo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


@cache
def rules() -> str:
    """Return the rules as a logic program."""
    return (files("bedplate.resolver") / "rules.lp").read_text(encoding="utf-8")


@cache
def rule_names(program: str) -> tuple[str, ...]:
    """Return the names of the rules, in the order in which the program has them."""
    heads = (line.split('"')[1] for line in program.splitlines() if line.startswith('violated("'))
    return tuple(dict.fromkeys(heads))


@dataclass(frozen=True)
class Model:
    """A decision: the value of each component of each subject, as the program spells them.

    `seats` are the users that each pool has room for; `broken` the rules that were not enforced
    and do not hold, each with its subject and the fact that it leans on.
    """

    values: Mapping[tuple[str, str], str]
    seats: Mapping[str, int]
    broken: frozenset[tuple[str, str, str]] = frozenset()


class Program:
    """A grounded program whose wishes and rules are assumptions."""

    def __init__(self, facts: str, wishes: int, *, kept: bool) -> None:
        """Ground it: with *kept*, every wish and rule is a fact; pools are taken one by one."""
        names = rule_names(rules())
        if kept:
            given = [f"wish(0..{wishes - 1})."] if wishes else []
            given += [f'enforce("{rule}").' for rule in names]
            given.append("{ active(P) } :- pool(P).")
        else:
            given = [f"{{ wish(0..{wishes - 1}) }}."] if wishes else []
            given += [f'{{ enforce("{rule}") }}.' for rule in names]
            given += ["active(P) :- pool(P).", "#show violated/3."]
        self.control = clingo.Control(["--warn=none", "--seed=1"], logger=_silent)
        self.control.add("base", [], "\n".join([rules(), *given, facts]))
        self.control.ground([("base", [])])
        self.wishes = wishes
        self.rules = names

    def best(self, kept: Iterable[int] = (), enforced: Iterable[str] | None = None) -> Model | None:
        """Return the one decision that all preferences lead to, or None if there is none.

        Wishes that are not kept are false, so that nothing is decided for them.
        """
        wanted = set(kept)
        rules_kept = set(self.rules if enforced is None else enforced)
        assumed = [
            *(
                (clingo.Function("wish", [clingo.Number(i)]), i in wanted)
                for i in range(self.wishes)
            ),
            *(
                (clingo.Function("enforce", [clingo.String(rule)]), True)
                for rule in self.rules
                if rule in rules_kept
            ),
        ]
        return self._model(assumed)

    def decided(self, pools: Iterable[str], active: Iterable[str]) -> Model | None:
        """Return the best decision for some *active* pools of a program whose wishes are facts."""
        wanted = set(active)
        return self._model(
            [(clingo.Function("active", [clingo.String(pool)]), pool in wanted) for pool in pools]
        )

    def _model(self, assumed: Sequence[tuple[clingo.Symbol, bool]]) -> Model | None:
        self.control.configuration.solve.opt_mode = "opt"  # type: ignore[union-attr]
        shown: Sequence[clingo.Symbol] | None = None
        with self.control.solve(assumptions=assumed, yield_=True) as handle:
            for answer in handle:
                shown = answer.symbols(shown=True)
        # Each answer is better than the one before it: only the last is read.
        return None if shown is None else _read(shown)

    def possible(self, kept: Iterable[int], enforced: Iterable[str] | None = None) -> bool:
        """Tell whether wishes and rules go together; what is not named may be either way."""
        names = self.rules if enforced is None else enforced
        self.control.configuration.solve.opt_mode = "ignore"  # type: ignore[union-attr]
        assumed = [
            *((clingo.Function("wish", [clingo.Number(i)]), True) for i in kept),
            *((clingo.Function("enforce", [clingo.String(rule)]), True) for rule in names),
        ]
        return bool(self.control.solve(assumptions=assumed).satisfiable)

    def conflict(self, kept: Sequence[int]) -> tuple[list[int], list[str]] | None:
        """Return a minimal set of wishes that do not go together, and the rules that say so.

        Earlier wishes are taken out first, so that a conflict is about late ones where it can be.
        """
        if self.possible(kept):
            return None
        wishes = shrunk(list(kept), lambda some: not self.possible(some))
        rules_needed = shrunk(list(self.rules), lambda some: not self.possible(wishes, some))
        return wishes, rules_needed


@lru_cache(maxsize=64)  # conflicts of many pools ask the same again and again
def grounded(facts: str, wishes: int) -> Program:
    """Return a program whose wishes need not be kept, grounded once for the same facts."""
    return Program(facts, wishes, kept=False)


def shrunk[T](items: list[T], holds: Callable[[list[T]], bool]) -> list[T]:
    """Return a minimal part of *items* for which *holds* is still true, by deletion."""
    kept = list(items)
    for item in items:
        without = [other for other in kept if other is not item]
        if holds(without):
            kept = without
    return kept


def _read(symbols: Iterable[clingo.Symbol]) -> Model:
    values: dict[tuple[str, str], str] = {}
    seats: dict[str, int] = {}
    broken = []
    for symbol in symbols:
        first, second, *rest = symbol.arguments
        if symbol.name == "value":
            values[first.string, str(second)] = _told(rest[0])
        elif symbol.name == "room":
            seats[first.string] = seats.get(first.string, 0) + rest[0].number
        else:
            broken.append((first.string, second.string, rest[0].string))
    return Model(values, seats, frozenset(broken))


def _told(symbol: clingo.Symbol) -> str:
    return symbol.string if symbol.type is clingo.SymbolType.String else str(symbol)


def _silent(_code: clingo.MessageCode, _text: str) -> None:
    """Predicates without facts are normal: a site has no RDMA, a catalogue no known-bad pair."""
