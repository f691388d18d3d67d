"""Sums of records: GPU-hours and share-hours by user, course, team or queue. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from bedplate.accounting.records import Record

By = Literal["user", "course", "team", "queue"]
UNKNOWN: Final = "(unknown)"
NONE: Final = "(none)"
HOUR: Final = 3600


@dataclass(frozen=True)
class Window:
    """From a second to another, the last not included."""

    start: int
    end: int

    @property
    def hours(self) -> float:
        """How long it is."""
        return max(0, self.end - self.start) / HOUR

    def seconds_of(self, record: Record) -> int:
        """Return how many seconds of a record lie in it; one that goes on goes to its end."""
        end = self.end if record.end is None else min(record.end, self.end)
        return max(0, end - max(record.start, self.start))


@dataclass(frozen=True)
class Row:
    """What one of them held in a window.

    `share_hours` are those of shares alone, each counted as one whatever its size; their GPUs are
    in `gpu_hours` too. `not_placed` is the part of `gpu_hours` whose length is known and whose
    place in time is not. `idle` is the part in which no pod used its GPU, `no_figure` the part of
    which that is not known.
    """

    name: str
    gpu_hours: float
    share_hours: float
    not_placed: float
    workloads: int
    running: int
    idle: float = 0.0
    no_figure: float = 0.0


def path_in(site: Path) -> Path:
    """Return where a site's records lie."""
    return site / ".bedplate" / "usage.jsonl"


def rows(records: Iterable[Record], window: Window, by: By, courses: Iterable[str]) -> list[Row]:
    """Return a row for each user, course, team or queue that held something, the largest first."""
    known = set(courses)
    held: dict[str, list[tuple[Record, int]]] = {}
    for one in records:
        if lasted := window.seconds_of(one):
            held.setdefault(_name(one, by, known), []).append((one, lasted))
    found = [_row(name, of) for name, of in held.items()]
    return sorted(found, key=lambda row: (-row.gpu_hours, row.name))


def _name(one: Record, by: By, courses: set[str]) -> str:
    if by == "user":
        return one.user or UNKNOWN
    if by == "course":
        return one.queue if one.queue in courses else NONE
    if by == "team":  # a team has one ClusterQueue, of its name
        return one.queue or UNKNOWN
    return f"{one.namespace}/{one.queue}" if one.queue else UNKNOWN


def _row(name: str, of: Sequence[tuple[Record, int]]) -> Row:
    def hours(one: Record, lasted: float) -> float:
        return sum(amount.gpus for amount in one.amounts) * lasted / HOUR

    parts = [(one, lasted, *_measured(one, lasted)) for one, lasted in of]

    shares = sum(
        amount.count * lasted / HOUR
        for one, lasted in of
        for amount in one.amounts
        if amount.shared
    )
    return Row(
        name=name,
        gpu_hours=sum(hours(*pair) for pair in of),
        share_hours=shares,
        not_placed=sum(hours(*pair) for pair in of if not pair[0].placed),
        workloads=len({one.uid for one, _ in of}),
        running=len({one.uid for one, _ in of if one.end is None}),
        idle=sum(hours(one, idle) for one, _, _, idle in parts),
        no_figure=sum(hours(one, lasted - known) for one, lasted, known, _ in parts),
    )


def _measured(record: Record, lasted: int) -> tuple[float, float]:
    """Return how many seconds of those in a window are known and idle.

    When a record was idle is not kept: a part of it has as much of that as the whole.
    """
    end = record.seen if record.end is None else record.end
    whole = max(lasted, record.measured, (end or 0) - record.start)
    part = lasted / whole if whole else 0.0
    return record.measured * part, min(record.idle, record.measured) * part


def reasons(records: Iterable[Record], window: Window) -> list[str]:
    """Return why it is not known what GPUs did, each once."""
    found = {one.no_figure for one in records if one.no_figure and window.seconds_of(one)}
    return sorted(found)


def window_of(records: Sequence[Record], since: int | None, until: int | None, now: int) -> Window:
    """Return the window: from the first record to now where nothing else was asked for."""
    end = now if until is None else min(until, now)
    start = min((one.start for one in records), default=end) if since is None else since
    return Window(min(start, end), end)


def over_time(
    records: Sequence[Record], window: Window
) -> tuple[list[int], Mapping[str, list[float]]]:
    """Return moments, and the GPUs that each team held from each of them on.

    A record that is not placed is drawn where it was put.
    """
    parts = [(one, max(one.start, window.start), window.seconds_of(one)) for one in records]
    parts = [part for part in parts if part[2]]
    moments = sorted({window.start, window.end, *(t for _, s, n in parts for t in (s, s + n))})
    place = {moment: number for number, moment in enumerate(moments)}
    found: dict[str, list[float]] = {}
    for one, start, lasted in parts:
        line = found.setdefault(one.queue or UNKNOWN, [0.0] * len(moments))
        for number in range(place[start], place[start + lasted]):
            line[number] += sum(amount.gpus for amount in one.amounts)
    return moments, dict(sorted(found.items()))
