"""Who has used the GPU-hours of a week, by the records: the sums are those of `bedplate usage`.

Standard library only.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from bedplate.accounting.usage import UNKNOWN, Window, rows
from bedplate.pods.hub import hours

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bedplate.accounting.records import Record

#: By queue: the team or course whose limit it is, and GPU-hours that one person has in a week.
Limits = dict[str, tuple[str, float]]
NEVER: Final = datetime.min.replace(tzinfo=UTC)
#: In the reasons of requests that wait for their person's next week.
OF_WEEK: Final = "GPU-hours of team"


@dataclass
class Hours:
    """What each person has used of each team and course with a limit, as of the last count."""

    limits: Limits
    _used: dict[str, dict[str, float]] = field(default_factory=dict)
    #: With the figure of the first count: one that changes would be written to all that waits.
    _over: dict[tuple[str, str], str] = field(default_factory=dict)
    _until: datetime = NEVER

    def since(self, now: float) -> int:
        """Return when the week of a moment began, both in seconds since 1970."""
        return int(hours.week(datetime.fromtimestamp(now, UTC))[0].timestamp())

    def count(self, records: Iterable[Record], now: float) -> None:
        """Sum up what lies in this week."""
        by: dict[str, list[Record]] = {of: [] for of, _ in self.limits.values()}
        for one in records:
            if one.queue in self.limits:
                by[self.limits[one.queue][0]].append(one)
        window = Window(self.since(now), int(now))
        self._used = {
            of: {row.name: row.gpu_hours for row in rows(found, window, "user", ())}
            for of, found in by.items()
        }
        self._until = hours.week(datetime.fromtimestamp(now, UTC))[1]
        over = {
            (of, user): self._sentence(user, has, most, of)
            for of, most in self.limits.values()
            for user, has in self._used[of].items()
            if has >= most
        }
        again = hours.when(self._until)
        kept = {key: text for key, text in self._over.items() if key in over and again in text}
        self._over = over | kept

    def over(self, team: str, user: str) -> str:
        """Return why a person has to wait; empty for who has hours left."""
        return self._over.get((team, user or UNKNOWN), "")

    def _sentence(self, user: str, has: float, most: float, of: str) -> str:
        used = f"{user} has used {has:.2f} of {most:g} {OF_WEEK} {of} in this week"
        return f"{used}: this waits until {hours.when(self._until)}"

    def table(self) -> dict[str, str]:
        """Return the content of the ConfigMap that the hub reads."""
        used = {
            of: {user: round(has, 4) for user, has in sorted(people.items())}
            for of, people in sorted(self._used.items())
        }
        return {hours.CONTENT: json.dumps({"until": self._until.isoformat(), "used": used})}
