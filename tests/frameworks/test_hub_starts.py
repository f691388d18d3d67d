"""Fifty students who start at once against one, and what bounds them."""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.frameworks.hub import course, hub_of
from tests.frameworks.notebooks import LiveKubelets, available, printed
from tests.schedulers.api import eventually

if TYPE_CHECKING:
    from tests.frameworks.hub import RunningHub
    from tests.schedulers.control_plane import ControlPlane

TEAMS = {"hall": {"gpus": {"pool_class": (50, 0)}, "members": ["ada"]}}
STUDENTS = [f"s{number:02}" for number in range(1, 51)]
ROUNDS = 5
#: MiB that are left to the other programs of the machine.
KEPT = 3000
#: All start within some such time: where one takes long, a busy machine has less to give.
SECONDS = 200
#: A cell that leaves something behind in a kernel.
REMEMBER = "mine = {name!r}"
#: Of `/proc/PID/stat`, after the name: user and system time, its own and that of ended children.
TIMES = slice(11, 15)


def ready(hub: RunningHub) -> int:
    """Return how many students have a server to use."""
    return sum(one["ready"] for one in hub.servers().values())


def started(hub: RunningHub, names: list[str]) -> float:
    """Return the seconds from asking until the last of some students has a server."""
    since = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: start(hub, name), names))
    eventually(lambda: ready(hub) == len(names), 600)
    return time.monotonic() - since


def starts(hub: RunningHub, names: list[str]) -> float:
    """Return the same; all are gone afterwards."""
    seconds = started(hub, names)
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


def told(kubelets: LiveKubelets, cell: str) -> dict[str, str]:
    """Run a cell in the kernel of every notebook, and return by pod what it prints."""
    found = sorted(kubelets.notebooks.items())
    sockets = [one.socket(cell.format(name=name)) for name, one in found]
    return dict(zip((name for name, _ in found), printed(sockets), strict=True))


@pytest.mark.prove
def test_fifty_real_notebooks_live_through_the_death_of_the_hub(
    figures: dict[str, dict[str, float | str]],
) -> None:
    """The notebooks' own program, a process for each student, and a kernel in each.

    As many as this machine carries, fifty at most. Containers there are none.
    """
    made: list[LiveKubelets] = []

    def live(plane: ControlPlane) -> LiveKubelets:
        made.append(LiveKubelets(plane))
        return made[0]

    courses = {"hall": course("hall", members=STUDENTS)}
    with hub_of(TEAMS, courses, gpus=50, kubelets_of=live) as hub:
        (kubelets,) = made
        for often in ("classes_every", "poll_every", "routes_every"):
            del hub.settings["service"][often]  # real notebooks are asked as often as in a class
        hub.secret("account-ada", "a-password-of-ada")
        hub.start()
        hub.api("POST", "users", {"usernames": STUDENTS})
        starts(hub, STUDENTS[:1])
        one = started(hub, STUDENTS[:1])
        (notebook,) = kubelets.notebooks.values()
        notebook.asks("POST", "kernels")
        told(kubelets, REMEMBER)
        each = notebook.memory()
        hub.api("DELETE", f"users/{STUDENTS[0]}/server")
        eventually(lambda: not hub.servers() and not kubelets.notebooks, 300)
        names = STUDENTS[: int(min((available() - KEPT) / each, SECONDS / one))]
        many = started(hub, names)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda one: one.asks("POST", "kernels"), kubelets.notebooks.values()))
        told(kubelets, REMEMBER)
        before = {name: one.process.pid for name, one in kubelets.notebooks.items()}
        assert set(before) == {f"jupyter-{name}" for name in names}
        found = figures.setdefault("real notebooks at once", {})
        found |= {"students": len(names), "MiB of each, with a kernel": each}
        found |= {"one, s": one, "all, s": many, "ratio": many / one}
        hub.stop(signal.SIGKILL)
        hub.kueue.process.stop(signal.SIGKILL)
        hub.kueue.start(hub.kueue.lock)
        hub.start()
        eventually(lambda: ready(hub) == len(names), 300)
        assert {name: one.process.pid for name, one in kubelets.notebooks.items()} == before
        assert all(one.process.running for one in kubelets.notebooks.values())
        assert told(kubelets, "print(mine)") == {name: f"{name}\n" for name in before}
        ran = Counter(span.name for span in kubelets.spans.values())
        assert all(ran[f"jupyter-{name}"] == 1 for name in names[1:]), "a student had two pods"
