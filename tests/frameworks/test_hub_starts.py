"""Fifty students who start at once against one, and what bounds them."""

from __future__ import annotations

import os
import statistics
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.frameworks.hub import course, hub_of
from tests.schedulers.api import eventually

if TYPE_CHECKING:
    from tests.frameworks.hub import RunningHub

TEAMS = {"hall": {"gpus": {"pool_class": (50, 0)}, "members": ["ada"]}}
STUDENTS = [f"s{number:02}" for number in range(1, 51)]
ROUNDS = 5
#: Of `/proc/PID/stat`, after the name: user and system time, its own and that of ended children.
TIMES = slice(11, 15)


def ready(hub: RunningHub) -> int:
    """Return how many students have a server to use."""
    return sum(one["ready"] for one in hub.servers().values())


def starts(hub: RunningHub, names: list[str]) -> float:
    """Return the seconds until the last of some students has a server; all are gone afterwards."""
    since = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: start(hub, name), names))
    eventually(lambda: ready(hub) == len(names), 300)
    seconds = time.monotonic() - since
    for name in names:
        hub.api("DELETE", f"users/{name}/server")
    eventually(lambda: not hub.servers() and not hub.plane.api.get("pods", "v1", "hall"), 300)
    return seconds


def start(hub: RunningHub, name: str) -> None:
    """Ask for a student's server."""
    hub.api("POST", f"users/{name}/server", {"profile": "hall-jax"})


def processor(hub: RunningHub) -> Counter[str]:
    """Return the seconds of CPU that each program has used."""
    found: Counter[str] = Counter()
    for name, process in hub.plane.processes.items():
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        found[name] = sum(map(int, fields[TIMES])) / os.sysconf("SC_CLK_TCK")
    return found


@pytest.mark.prove
def test_fifty_students_start_at_once(figures: dict[str, dict[str, float | str]]) -> None:
    """The real hub, Kueue, scheduler and API server; kubelets and notebooks take no time."""
    courses = {"hall": course("hall", members=STUDENTS)}
    with hub_of(TEAMS, courses, gpus=50) as hub:
        hub.secret("account-ada", "a-password-of-ada")
        hub.start()
        hub.api("POST", "users", {"usernames": STUDENTS})
        starts(hub, STUDENTS[:1])
        one = statistics.median(starts(hub, [name]) for name in STUDENTS[:ROUNDS])
        before = processor(hub)
        fifty = starts(hub, STUDENTS)
        used = processor(hub)
        used.subtract(before)
        ran = Counter(span.name for span in hub.kubelets.spans.values())
        assert all(ran[f"jupyter-{name}"] == 1 for name in STUDENTS[ROUNDS:])
        found = figures.setdefault("fifty students at once against one", {})
        found |= {"one, s": one, "fifty, s": fifty, "ratio": fifty / one}
        found |= {f"CPU of {name}, s": value for name, value in used.most_common(5)}
        found["processors"] = str(os.cpu_count())
