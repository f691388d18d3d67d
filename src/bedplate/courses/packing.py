"""Whether shares of several sizes have room on GPUs at the same time: proved, refuted, or neither.

Whole numbers only. A place is a GPU, or a host of whole GPUs; what it has and what a share takes is
a tuple of the same resources (memory in MiB, GPUs). Shares of one size are counted. For several
sizes a greedy packing proves that they fit. Where it fails, the question is how many places are
filled by each pattern, a content to which nothing can be added (Gilmore and Gomory, "A linear
programming approach to the cutting-stock problem", 1961): first in fractions, exactly, then clingo
packs what their whole parts leave. Its search is limited by conflicts and not by seconds: the same
question has the same answer on every machine, and one that does not end is no proof.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING

import clingo

from bedplate.courses.linear import UnendedError, least

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

type Sizes = tuple[int, ...]

CONFLICTS = 50_000
#: With more patterns of a place than this, clingo is not asked.
PATTERNS = 4_000
#: With so few places clingo is asked for all of them.
SMALL = 16
PROGRAM = """
1 { use(P,0..M) : most(P,M) } 1 :- pattern(P,_).
:- count(T,R), #sum { X,P : use(P,X), pattern(P,T) } > R.
:- kind(K,R), #sum { X*N,P : use(P,X), has(P,K,N) } < R.
#show use/2.
"""


class Answer(StrEnum):
    """What is known of shares and places."""

    FITS = "fits"
    TOO_MUCH = "too much"
    NOT_PROVED = "not proved"


@dataclass(frozen=True)
class Kind:
    """Shares of one size: how many, and what each takes."""

    number: int
    takes: Sizes


@dataclass(frozen=True)
class Places:
    """Places that are alike: how many, and what each has."""

    count: int
    has: Sizes

    def room(self, takes: Sizes) -> int:
        """Return how many shares of a size one of the places has room for."""
        return min(have // take for have, take in zip(self.has, takes, strict=True) if take)


def answer(places: Sequence[Places], kinds: Sequence[Kind], conflicts: int = CONFLICTS) -> Answer:
    """Tell whether all shares have room at once."""
    asked = [kind for kind in kinds if kind.number]
    if any(alone(places, kind.takes) < kind.number for kind in asked):
        return Answer.TOO_MUCH
    if len(asked) < 2 or next(filled(places, asked), None) is not None:
        return Answer.FITS
    if _over(places, asked):
        return Answer.TOO_MUCH
    return _searched(places, asked, conflicts)


def alone(places: Sequence[Places], takes: Sizes) -> int:
    """Return how many shares of one size have room where there are no others."""
    return sum(one.count * one.room(takes) for one in places)


def filled(places: Sequence[Places], kinds: Sequence[Kind]) -> Iterator[list[Sizes]]:
    """Yield packings that are found by filling places in turn: how many of each kind each has."""
    for order in _orders(places, kinds):
        if (found := _greedy(places, kinds, order)) is not None:
            yield found


def in_any_order(places: Sequence[Places], kinds: Sequence[Kind]) -> bool:
    """Tell whether each share finds room wherever the others have been put before it.

    A share finds none only if every place lacks a resource for it, and then the others together
    take at least what all places have of it, less the share: parts of a place are compared.
    """
    for kind in kinds:
        blocked, taken = Fraction(0), Fraction(0)
        for one in places:
            parts = [
                Fraction(have - take + 1, have)
                for have, take in zip(one.has, kind.takes, strict=True)
                if take
            ]
            blocked += one.count * max(min(parts), Fraction(0))
        for other in kinds:
            most = max(
                Fraction(take, have)
                for one in places
                for have, take in zip(one.has, other.takes, strict=True)
                if have
            )
            taken += (other.number - (other is kind)) * most
        if taken >= blocked:
            return False
    return True


def _orders(places: Sequence[Places], kinds: Sequence[Kind]) -> Iterator[list[int]]:
    """Yield orders in which shares are put: by their part of a place, and by each resource."""
    whole = [max(one.has[i] for one in places) or 1 for i in range(len(kinds[0].takes))]
    numbers = range(len(kinds))
    parts = [[take / have for take, have in zip(k.takes, whole, strict=True)] for k in kinds]
    yield sorted(numbers, key=lambda k: -max(parts[k]))
    yield sorted(numbers, key=lambda k: -sum(parts[k]))
    for index in range(len(whole)):
        yield sorted(numbers, key=lambda k: -parts[k][index])


def _greedy(
    places: Sequence[Places], kinds: Sequence[Kind], order: Sequence[int]
) -> list[Sizes] | None:
    """Fill one place after the other, each with the first sizes of the order that have room.

    Returns what each place has that is not empty, None where something finds no room.
    """
    left = [kind.number for kind in kinds]
    contents = []
    for one in sorted(places, key=lambda p: p.has):
        for _ in range(one.count):
            have, content = list(one.has), [0] * len(kinds)
            for k in order:
                takes = kinds[k].takes
                many = min((h // t for h, t in zip(have, takes, strict=True) if t), default=0)
                content[k] = min(many, left[k])
                left[k] -= content[k]
                have = [h - content[k] * t for h, t in zip(have, takes, strict=True)]
            contents.append(tuple(content))
            if not any(left):
                return contents
    return None


def _over(places: Sequence[Places], kinds: Sequence[Kind]) -> bool:
    """Tell whether shares take more of a resource than all places have."""
    return any(
        sum(kind.number * kind.takes[index] for kind in kinds)
        > sum(one.count * one.has[index] for one in places)
        for index in range(len(kinds[0].takes))
    )


def _patterns(has: Sizes, kinds: Sequence[Kind], first: int = 0) -> Iterator[tuple[int, ...]]:
    """Yield the contents of a place to which nothing can be added, up to the limit."""
    kind = kinds[first]
    fit = min((h // t for h, t in zip(has, kind.takes, strict=True) if t), default=kind.number)
    fit = min(fit, kind.number)
    if first == len(kinds) - 1:
        yield (fit,)
        return
    for many in range(fit, -1, -1):
        left = tuple(h - many * t for h, t in zip(has, kind.takes, strict=True))
        for rest in _patterns(left, kinds, first + 1):
            yield (many, *rest)


def _searched(places: Sequence[Places], kinds: Sequence[Kind], conflicts: int) -> Answer:
    """Look for how many places are filled by each pattern, first in fractions of places.

    Where even fractions don't do, it is too much. Else their whole parts are taken, and the few
    places and shares that are left are packed by themselves.
    """
    patterns: list[tuple[int, Sizes]] = []
    for which, one in enumerate(places):
        for pattern in _patterns(one.has, kinds):
            if len(patterns) >= PATTERNS:
                return Answer.NOT_PROVED
            patterns.append((which, pattern))
    limits = range(len(places))
    columns = [(*has, *(-int(which == limit) for limit in limits)) for which, has in patterns]
    try:
        amounts = least(columns, [*(k.number for k in kinds), *(-one.count for one in places)])
    except UnendedError:
        return Answer.NOT_PROVED
    if amounts is None:
        return Answer.TOO_MUCH
    for back in range(3):
        whole = [max(int(amount) - back, 0) for amount in amounts]
        left = list(_left(places, whole, patterns))
        rest = []
        for k, kind in enumerate(kinds):
            placed = sum(many * has[k] for many, (_, has) in zip(whole, patterns, strict=True))
            rest.append(Kind(max(kind.number - placed, 0), kind.takes))
        if any(_greedy(left, rest, order) is not None for order in _orders(places, kinds)):
            return Answer.FITS
        all_of_it = not any(whole)
        found = _asked(left, rest, patterns, conflicts if all_of_it else conflicts // 10)
        if found is Answer.FITS or all_of_it:
            return found
    if sum(one.count for one in places) <= SMALL:
        return _asked(places, kinds, patterns, conflicts)
    return Answer.NOT_PROVED


def _left(
    places: Sequence[Places], whole: Sequence[int], patterns: Sequence[tuple[int, Sizes]]
) -> Iterator[Places]:
    for which, one in enumerate(places):
        used = sum(many for many, (of, _) in zip(whole, patterns, strict=True) if of == which)
        yield Places(one.count - used, one.has)


def _asked(
    places: Sequence[Places],
    kinds: Sequence[Kind],
    patterns: Sequence[tuple[int, Sizes]],
    conflicts: int,
) -> Answer:
    """Ask clingo for the number of places with each pattern."""
    facts = [f"kind({k},{kind.number})." for k, kind in enumerate(kinds)]
    facts += [f"count({which},{one.count})." for which, one in enumerate(places)]
    for number, (which, has) in enumerate(patterns):
        uses = [-(-kind.number // n) for kind, n in zip(kinds, has, strict=True) if n]
        most = min(places[which].count, max(uses, default=0))
        facts.append(f"pattern({number},{which}). most({number},{most}).")
        facts += [f"has({number},{k},{many})." for k, many in enumerate(has) if many]
    control = clingo.Control(["--warn=none", f"--solve-limit={conflicts}"])
    control.add("base", [], PROGRAM + "\n".join(facts))
    control.ground([("base", [])])
    found = control.solve()
    if found.satisfiable:
        return Answer.FITS
    return Answer.TOO_MUCH if found.unsatisfiable and found.exhausted else Answer.NOT_PROVED
