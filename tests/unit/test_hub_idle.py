"""What is idle: by the GPU and the programs of a pod, and by kernels where a node says no more."""

from __future__ import annotations

import json
import os
import threading
import time
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.pods.hub import idle, node_use
from bedplate.pods.hub.idle import State, Work, due, since, state_of, work_of
from bedplate.pods.hub.node_use import Gpus, Nvml, Process, Use, pod_of, processes
from tests.frameworks.programs import Programs
from tests.unit import test_gpu_simulation as simulated
from tests.unit.test_gpu_simulation import (
    LIBRARIES,
    install_driver,
    kernel,
    modprobe,
    paths,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

host = simulated.host

NOW = datetime(2026, 11, 23, 10, tzinfo=UTC)
OLD = NOW - timedelta(hours=2)
LATE = NOW - timedelta(seconds=5)
UID = "0a1b2c3d-0000-4000-8000-00000000000a"
OTHER = "0a1b2c3d-0000-4000-8000-00000000000b"
#: Watched for an hour: nothing was done in it.
NOTHING = Work(3600, measured=True, gpu=None, program=None)
HOUR = timedelta(hours=1)


def state(*busy: str, finished: datetime = OLD, active: datetime = OLD) -> State:
    """Return what Jupyter says."""
    return State(frozenset(busy), finished, active)


@pytest.mark.parametrize(
    ("said", "work", "expected"),
    [
        # A training in a terminal whose output is in a file: no sign of it in Jupyter.
        (state(), Work(3600, measured=True, gpu=3, program=2), NOW - timedelta(seconds=2)),
        (state(), Work(3600, measured=True, gpu=3, program=None), NOW - timedelta(seconds=3)),
        # Data is prepared on the processor, with a GPU that is not measured or waits for it.
        (state(), Work(3600, measured=True, gpu=None, program=2), NOW - timedelta(seconds=2)),
        (state(), Work(3600, measured=False, gpu=None, program=2), NOW - timedelta(seconds=2)),
        # A cell that sleeps, and a terminal that prints the date.
        (state("k"), NOTHING, NOW - HOUR),
        (state(active=LATE), NOTHING, NOW - HOUR),
        # A cell that ended lately keeps the server.
        (state(finished=LATE), NOTHING, LATE),
        # A reader that has just started knows nothing of before.
        (state("k"), Work(30, measured=True, gpu=None, program=None), NOW - 30 * HOUR / 3600),
        # Without the figure a busy kernel and a terminal's output keep it, as programs do.
        (state("k"), None, None),
        (state("k"), Work(3600, measured=False, gpu=None, program=None), None),
        (state(active=LATE), None, LATE),
        (state(), None, OLD),
    ],
)
def test_what_is_idle(said: State, work: Work | None, expected: datetime | None) -> None:
    assert since(said, work, NOW, None) == expected


def test_a_cell_that_was_just_begun_counts_from_then_on() -> None:
    assert since(state("k"), NOTHING, NOW, OLD, LATE) == LATE
    assert since(state(), None, NOW, LATE) == LATE, "a server has been ready for the idle time"


def test_nobody_is_stopped_without_a_warning_of_its_whole_length() -> None:
    limit, minute = timedelta(minutes=30), timedelta(minutes=1)
    assert due(24 * minute, limit, None) == ""
    assert due(26 * minute, limit, None) == "warn"
    assert due(26 * minute, limit, minute) == "warn"
    assert due(31 * minute, limit, 6 * minute) == "stop"
    assert due(300 * minute, limit, None) == "warn", "a hub that was away warns first"
    assert due(300 * minute, limit, 4 * minute) == "warn"
    assert idle.notice_time(timedelta(seconds=30)) == timedelta(seconds=10)


def test_the_warning_says_what_is_missing() -> None:
    text = idle.sentence("intro", "10:42", NOTHING)
    assert text.startswith("intro stops this server at 10:42: its GPU is not used and no program")
    assert "no cell and no program runs" in idle.sentence("intro", "10:42", None)
    assert "nothing for 30 minutes" in idle.ended(1800)


def test_jupyter_s_lists_become_a_state() -> None:
    old, new = "2026-11-23T09:00:00Z", "2026-11-23T10:00:00.5Z"
    assert state_of([], []) == State(frozenset(), None, None)
    kernels = [
        {"id": "a", "execution_state": "busy", "last_activity": new},
        {"id": "b", "execution_state": "idle", "last_activity": old},
    ]
    found = state_of(kernels, [{"last_activity": old}])
    assert found.busy == {"a"}
    assert found.finished == datetime.fromisoformat(old)
    assert found.active == datetime.fromisoformat(new)


def test_a_node_s_answer_is_of_the_pod_that_it_names() -> None:
    answer = {"watched": 60.0, "gpu": True, "pods": {UID: {"gpu": 1.0, "program": None}}}
    assert work_of(answer, UID) == Work(60.0, measured=True, gpu=1.0, program=None)
    assert work_of(answer, OTHER) is None
    assert work_of(None, UID) is None


@pytest.mark.parametrize(
    ("text", "uid"),
    [
        (
            f"0::/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-1.scope",
            UID,
        ),
        (f"0::/../../kubepods-besteffort-pod{UID.replace('-', '_')}.slice/crio-1.scope", UID),
        (f"12:devices:/kubepods/besteffort/pod{UID}/abc\n1:name=systemd:/x", UID),
        ("0::/system.slice/sshd.service", ""),
        ("0::/kubepods.slice/podcast.slice", ""),
    ],
)
def test_a_process_is_of_the_pod_of_its_cgroup(text: str, uid: str) -> None:
    assert pod_of(text) == uid


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_use_is_remembered_by_pod() -> None:
    clock, there, gpus = Clock(), {}, [Gpus()]
    use = Use(lambda: dict(there), lambda: gpus[0], clock)
    there |= {
        1: Process(UID, 5, 10.0, server=False),
        2: Process(OTHER, 6, 10.0, server=True),
    }
    first = use.answer()
    assert first["watched"] == 0
    assert first["pods"][UID] == {"gpu": None, "program": None, "memory_mib": 0}
    clock.now += 10
    there[1] = Process(UID, 5, 10.2, server=False)  # a fiftieth of a core: a loop with `date`
    there[2] = Process(OTHER, 6, 19.0, server=True)  # pages that are open
    found = use.answer()["pods"]
    assert (found[UID]["program"], found[OTHER]["program"]) == (None, None)
    clock.now += 10
    there[1] = Process(UID, 5, 11.0, server=False)
    gpus[0] = Gpus(frozenset({1, 99}), {1: 300, 99: 5})
    assert use.answer()["pods"][UID] == {"gpu": 0, "program": 0, "memory_mib": 300}
    clock.now += 10
    gpus[0] = Gpus()
    del there[2]
    found = use.answer()
    assert found["watched"] == 30
    assert found["pods"] == {UID: {"gpu": 10, "program": 10, "memory_mib": 0}}
    clock.now += 10
    there[1] = Process(UID, 7, 0.5, server=False)  # another process by that number
    assert use.answer()["pods"][UID]["program"] == 0
    clock.now += node_use.PAUSE + 1  # nobody asked: what was done meanwhile is not known
    assert use.answer()["watched"] == 0
    gpus[0] = Gpus(why="GPU 0: in MIG mode")
    clock.now += 10
    found = use.answer()
    assert (found["gpu"], found["why"]) == (False, "GPU 0: in MIG mode")
    gpus[0] = Gpus()
    clock.now += 5
    found = use.answer()
    assert (found["gpu"], found["watched"]) == (True, 15)
    assert found["pods"][UID]["gpu"] == 5, "nobody knows whether it used its GPU before"


def test_processes_come_from_proc(tmp_path: Path) -> None:
    """This process' own files, in a pod's cgroup; one of the host's, and one that is gone."""
    for name, group in (("11", f"0::/kubepods/pod{UID}/c"), ("12", "0::/init.scope")):
        place = tmp_path / name
        place.mkdir()
        (place / "cgroup").write_text(group)
        (place / "stat").write_text(Path("/proc/self/stat").read_text().replace("(", "(a ) (", 1))
        (place / "cmdline").write_bytes(b"python\0/opt/bin/jupyterhub-singleuser\0--ip\0")
    (tmp_path / "13").mkdir()
    (tmp_path / "self").mkdir()
    found = processes(tmp_path)
    assert set(found) == {11}
    assert (found[11].pod, found[11].server) == (UID, True)
    assert found[11].cpu == pytest.approx(sum(os.times()[:4]), abs=1)


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    """Run programs until the test ends."""
    found = Programs(tmp_path / "proc")
    yield found
    found.end()


def until(use: Use, pod: str, what: str) -> Any:
    """Ask until a pod has a figure."""
    for _ in range(300):
        if (found := use.answer()["pods"][pod][what]) is not None:
            return found
        time.sleep(0.1)
    raise AssertionError(f"{pod} has no {what}")


def test_a_program_that_computes_is_seen_and_sleepers_and_dates_are_not(
    programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_use, "FRESH", 2.0)
    programs.start(UID, "while :; do :; done > /dev/null")
    programs.start(OTHER, "while :; do date; sleep 1; done > /dev/null")
    use = Use(lambda: processes(programs.folder), lambda: Gpus(why="none"))
    assert use.answer()["pods"][UID]["program"] is None
    assert until(use, UID, "program") == 0
    assert use.answer()["pods"][OTHER]["program"] is None


def test_nvml_says_who_used_a_gpu(host: Callable[[str, int], Path], programs: Programs) -> None:
    """The reader as its pod runs it, on a host with two simulated GPUs, over HTTP."""
    root = host("t4-16gb", 2)
    install_driver(root)
    assert modprobe.main(["nvidia"]) == 0
    (nvml,) = (root / LIBRARIES).glob("libnvidia-ml.so.*")
    pid, other = (programs.start(one, "sleep 1000") for one in (UID, OTHER))
    read = Nvml(str(nvml))
    assert read() == Gpus()
    paths.write(paths.PLANTED, f"process 1 {pid} 2048 40\nprocess 1 {other} 512\n")
    kernel.show()
    assert read() == Gpus(frozenset({pid}), {pid: 2048, other: 512})
    use = Use(lambda: processes(programs.folder), read)
    with node_use.Server(("127.0.0.1", 0), use) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_address[1]}/") as answer:
            said = json.load(answer)
        server.shutdown()
    assert (said["gpu"], said["why"]) == (True, "")
    assert said["pods"][UID] == {"gpu": 0, "program": None, "memory_mib": 2048}
    assert said["pods"][OTHER] == {"gpu": None, "program": None, "memory_mib": 512}


def test_no_figure_is_a_reason(host: Callable[[str, int], Path]) -> None:
    """A GPU in MIG mode has none; no driver, none at all."""
    assert Nvml("libnothing.so.1")().why.startswith("NVML does not answer: libnothing.so.1")
    root = host("a100-sxm4-80gb", 1)
    install_driver(root)
    assert modprobe.main(["nvidia"]) == 0
    (nvml,) = (root / LIBRARIES).glob("libnvidia-ml.so.*")
    paths.write(paths.SETTINGS, "mig_mode 0 1 1\n")
    kernel.show()
    assert Nvml(str(nvml))().why == "GPU 0: use by process: not supported, as in MIG mode"
