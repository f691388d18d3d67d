"""What one person may have of a course at once, and for how long. Standard library only.

The plan has proved that each student has room for `Course.shares` shares of the course's size. A
notebook is one, unless notebooks of the course have no GPU, and so is each share on request,
whether it runs or waits. Both ways to get one
count both, before they make it and after: of two that are made at the same moment, the one that
the API server has later sees the other.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from bedplate.pods.hub import shares

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from bedplate.pods.hub.courses import Course

SERVERS: Final = "component=singleuser-server"
SERVER: Final = "hub.jupyter.org/servername"
#: Seconds of a share whose time is not said.
USUAL: Final = 3600
ENDED: Final = frozenset({"Succeeded", "Failed"})


def offers(course: Course, found: Iterable[shares.Offer]) -> list[shares.Offer]:
    """Return what a queue offers as far as one share of the course goes, its part of the node too.

    A course's queue has quota of the course's own resource alone. In which of its pools a share is,
    the queue decides: of several the least is offered.
    """
    cut: list[shares.Offer] = []
    for one in found:
        most = int(course.limits.get(one.resource, 0))
        if most and not cut:
            cut.append(
                replace(
                    one,
                    most=min(one.most, most),
                    labels={},
                    node_memory_mib=course.memory_mib // most or one.node_memory_mib,
                    node_cpu_milli=course.cpu_milli // most or one.node_cpu_milli,
                    node_shm_mib=course.shm_mib // most or None,
                    node_disk_mib=course.disk_mib // most or None,
                )
            )
    return cut


def chosen(course: Course, found: Iterable[shares.Offer], text: str) -> tuple[shares.Offer, int]:
    """Return the offer that has what is asked for, and how many units. Raises ShareError.

    Without a text it is what the course gives to each student.
    """
    cut = offers(course, found)
    if not text and cut:
        return cut[-1], cut[-1].most
    wanted = shares.wanted(text)
    try:
        return shares.chosen(cut, wanted)
    except shares.ShareError as error:
        if not cut:
            raise
        largest = cut[-1]
        allowed = f"{largest}, which the course gives to each student"
        fix = f"type %share request {largest.gpus * largest.most:g}"
        fix += f", or start a server of {' or '.join(course.sizes)}" if course.sizes else ""
        raise shares.ShareError(
            f"larger than a share of {course.name}", text, allowed, fix
        ) from error


def length(course: Course, text: str, now: datetime) -> int:
    """Return the seconds of a share that is asked for now; without a text those that are usual.

    Raises:
        ShareError: the text says no time, the course does not take place, or it is too long.
    """
    left = course.left(now)
    if left is None and course.hours:
        at = now.astimezone(course.here())
        what, allowed = f"{course.name} does not take place now", ", ".join(course.hours)
        raise shares.ShareError(what, f"{at:%a %H:%M}", allowed, course.timetable(now))
    bounds = []
    if left is not None:
        end = (now + left).astimezone(course.here())
        bounds.append((int(left.total_seconds()), f"the lesson ends at {end:%H:%M}"))
    if course.longest:
        bounds.append((course.longest, f"the longest time of a share of {course.name}"))
    most, why = min(bounds, default=(shares.LONGEST, ""))
    most = max(most, shares.SHORTEST)
    if not text:
        return min(USUAL, most)
    asked = shares.seconds(text)
    if bounds and asked > most:
        what, allowed = f"longer than a share of {course.name}", f"up to {span(most)}: {why}"
        raise shares.ShareError(what, text, allowed, f"write {span(most)} or less")
    return asked


def span(seconds: int) -> str:
    """Return seconds as a time that one types, rounded down to what is easy to read."""
    if seconds < 60:
        return f"{seconds}s"
    hours, minutes = divmod(seconds // 60, 60)
    return f"{hours}h" * bool(hours) + f"{minutes}m" * bool(minutes)


def held(
    pods: Iterable[Mapping[str, Any]], jobs: Iterable[Mapping[str, Any]], user: str, but: str = ""
) -> list[str]:
    """Name what a person has of a course: notebooks and shares that run or wait.

    Args:
        pods: the notebooks in the course's namespace.
        jobs: the shares in it.
        user: by the hub's name.
        but: the name of a pod or Job that does not count.
    """
    return [
        *(_notebook(one) for one in pods if _counts(one, user, but) and not _over(one)),
        *(
            str(one["metadata"]["name"])
            for one in jobs
            if _counts(one, user, but) and not shares.ended(one)
        ),
    ]


def _counts(one: Mapping[str, Any], user: str, but: str) -> bool:
    meta = one["metadata"]
    mine = (meta.get("annotations") or {}).get(shares.STUDENT) == user
    return mine and meta["name"] != but and "deletionTimestamp" not in meta


def _over(pod: Mapping[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") in ENDED


def _notebook(pod: Mapping[str, Any]) -> str:
    name = (pod["metadata"].get("annotations") or {}).get(SERVER, "")
    return f"notebook {name}" if name else "your notebook"


def allows(course: Course, has: list[str]) -> None:
    """Refuse one more than a person may have. Raises ShareError."""
    if len(has) < course.shares:
        return
    what = "runs and shares" if course.runs else "notebooks and shares"
    allowed = f"{course.shares} for each person, {what} together"
    own = [one for one in has if "notebook" not in one]
    fix = f"release {own[-1]} first" if own else "use the GPU of your notebook, or stop it first"
    what = f"one share more than {course.name} gives"
    raise shares.ShareError(what, f"{' and '.join(has)} already", allowed, fix)
