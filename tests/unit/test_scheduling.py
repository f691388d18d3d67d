"""Tests that share hosts must stay on one worker, whatever pytest-xdist makes of marks."""

from __future__ import annotations

from collections import OrderedDict
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import ON_HOSTS, WITH_CONTROL_PLANE, FolderScheduling

if TYPE_CHECKING:
    from collections.abc import Iterator

ROLES = "tests/roles/test_scenarios.py::test_molecule[roles/{}/molecule/default]"
#: Has hosts of its own.
SITE = "tests/roles/test_scenarios.py::test_molecule[extensions/molecule/default]"


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        ("tests/site/test_site.py::test_a", "tests/site/test_site.py::test_b", True),
        ("tests/site/test_site.py::test_a", "tests/site/test_upgrade.py::test_b", True),
        (ROLES.format("gpu_verify"), ROLES.format("host_baseline"), True),
        (ROLES.format("gpu_verify"), SITE, False),
        ("tests/site/test_site.py::test_a", SITE, False),
        ("tests/unit/test_tools.py::test_a", "tests/unit/test_tools.py::test_b", False),
    ],
)
def test_folders_with_hosts_are_one_scope(first: str, second: str, *, together: bool) -> None:
    scheduling = FolderScheduling.__new__(FolderScheduling)
    assert (scheduling._split_scope(first) == scheduling._split_scope(second)) == together


class Worker:
    """Runs the tests that it is sent one by one."""

    gateway = SimpleNamespace(id="")
    shutting_down = False

    def __init__(self) -> None:
        self.queue: list[int] = []
        self.send_runtest_some = self.queue.extend

    def shutdown(self) -> None:
        self.shutting_down = True


def scheduled(workers: int, tests: list[str]) -> tuple[FolderScheduling, list[Worker]]:
    """Return a scheduler that has begun with these tests, and its workers."""
    scheduling: Any = FolderScheduling.__new__(FolderScheduling)
    scheduling.numnodes, scheduling.collection = workers, None
    scheduling.workqueue, scheduling.assigned_work = OrderedDict(), {}
    scheduling.registered_collections, scheduling.log = {}, lambda *_: None
    scheduling.config = SimpleNamespace(option=SimpleNamespace(loadscopereorder=True))
    nodes = [Worker() for _ in range(workers)]
    for node in nodes:
        scheduling.add_node(node)
        scheduling.add_node_collection(node, tests)
    scheduling.schedule()
    return scheduling, nodes


def scope_of(test: str) -> str:
    """Return what a test is scheduled with."""
    return FolderScheduling.__new__(FolderScheduling)._split_scope(test)


def running(workers: int, tests: list[str]) -> Iterator[list[str]]:
    """Yield the tests that run at a time, one of each worker, until all are done."""
    scheduling, nodes = scheduled(workers, tests)
    while busy := [node for node in nodes if node.queue]:
        yield [tests[node.queue[0]] for node in busy]
        for node in busy:
            scheduling.mark_test_complete(node, node.queue.pop(0))


@pytest.mark.parametrize("workers", [2, 3, 4])
def test_of_many_workers_two_have_hosts(workers: int) -> None:
    """While others have something else to do; every test is run once."""
    folders = ("site/test_a.py", "hosts/test_a.py", "standin/test_a.py", "schedulers/test_a.py")
    tests = [f"tests/{folder}::test_{n}" for folder in folders for n in range(5)]
    alike = ("container_runtime", "cuda_toolkit", "gpu_verify", "host_baseline", "nvidia_driver")
    tests += [ROLES.format(role) for role in (*alike, "kubernetes_node", "slurm")] + [SITE]
    tests += [f"tests/unit/test_a.py::test_{n}" for n in range(200)]
    most = 0
    ran = []
    for now in running(workers, tests):
        ran += now
        most = max(most, sum(scope_of(test).startswith(ON_HOSTS) for test in now))
    assert sorted(ran) == sorted(tests)
    assert most == 2


def test_no_control_plane_runs_beside_the_site() -> None:
    """While there is something else to do; every test is run once."""
    long = [f"tests/schedulers/test_a.py::test_{n}" for n in range(90)]
    tests = [f"tests/site/test_a.py::test_{n}" for n in range(100)] + long
    tests += [ROLES.format("slurm"), SITE]
    tests += [f"tests/unit/test_a.py::test_{n}" for n in range(150)]
    ran, beside = [], []
    for now in running(2, tests):
        ran += now
        if any(test.startswith("tests/site/") for test in now):
            beside += [test for test in now if scope_of(test).startswith(WITH_CONTROL_PLANE)]
    assert sorted(ran) == sorted(tests)
    assert beside == []


def test_what_ended_a_worker_is_not_run_again() -> None:
    """The base gives it to the next worker, which it ends as well, and so on."""
    tests = [f"tests/site/test_site.py::test_{n}" for n in range(9)]
    tests += [f"tests/unit/test_a.py::test_{n}" for n in range(9)]
    scheduling, (ended, other) = scheduled(2, tests)
    first, second, *_ = list(ended.queue)
    scheduling.mark_test_complete(ended, first)
    assert scheduling.remove_node(ended) == tests[second]
    ran = list(other.queue)
    while other.queue:
        scheduling.mark_test_complete(other, other.queue.pop(0))
        ran += [one for one in other.queue if one not in ran]
    assert sorted([*ran, first, second]) == list(range(len(tests)))
