"""Limits of MPS in NVIDIA's own control daemon: read back, planted wrong, and attacked.

The daemons are those of Debian 12 (R535) and Debian 13 (R550). No GPU is behind them, so that
nothing is computed: what they hold, and whom they obey, is theirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bedplate.components.frameworks.hub_objects import USER
from bedplate.portable.evidence import checks, sharing
from bedplate.portable.evidence.area import Collected, Wishes
from tests.sharing.conftest import NOBODY

if TYPE_CHECKING:
    from tests.sharing.conftest import Daemon

REPLICAS = 48
LIMITS = ["sharing.mps_limits", "sharing.mps_memory"]


def evidence(daemon: Daemon) -> dict[str, Any]:
    """Return the checks of the limits, by id."""
    to = Collected([], {}, {})
    wish = {"mode": "mps", "replicas": REPLICAS, "mig_profiles": [], "compute_mode": ""}
    sharing.collect(daemon.host(), Wishes(sharing=wish), to)
    return {one["id"]: one for one in to.checks if one["id"] in LIMITS}


def results(daemon: Daemon) -> list[str]:
    found = evidence(daemon)
    return [found[name]["result"] for name in LIMITS]


def test_limits_that_were_set_are_read_back(daemon: Daemon) -> None:
    assert results(daemon) == ["fail", "fail"]  # a daemon without limits is no limited one
    daemon.limit(REPLICAS)
    assert results(daemon) == ["pass", "pass"]


def test_the_user_of_notebooks_reads_the_limit_of_the_gpu(daemon: Daemon) -> None:
    """By the pipe that the device plugin gives a container, and without any right."""
    questions = ("get_default_device_pinned_mem_limit 0", "get_default_active_thread_percentage")
    assert [daemon.ask(one, USER) for one in questions] != ["320M", "2.0"]
    daemon.limit(REPLICAS)
    assert [daemon.ask(one, USER) for one in questions] == ["320M", "2.0"]


def test_a_wrong_gpu_number_leaves_a_gpu_without_limit_and_it_is_named(daemon: Daemon) -> None:
    """The daemon takes the number without a word, and its exit status is 0."""
    daemon.limit(REPLICAS)
    daemon.ask("set_default_device_pinned_mem_limit 1 0M")  # there is no other way to none
    assert daemon.ask("set_default_device_pinned_mem_limit 77 320M") == ""
    found = evidence(daemon)
    (said,) = checks.failures(found.values(), "gpu-b")
    assert said.startswith(
        "memory that an MPS client gets of every GPU — gpu-b [sharing.mps_memory] — "
        "got GPU 1=no limit / allowed GPU 1=320M — Drain the node, "
    )


def test_an_unprivileged_user_lifts_the_limits_of_all_on_535_and_not_on_550(
    daemon: Daemon,
) -> None:
    daemon.limit(REPLICAS)
    answers = [
        daemon.ask("set_default_active_thread_percentage 100", NOBODY),
        daemon.ask("set_default_device_pinned_mem_limit 0 15G", NOBODY),
    ]
    found = evidence(daemon)
    if daemon.version == "535":
        assert answers == ["100.0", ""]
        assert [found[name]["result"] for name in LIMITS] == ["fail", "fail"]
        assert found["sharing.mps_limits"]["found"] == {"active threads": "100 %"}
        assert found["sharing.mps_memory"]["found"] == {"GPU 0": "15G", "GPU 1": "320M"}
    else:
        assert daemon.version == "550"
        assert all(answer.startswith("Insufficient privileges for UID 65534") for answer in answers)
        assert [found[name]["result"] for name in LIMITS] == ["pass", "pass"]


def test_root_in_a_pod_lifts_them_on_both(daemon: Daemon) -> None:
    daemon.limit(REPLICAS)
    daemon.ask("set_default_device_pinned_mem_limit 1 15G")
    assert results(daemon) == ["pass", "fail"]


def test_nobody_but_its_owner_ends_the_daemon(daemon: Daemon) -> None:
    assert daemon.ask("quit", NOBODY) == "Not enough privilege to execute quit command"
    assert daemon.ask("get_default_active_thread_percentage", NOBODY) == "100.0"
