"""When what holds a GPU is idle: what its GPU, its programs and its kernels did. Pure functions.

Where the node says when each pod used its GPU, that and the user's programs decide, and a kernel
that finished a cell. A cell that sleeps, and a terminal that only prints, are idle. Where the node
does not say it, kernels and terminals decide as well, as Jupyter reports them.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: How long before its end a student is warned, at the most, and as a part of the idle time.
WARN: Final = timedelta(minutes=5)
PART: Final = 3
#: Annotations: when somebody was first warned that what they have is idle, when it then ends, and
#: why it was stopped.
WARNED: Final = "bedplate.io/idle-warned"
ENDS: Final = "bedplate.io/idle-ends"
ENDED: Final = "bedplate.io/ended"


def moment(text: str) -> datetime:
    """Return a time as Kubernetes and Jupyter write it."""
    return datetime.fromisoformat(text)


@dataclass(frozen=True)
class State:
    """What Jupyter says: kernels that run a cell, when others last did, and all that printed."""

    busy: frozenset[str]
    finished: datetime | None
    active: datetime | None


@dataclass(frozen=True)
class Work:
    """What a node says of a pod: seconds since the GPU was used and since a program ran.

    None: not since `watched` seconds. `measured` is whether the GPU's use is known.
    """

    watched: float
    measured: bool
    gpu: float | None
    program: float | None


def state_of(kernels: Sequence[Mapping[str, Any]], terminals: Sequence[Mapping[str, Any]]) -> State:
    """Return the state of a notebook from its lists of kernels and terminals."""
    busy = [one for one in kernels if one.get("execution_state") == "busy"]
    times = [moment(one["last_activity"]) for one in kernels if one not in busy]
    every = [moment(one["last_activity"]) for one in (*kernels, *terminals)]
    return State(
        frozenset(str(one.get("id", "")) for one in busy),
        max(times, default=None),
        max(every, default=None),
    )


def work_of(answer: Mapping[str, Any] | None, uid: str) -> Work | None:
    """Return what a node's answer says of a pod; None where it says nothing."""
    if answer is None or uid not in answer["pods"]:
        return None
    pod = answer["pods"][uid]
    return Work(answer["watched"], answer["gpu"], pod["gpu"], pod["program"])


def since(
    state: State,
    work: Work | None,
    now: datetime,
    begun: datetime | None,
    started: datetime | None = None,
) -> datetime | None:
    """Return since when a notebook is idle; None while it is not.

    Args:
        begun: when it was ready.
        started: when a kernel was first seen busy that still is.
    """
    seen = [begun, state.finished]
    if work is not None:
        seen += [now - timedelta(seconds=min(one, work.watched)) for one in _ages(work)]
    if work is None or not work.measured:
        if state.busy:
            return None
        seen.append(state.active)
    else:
        seen.append(started)
    return max(filter(None, seen), default=now)


def _ages(work: Work) -> list[float]:
    found = [work.watched, work.program, work.gpu if work.measured else None]
    return [one for one in found if one is not None]


def notice_time(limit: timedelta) -> timedelta:
    """Return how long before the end of the idle time a student is warned."""
    return min(WARN, limit / PART)


def near(still: float | None, limit: float) -> bool:
    """Tell whether so many seconds without work are worth a warning."""
    return (
        still is not None and still >= limit - notice_time(timedelta(seconds=limit)).total_seconds()
    )


def due(idle: timedelta, limit: timedelta, warned: timedelta | None) -> str:
    """Return what is to be done: nothing, `warn` or `stop`.

    Nobody is stopped who was not warned for the whole time of a warning. `warned` is how long ago.
    """
    ahead = notice_time(limit)
    if idle < limit - ahead:
        return ""
    if warned is None:
        return "warn"
    return "stop" if idle > limit and warned >= ahead else "warn"


def changed(
    notes: Mapping[str, str], still: float | None, limit: float, now: datetime, why: str = ""
) -> tuple[str, dict[str, str | None]]:
    """Return what is to be done with what holds a GPU, and the annotations to change.

    Args:
        notes: its annotations. Who has it may write them too: what is no time counts as none, and
            so does a warning from before it was last in use.
        still: seconds since it did anything; None where that is not known.
        limit: seconds.
        why: what its user reads when it has ended; else for how long it was idle.
    """
    idle, most = timedelta(seconds=still or 0), timedelta(seconds=limit)
    warned = _written(notes, WARNED)
    warned = warned if warned is not None and now - idle <= warned <= now else None
    todo = "" if still is None else due(idle, most, None if warned is None else now - warned)
    if not todo:
        return "", {name: None for name in (WARNED, ENDS, ENDED) if name in notes}
    if todo == "stop":
        return todo, {ENDED: why or f"it was idle for {length(limit)}"}
    if warned is not None and ends(notes) is not None:
        return todo, {}
    end = now + max(most - idle, notice_time(most))
    return todo, {WARNED: now.isoformat(), ENDS: end.strftime("%Y-%m-%dT%H:%M:%SZ")}


def _written(notes: Mapping[str, str | None], name: str) -> datetime | None:
    """Return the time of an annotation; None where it is none."""
    with suppress(ValueError):
        found = moment(notes.get(name) or "")
        return found if found.tzinfo is not None else None
    return None


def ends(notes: Mapping[str, str | None]) -> datetime | None:
    """Return when what has these annotations ends since it is idle; None where it does not."""
    return _written(notes, ENDS)


def sentence(course: str, end: str, work: Work | None) -> str:
    """Return the warning, with what would keep the server."""
    measured = work is not None and work.measured
    why = "its GPU is not used and no program runs" if measured else "no cell and no program runs"
    return f"{course} stops this server at {end}: {why}. Run something to keep it. Your files stay."


def ended(limit: float, *, share: bool = True) -> str:
    """Return what the page says from which a server is started again; `share` is what it held."""
    went = " Its share went to the queue." if share else ""
    return (
        f"Your notebook was stopped: it did nothing for {length(limit)}.{went} Your files are kept."
    )


def length(seconds: float) -> str:
    """Return a time in words."""
    if seconds < 120:
        return f"{seconds:g} seconds"
    return f"{seconds / 60:g} minutes"
