"""All records, each once: what is seen again changes nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from bedplate.accounting.records import Record, Seen, read_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


#: How a record ends whose length Kueue adds to the Workload's past.
PAST: Final = ("evicted", "lost")


class Book:
    """Records by key. `changed` are the keys since it was last cleared."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._by_uid: dict[str, dict[int, Record]] = {}
        self.changed: set[tuple[str, int]] = set()
        self.add(records)
        self.changed.clear()

    def __iter__(self) -> Iterator[Record]:
        found = [one for records in self._by_uid.values() for one in records.values()]
        return iter(sorted(found, key=lambda one: (one.start, one.uid)))

    def of(self, uid: str) -> list[Record]:
        """Return the records of a Workload, the oldest first."""
        return [one for _, one in sorted(self._by_uid.get(uid, {}).items())]

    def add(self, records: Iterable[Record]) -> None:
        """Take in records of another book, which may have looked at other times."""
        theirs: dict[str, list[Record]] = {}
        for one in records:
            theirs.setdefault(one.uid, []).append(one)
        for uid, found in theirs.items():
            mine = self.of(uid)
            merged = {one.start: one for one in (_merged(mine, found) if mine else found)}
            for start in [one.start for one in mine if one.start not in merged]:
                del self._by_uid[uid][start]
            for one in merged.values():
                if one != self._by_uid.get(uid, {}).get(one.start):
                    self._put(one)

    def _put(self, record: Record) -> None:
        self._by_uid.setdefault(record.uid, {})[record.start] = record
        self.changed.add(record.key)

    def see(self, one: Seen, now: int, user: Callable[[], str]) -> None:
        """Take in what a Workload says now. `user` is asked where a record begins."""
        known = self.of(one.uid)
        if one.admitted is None and one.ended is None and not known:
            return
        for record in known:
            if record.end is None and record.start != one.admitted:
                self._close(record, one)
        self._unseen(one, user)
        if one.admitted is None:
            return
        present = self._by_uid.get(one.uid, {}).get(one.admitted)
        if present is not None and present.end is not None and not _goes_on(present):
            return
        begun = present or _begun(one, one.admitted, user())
        after = replace(
            begun,
            queue=one.queue or begun.queue,
            amounts=one.amounts or begun.amounts,
            end=None if one.ended is None else max(one.ended, one.admitted),
            why=one.why,
            seen=now if one.ended is None else None,
        )
        if after.amounts and after != present:
            self._put(after)

    def _close(self, record: Record, one: Seen) -> None:
        """End a record that no admission, or another one, has followed.

        Where more than one admission ended since, this record has the length of all of them.
        """
        cycles, lasted = self._not_yet(one)
        end = record.start + max(0, lasted)
        if one.admitted is None and one.ended is not None and cycles <= 1:
            end = max(one.ended, record.start)
        self._put(
            replace(
                record,
                end=end,
                why="evicted",
                seen=None,
                cycles=max(1, cycles),
                placed=cycles <= 1,
            )
        )

    def _not_yet(self, one: Seen) -> tuple[int, int]:
        """Return how many ended admissions no record has, and how many seconds they lasted."""
        cycles, lasted = _past(self.of(one.uid))
        return one.cycles - cycles, one.past - lasted

    def _unseen(self, one: Seen, user: Callable[[], str]) -> None:
        """Make one record of all admissions that came and went before anyone looked."""
        cycles, lasted = self._not_yet(one)
        end = one.ended if one.admitted is None else one.admitted
        if cycles <= 0 or lasted <= 0 or end is None or not one.amounts:
            return
        made = _begun(one, end - lasted, user())
        while made.start in self._by_uid.get(one.uid, {}):
            made = replace(made, start=made.start - 1)
        self._put(
            replace(made, end=made.start + lasted, why="evicted", cycles=cycles, placed=False)
        )

    def measure(self, uid: str, known: float, idle: float, why: str) -> None:
        """Add what is known of the GPUs of a Workload that goes on: seconds, and idle ones of them.

        Args:
            why: why no more is known.
        """
        for one in self.of(uid):
            if one.end is None:
                measured, idle = round(one.measured + known, 1), round(one.idle + idle, 1)
                self._put(replace(one, measured=measured, idle=idle, no_figure=why))

    def lose(self, alive: set[str], last: int) -> None:
        """End what goes on by the book and is not among the Workloads.

        Args:
            alive: UIDs of the Workloads that there are.
            last: when all of the book was last known to be so; 0 where only `seen` says it.
        """
        for record in list(self):
            if record.end is None and record.uid not in alive:
                end = max(record.start, record.seen or 0, last)
                self._put(replace(record, end=end, why="lost", seen=None))

    def forget(self, uids: Iterable[str]) -> None:
        """Drop the records of Workloads that are gone, once they are kept elsewhere."""
        for uid in uids:
            self._by_uid.pop(uid, None)


def _merged(mine: list[Record], theirs: list[Record]) -> list[Record]:
    """Return what two books know of one Workload.

    Of two records with one key the one that knows more is taken. A record that is not placed may
    stand for some that the other book has: of those only the length that is missing is left.
    """
    best: dict[int, Record] = {}
    for one in (*mine, *theirs):
        known = best.get(one.start)
        if one.placed and (known is None or _knows(one) > _knows(known)):
            best[one.start] = one
    for one in (*mine, *theirs):
        known = best.get(one.start)
        if known is not None and one.measured > known.measured:
            best[one.start] = replace(
                known, measured=one.measured, idle=one.idle, no_figure=one.no_figure
            )
    loose = [one for one in (*mine, *theirs) if not one.placed]
    if loose:
        have = _past(best.values())
        cycles, lasted = (max(pair) for pair in zip(_past(mine), _past(theirs), strict=True))
        if lasted > have[1]:
            base = max(loose, key=lambda one: ((one.end or 0) - one.start, one.start))
            start = base.start
            while start in best:
                start -= 1
            best[start] = replace(
                base, start=start, end=start + lasted - have[1], cycles=max(1, cycles - have[0])
            )
    return list(best.values())


def _past(records: Iterable[Record]) -> tuple[int, int]:
    """Return how many admissions have ended without the workload, and their seconds in all."""
    past = [one for one in records if one.end is not None and one.why in PAST]
    return sum(one.cycles for one in past), sum((one.end or 0) - one.start for one in past)


def _goes_on(record: Record) -> bool:
    """Tell whether an ended record may turn out to go on: times are in whole seconds."""
    return record.why == "lost" or (record.why == "evicted" and record.end == record.start)


def _knows(record: Record) -> tuple[int, int]:
    """Order what is known of a record: open and seen last, lost, ended by the queue."""
    if record.end is None:
        return 1, record.seen or 0
    if record.why == "lost":
        return 2, record.end
    return (0, 0) if _goes_on(record) else (3, record.end)


def _begun(one: Seen, start: int, user: str) -> Record:
    return Record(
        uid=one.uid,
        start=start,
        end=None,
        why="",
        namespace=one.namespace,
        queue=one.queue,
        workload=one.workload,
        user=user,
        amounts=one.amounts,
    )


def lines(records: Iterable[Record]) -> str:
    """Return records as JSON, one a line; equal records give equal bytes."""
    return "".join(json.dumps(one.as_json(), sort_keys=True) + "\n" for one in records)


def read_lines(text: str) -> list[Record]:
    """Return the records of such a text. Raises ValueError with the number of a wrong line."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            found.append(read_record(json.loads(line)))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"line {number}: {error}") from error
    return found
