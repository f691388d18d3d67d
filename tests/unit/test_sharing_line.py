"""How a pool's sharing is said in one line, in plan and report."""

from __future__ import annotations

from typing import Any

import pytest

from bedplate.lock.model import Pool
from bedplate.lock.sharing_line import layout_text, sharing_line

WORDS = {"memory": "counted", "compute": "counted"}
SAID = "memory counted, compute counted"
T4 = {"model": "t4-16gb", "pci": ["10de:1eb8"], "count": 4}
LAYOUT = [
    {"cards": [0, 1], "profiles": {"1g.10gb": 7}},
    {"cards": [2], "profiles": {"1g.10gb": 4, "3g.40gb": 1}},
    {"cards": [3]},
]
ALSO = {"nvidia.com/mig-1g.10gb": 18, "nvidia.com/mig-3g.40gb": 1}


def pool(count: int, by: str = "cluster", **sharing: Any) -> Pool:
    also = ALSO if sharing.get("layout") else {}
    expects = {"resource": "nvidia.com/gpu", "count": count, "also": also, "by": by}
    return Pool.model_validate(
        {
            "os": "debian-12",
            "kind": "bare-metal",
            "gpu": [T4],
            "sharing": {**WORDS, **sharing},
            "expects": expects,
        }
    )


@pytest.mark.parametrize(
    ("one", "hosts", "line"),
    [
        (
            pool(40, mode="time-slicing", replicas=10),
            1,
            f"time-slicing, 40 shares of t4-16gb, {SAID}",
        ),
        (pool(4, mode="none"), 2, f"none, 8 whole GPUs of t4-16gb, {SAID}"),
        (pool(1, mode="mps", replicas=1), 1, f"mps, 1 share of t4-16gb, {SAID}"),
        (
            pool(28, mode="mig", profile="1g.10gb"),
            1,
            f"mig, 28 instances of 1g.10gb of t4-16gb, {SAID}",
        ),
        (
            pool(1, mode="mig", layout=LAYOUT),
            2,
            f"mig, 2 whole GPUs, 36 of 1g.10gb, 2 of 3g.40gb on t4-16gb, {SAID}",
        ),
        (
            pool(4, "dra", mode="dra", share_memory="8Gi"),
            1,
            f"dra, shares of any size of 4 t4-16gb, 8Gi where a claim names none, {SAID}",
        ),
        (pool(4, mode="none", memory=None, compute=None), 1, "none, 4 whole GPUs of t4-16gb"),
    ],
)
def test_one_line(one: Pool, hosts: int, line: str) -> None:
    """Mode, what all hosts of the pool have together, and the words."""
    assert sharing_line(one, hosts) == line


def test_a_pool_without_gpus_has_none() -> None:
    """A hypervisor's, or one of another maker's accelerators."""
    assert sharing_line(pool(4, mode="none").model_copy(update={"gpu": []}), 1) == ""
    assert sharing_line(pool(4, mode="none").model_copy(update={"expects": None}), 1) == ""


def test_a_layout_in_words() -> None:
    """As the changes of a lock are shown."""
    said = "GPU 0, 1: 7 of 1g.10gb; GPU 2: 4 of 1g.10gb, 1 of 3g.40gb; GPU 3: whole"
    assert layout_text(LAYOUT) == said
