"""The fit proof's arithmetic: hours that overlap, and packings against others that are simpler."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bedplate.courses.hours import minutes, together
from bedplate.courses.linear import least
from bedplate.courses.packing import Answer, Kind, Places, answer, in_any_order

#: The same examples each time, however long a loaded machine takes for them.
SAME = settings(deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


def test_hours_are_minutes_of_the_week() -> None:
    assert minutes("Mon 10:00-12:00") == (600, 720)
    assert minutes("Sun 23:30-24:00") == (7 * 1440 - 30, 7 * 1440)


def test_only_the_largest_sets_of_courses_at_once_count() -> None:
    hours = {
        "a": ["Mon 10:00-12:00", "Tue 10:00-12:00"],
        "b": ["Mon 11:00-13:00"],
        "c": ["Mon 12:00-14:00"],
        "d": [],
    }
    # At twelve a ends and c begins: they are never there together.
    assert list(together(hours)) == [("Mon 11:00", ("a", "b", "d")), ("Mon 12:00", ("b", "c", "d"))]
    assert list(together({"d": [], "e": []})) == [("always", ("d", "e"))]


def test_the_least_amounts_are_exact() -> None:
    # Two of the first, or three of the second, in a place: seven and five need 7/2 + 5/3 places.
    assert sum(least([(2, 0), (0, 3)], [7, 5]) or []) == Fraction(7, 2) + Fraction(5, 3)
    assert least([(2, -1), (0, -1)], [7, -3]) is None


def fits_by_hand(places: list[Places], kinds: list[Kind]) -> bool:
    """Put one share after the other wherever it may go, in all ways."""
    free = tuple(sorted(one.has for one in places for _ in range(one.count)))
    asked = sorted((kind.takes for kind in kinds for _ in range(kind.number)), reverse=True)

    @cache
    def rest(free: tuple[tuple[int, ...], ...], next_one: int) -> bool:
        if next_one == len(asked):
            return True
        for at in range(len(free)):
            if at and free[at] == free[at - 1]:
                continue
            left = tuple(h - t for h, t in zip(free[at], asked[next_one], strict=True))
            others = (*free[:at], *free[at + 1 :])
            if min(left) >= 0 and rest(tuple(sorted((*others, left))), next_one + 1):
                return True
        return False

    return rest(free, 0)


def sizes(resources: int, most: int) -> st.SearchStrategy[tuple[int, ...]]:
    """Amounts of some resources, at least one of each."""
    return st.tuples(*[st.integers(1, most)] * resources)


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[Places], list[Kind]]:
    """A few places of up to two sorts, and a few shares of up to three sizes."""
    resources = draw(st.integers(1, 2))
    has = st.builds(Places, st.integers(1, 3), sizes(resources, 24))
    asks = st.builds(Kind, st.integers(1, 4), sizes(resources, 12))
    return draw(st.lists(has, min_size=1, max_size=2)), draw(st.lists(asks, min_size=1, max_size=3))


@settings(SAME, max_examples=150)
@given(problems())
def test_the_answer_is_that_of_trying_everything(problem: tuple[list[Places], list[Kind]]) -> None:
    places, kinds = problem
    expected = Answer.FITS if fits_by_hand(places, kinds) else Answer.TOO_MUCH
    assert answer(places, kinds) is expected


@settings(SAME, max_examples=60)
@given(
    st.integers(2, 60), st.lists(st.integers(1000, 20_000), min_size=2, max_size=4), st.randoms()
)
def test_what_a_greedy_packing_fits_is_never_refused(
    count: int, takes: list[int], random: object
) -> None:
    """Places are filled one by one with shares drawn by chance; what went in must be proved."""
    have, numbers = 32_768, [0] * len(takes)
    for _ in range(count):
        left = have
        while fitting := [k for k, size in enumerate(takes) if size <= left]:
            chosen = random.choice(fitting)  # type: ignore[attr-defined]
            numbers[chosen] += 1
            left -= takes[chosen]
    kinds = [Kind(number, (size,)) for number, size in zip(numbers, takes, strict=True)]
    assert answer([Places(count, (have,))], kinds) is not Answer.TOO_MUCH


@settings(SAME, max_examples=100)
@given(problems())
def test_what_first_fit_finds_room_for_is_proved(
    problem: tuple[list[Places], list[Kind]],
) -> None:
    places, kinds = problem
    free = [list(one.has) for one in places for _ in range(one.count)]
    for takes in sorted((k.takes for k in kinds for _ in range(k.number)), reverse=True):
        for place in free:
            if all(h >= t for h, t in zip(place, takes, strict=True)):
                place[:] = [h - t for h, t in zip(place, takes, strict=True)]
                break
        else:
            return
    assert answer(places, kinds) is Answer.FITS


@settings(SAME, max_examples=60)
@given(problems(), st.randoms())
def test_what_fits_in_any_order_fits_in_this_one(
    problem: tuple[list[Places], list[Kind]], random: object
) -> None:
    places, kinds = problem
    if not in_any_order(places, kinds):
        return
    free = [list(one.has) for one in places for _ in range(one.count)]
    asked = [kind.takes for kind in kinds for _ in range(kind.number)]
    random.shuffle(asked)  # type: ignore[attr-defined]
    for takes in asked:
        room = [place for place in free if all(h >= t for h, t in zip(place, takes, strict=True))]
        assert room, "a share found no place"
        chosen = random.choice(room)  # type: ignore[attr-defined]
        chosen[:] = [h - t for h, t in zip(chosen, takes, strict=True)]


@pytest.mark.parametrize(
    ("each", "expected"), [((200, 200, 140), Answer.FITS), ((220, 200, 140), Answer.TOO_MUCH)]
)
def test_three_sizes_of_a_faculty(each: tuple[int, int, int], expected: Answer) -> None:
    """540 students on 128 GPUs of 32 GiB: 8, 6 and 9 GiB, of which few leave nothing over."""
    kinds = [Kind(n, (size,)) for n, size in zip(each, (8192, 6144, 9216), strict=True)]
    assert answer([Places(128, (32_768,))], kinds) is expected


def test_a_search_that_does_not_end_proves_nothing() -> None:
    kinds = [Kind(14, (14,)), Kind(16, (3,)), Kind(19, (8,))]
    places = [Places(10, (40,))]
    assert answer(places, kinds) is Answer.FITS
    assert answer(places, kinds, conflicts=1) is Answer.NOT_PROVED
