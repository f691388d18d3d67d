"""The weekly hours of courses: minutes of a week, and the instants at which most take place."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
DAY = 24 * 60


def minutes(text: str) -> tuple[int, int]:
    """Return when `Mon 10:00-12:00` begins and ends, in minutes of the week."""
    day, _, times = text.partition(" ")
    begin, end = (int(one[:2]) * 60 + int(one[3:]) for one in times.split("-"))
    midnight = DAYS.index(day) * DAY
    return midnight + begin, midnight + end


def shown(minute: int) -> str:
    """Return a minute of the week as `Mon 10:00`."""
    day, rest = divmod(minute, DAY)
    return f"{DAYS[day]} {rest // 60:02}:{rest % 60:02}"


def together(hours: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the sets of courses that take place at once, each with the first instant of it.

    More than before can be there only at the start of a lesson, so no other instant counts. A set
    that lies in another one says nothing more and is left out. A course without hours is always
    there.
    """
    spans = {name: [minutes(text) for text in texts] for name, texts in hours.items()}
    starts = sorted({begin for found in spans.values() for begin, _ in found})
    seen: dict[frozenset[str], str] = {}
    for instant in starts or [-1]:
        active = frozenset(name for name, found in spans.items() if _on(found, instant))
        if active:
            seen.setdefault(active, shown(instant) if instant >= 0 else "always")
    for active, when in seen.items():
        if not any(active < other for other in seen):
            yield when, tuple(name for name in hours if name in active)


def _on(spans: Iterable[tuple[int, int]], instant: int) -> bool:
    found = list(spans)
    return not found or any(begin <= instant < end for begin, end in found)
