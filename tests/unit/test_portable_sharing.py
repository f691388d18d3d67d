"""Evidence of how GPUs are shared: canned cards, and a daemon's answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bedplate.portable import mig
from bedplate.portable.evidence import mps as mps_evidence
from bedplate.portable.evidence import sharing as sharing_evidence
from bedplate.portable.evidence.area import Collected, Wishes
from bedplate.portable.host import Host, Result
from tests.unit import test_portable_mig as canned
from tests.unit.test_portable_mig import LAYOUT, MIXED, Cards

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

cards = canned.cards


def evidence(cards: Cards, **wish: object) -> dict[str, tuple[str, str]]:
    to = Collected([], {}, {})
    sharing = {"mode": "none", "replicas": 0, "mig_profiles": [], "compute_mode": "default"}
    sharing_evidence.collect(cards.host, Wishes(sharing={**sharing, **wish}), to)
    return {one["id"]: (one["result"], one["reason"]) for one in to.checks}


def file(cards: Cards, name: str, text: str) -> None:
    path = cards.root / name.lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def offer(cards: Cards, text: str) -> None:
    file(cards, sharing_evidence.CONFIGURATION, f"version: v1\nflags:\n  migStrategy: {text}")


def test_whole_cards_that_nobody_shares_are_well(cards: Cards) -> None:
    offer(cards, "none\n")
    found = evidence(cards)
    assert {name: result for name, (result, _) in found.items()} == {
        "sharing.mig": "pass",
        "sharing.boot": "skipped",
        "sharing.compute_mode": "pass",
        "sharing.replicas": "pass",
        "sharing.mps": "skipped",
    }


@pytest.mark.parametrize(
    ("name", "wish", "configuration"),
    [
        ("sharing.mig", {"mode": "mig", "mig_profiles": ["1g.10gb"]}, "single\n"),
        ("sharing.boot", {"mode": "mig", "mig_profiles": ["1g.10gb"]}, "single\n"),
        ("sharing.compute_mode", {"compute_mode": "prohibited"}, "none\n"),
        ("sharing.replicas", {"mode": "mig", "mig_profiles": ["1g.10gb"]}, "none\n"),
        (
            "sharing.replicas",
            {"mode": "time-slicing", "replicas": 4},
            "none\nsharing:\n  timeSlicing:\n      - name: nvidia.com/gpu\n        replicas: 10\n",
        ),
        ("sharing.mps_shm", {"mode": "mps", "replicas": 4}, "none\n"),
    ],
)
def test_each_difference_fails_its_check(
    cards: Cards, name: str, wish: dict[str, object], configuration: str
) -> None:
    offer(cards, configuration)
    assert evidence(cards, **wish)[name][0] == "fail"


def test_mps_belongs_to_the_device_plugin_alone(cards: Cards) -> None:
    file(cards, "/proc/mounts", "shm /run/nvidia/mps/shm tmpfs rw 0 0\n")
    file(cards, "/proc/9/comm", "nvidia-cuda-mps-control"[:15] + "\n")
    file(cards, "/proc/9/cgroup", "0::/kubepods.slice/pod1\n")
    found = evidence(cards, mode="mps", replicas=20)
    assert (found["sharing.mps"][0], found["sharing.mps_shm"][0]) == ("pass", "pass")
    assert found["sharing.compute_mode"] == (
        "skipped",
        "the MPS daemon sets it once the host joins",
    )
    file(cards, "/proc/9/cgroup", "0::/system.slice/mps.service\n")
    assert evidence(cards, mode="mps", replicas=20)["sharing.mps"][0] == "fail"


def test_a_mixed_layout_is_compared_card_by_card(tmp_path: Path) -> None:
    cards = Cards(tmp_path, count=3)
    offer(cards, "mixed\n")
    file(cards, sharing_evidence.ENABLED, "")
    mig.apply(cards.host, MIXED, "node")
    wish = {"mode": "mig", "mig_layout": LAYOUT}
    results = {name: result for name, (result, _) in evidence(cards, **wish).items()}
    assert results == {
        "sharing.mig": "pass",
        "sharing.boot": "pass",
        "sharing.compute_mode": "pass",
        "sharing.replicas": "pass",
        "sharing.mps": "skipped",
    }
    cards.layout[2].pop()
    offer(cards, "single\n")
    results = {name: result for name, (result, _) in evidence(cards, **wish).items()}
    assert (results["sharing.mig"], results["sharing.replicas"]) == ("fail", "fail")


def test_containers_can_be_given_each_instance_and_each_whole_card() -> None:
    gpus = [{"model": "a100-sxm4-80gb", "count": 4}]
    mixed = Wishes(gpus=gpus, sharing={"mode": "mig", "mig_layout": LAYOUT})
    assert (mixed.device_count, mixed.strategy) == (3 + 1 + 7 + 1, "mixed")
    equal = Wishes(gpus=gpus, sharing={"mode": "mig", "mig_profiles": ["1g.10gb"] * 7})
    assert (equal.device_count, equal.strategy) == (28, "single")
    assert (Wishes(gpus=gpus).device_count, Wishes(gpus=gpus).strategy) == (4, "none")


@pytest.mark.parametrize(
    ("said", "mib", "same"),
    [
        ("3G", 3840, True),
        ("5G", 5120, True),
        ("768M", 768, True),
        # What the driver keeps of a card counts for one and not for the other.
        ("3777M", 3840, True),
        ("2G", 3840, False),
        ("80G", 4077, False),
        ("512M", 768, False),
        ("", 3840, False),
    ],
)
def test_a_limit_of_memory_is_compared_as_the_daemon_says_it(
    said: str, mib: int, same: bool
) -> None:
    assert mps_evidence.same_memory(said, mib) is same


class Daemon:
    """The answers of a control daemon on a host with two H100, by question."""

    def __init__(self, cards: Cards) -> None:
        file(cards, "/etc/kubernetes/kubelet.conf", "")
        self.cards = cards
        self.threads = Result(0, "5.0\n", "")
        self.memory = {0: "3G\n", 1: "4077M\n"}
        self.run = cards.run
        cards.host = Host(str(cards.root), self.answer)

    def answer(self, argv: Sequence[str], *rest: object) -> Result:
        if argv[0] == "sh":
            return self.said(argv[2].split(" | ")[0].split()[1:])
        if "memory.total" in argv[1]:
            row = "{0}, NVIDIA H100, GPU-{0}, 81559, Enabled, 00000000:0{0}:00.0, 535.261.03\n"
            return Result(0, row.format(0) + row.format(1), "")
        return self.run(argv, *rest)

    def said(self, words: list[str]) -> Result:
        if words[0] == "get_default_active_thread_percentage" or self.threads.code:
            return self.threads
        assert words[0] == "get_default_device_pinned_mem_limit"
        return Result(0, self.memory[int(words[1])], "")

    def found(self) -> dict[str, tuple[str, object]]:
        """Result and what was found, of both checks."""
        to = Collected([], {}, {})
        sharing = {"mode": "mps", "replicas": 20, "mig_profiles": [], "compute_mode": ""}
        sharing_evidence.collect(self.cards.host, Wishes(sharing=sharing), to)
        checks = {one["id"]: one for one in to.checks}
        self.facts = to.facts
        return {
            name: (checks["sharing." + name]["result"], checks["sharing." + name]["found"])
            for name in ("mps_limits", "mps_memory")
        }


LIMITED = ("pass", {"active threads": "5 %"})


@pytest.fixture
def daemon(cards: Cards) -> Daemon:
    return Daemon(cards)


def test_limits_are_read_back_and_kept_as_they_were_said(daemon: Daemon) -> None:
    assert daemon.found() == {
        "mps_limits": LIMITED,
        "mps_memory": ("pass", {"GPU 0": "4077M", "GPU 1": "4077M"}),
    }
    assert daemon.facts["mps"] == {"active threads": "5 %", "GPU 0": "3G", "GPU 1": "4077M"}


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("30G\n", "30G"),
        ("", "no limit"),
        # A driver whose daemon limits no memory: its exit status is 0 as well.
        ('Unknown command "get_default_device_pinned_mem_limit"\n', None),
    ],
)
def test_a_limit_that_was_lifted_or_never_came_is_found_with_its_card(
    daemon: Daemon, said: str, found: str | None
) -> None:
    daemon.memory[1] = said
    assert daemon.found() == {
        "mps_limits": LIMITED,
        "mps_memory": ("fail", {"GPU 0": "4077M", "GPU 1": found or said.strip()}),
    }


def test_a_changed_part_of_the_threads_is_found(daemon: Daemon) -> None:
    daemon.threads = Result(0, "100.0\n", "")
    assert daemon.found()["mps_limits"] == ("fail", {"active threads": "100 %"})


@pytest.mark.parametrize(
    "said",
    [
        Result(1, "", "Cannot find MPS control daemon process"),
        Result(127, "", "sh: 1: nvidia-cuda-mps-control: not found"),
        Result(0, "", ""),
    ],
)
def test_a_daemon_that_does_not_answer_is_one_failure(daemon: Daemon, said: Result) -> None:
    daemon.threads = said
    assert daemon.found() == {"mps_limits": ("fail", None), "mps_memory": ("skipped", None)}
