"""GPU-hours of a person in a week: the recorder's table, and what who has none left reads.

The recorder of usage writes the table from its records, and the hub starts nothing more for who has
used up those of a course. Standard library only.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from bedplate.pods.hub import shares

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bedplate.pods.hub.courses import Course

NAME: Final = "hours"
TABLE: Final = f"/api/v1/namespaces/bedplate-accounting/configmaps/{NAME}"
CONTENT: Final = "hours.json"
#: As texts end: `Monday, 30 November, 00:00 UTC`.
WHEN: Final = "%A, {} %B, %H:%M UTC"


def week(now: datetime) -> tuple[datetime, datetime]:
    """Return the Monday before and the one after, in UTC."""
    here = now.astimezone(UTC)
    day = here.replace(hour=0, minute=0, second=0, microsecond=0)
    begin = day - timedelta(days=here.weekday())
    return begin, begin + timedelta(days=7)


def when(moment: datetime) -> str:
    """Return a moment in words."""
    return f"{moment:{WHEN.format(moment.day)}}"


def used(table: Mapping[str, Any], of: str, user: str, now: datetime) -> float:
    """Return what a person has used in this week; nothing where the table is of an earlier one.

    Args:
        table: the ConfigMap.
        of: the course, or the team.
    """
    found = json.loads((table.get("data") or {}).get(CONTENT) or "{}")
    if found.get("until") != week(now)[1].isoformat():
        return 0.0
    return float((found["used"].get(of) or {}).get(user, 0.0))


def allows(course: Course, table: Mapping[str, Any], user: str, now: datetime) -> None:
    """Refuse more to who has no GPU-hours left of a course. Raises ShareError."""
    of = course.of or course.name
    has = used(table, of, user, now)
    if course.gpu_hours and has >= course.gpu_hours:
        raise shares.ShareError(
            f"no GPU-hours of {of} are left in this week",
            f"{has:.2f} used since Monday",
            f"{course.gpu_hours:g} for each person",
            f"start it again from {when(week(now)[1])} on",
        )
