"""What jobs can get of a lock: every way of sharing, and whose nodes count."""

from __future__ import annotations

from typing import Any

import pytest

from bedplate.catalogue import load_catalogue
from bedplate.planning.simulation.of_lock import supply_of
from tests.resolver.test_presets import choice
from tests.resolver.test_whole_sites import T4, decide, host, planned

H100 = {"bedplate_gpu": {"model": "h100-pcie-80gb", "count": 2}}
KUEUE = {"bedplate_schedulers": ["kueue"]}


def supply(pool: dict[str, Any], **everywhere: Any) -> Any:
    """Decide a site of one pool with a host of Slurm beside it, and return what it offers."""
    shared = KUEUE | everywhere
    lock = planned(
        decide(
            host("cp1", ["control_plane"], shared),
            host("n1", ["gpu_pools", "pool_a"], pool | shared),
            host("s1", ["slurm", "pool_s"], T4 | shared),
        )
    ).lock
    return supply_of(lock, load_catalogue(), {"pool_a": (32_000, 64 * 1024)})


@pytest.mark.parametrize(
    ("pool", "gives"),
    [
        (T4, ["whole GPUs"]),
        (
            T4 | {"bedplate_sharing": {"mode": "mps", "replicas": 4}},
            ["4 \N{MULTIPLICATION SIGN} 1/4 (4Gi)"],
        ),
        (
            T4 | {"bedplate_sharing": {"mode": "dra"}},
            ["any memory up to 16Gi of a GPU, and whole GPUs"],
        ),
        (
            H100 | {"bedplate_sharing": {"mode": "mig", "profile": "3g.40gb"}},
            ["2 \N{MULTIPLICATION SIGN} 3g.40gb"],
        ),
        (
            H100
            | {
                "bedplate_sharing": [
                    {"mode": "mig", "cards": [0], "profiles": {"1g.10gb": 2, "3g.40gb": 1}},
                    {"mode": "none", "cards": [1]},
                ]
            },
            [
                "2 \N{MULTIPLICATION SIGN} 1g.10gb and 1 \N{MULTIPLICATION SIGN} 3g.40gb",
                "whole GPUs",
            ],
        ),
    ],
    ids=["whole", "mps", "dra", "mig", "mixed"],
)
def test_what_each_gpu_gives(pool: dict[str, Any], gives: list[str]) -> None:
    found = supply(pool)
    assert [gpu.gives for gpu in found.kinds("pool_a")] == gives
    assert found.pools == ["pool_a"], "Slurm's GPUs are no pods'"
    assert found.notes[0] == "pool_s is Slurm's: its GPUs are left out."
    assert [(node.name, node.cpu, node.memory) for node in found.nodes] == [
        ("n1", 32_000, 64 * 1024)
    ]


def test_quotas_and_the_presets_values() -> None:
    teams = {"vision": {"gpus": {"pool_a": {"guaranteed": 2}}, "weight": 2.0, "priority": 3}}
    found = supply(T4, bedplate_teams=teams, **choice("classroom"))
    team = found.teams["vision"]
    assert (team.weight, team.priority) == (2.0, 3)
    quota = found.quota("vision", "pool_a")
    assert (quota.guaranteed, quota.most) == (2, 2), "this preset lends nothing"
    assert found.policy.strict
    assert (found.policy.place, found.policy.named) == ("binpack", "classroom")
    research = supply(T4, bedplate_teams=teams, **choice("research"))
    assert research.quota("vision", "pool_a").most is None
    assert research.policy.fair


def test_quotas_of_several_sizes_are_counted_together_and_it_says_so() -> None:
    mixed = {"mode": "mig", "profiles": {"1g.10gb": 4, "3g.40gb": 1}}
    sizes = {"1g.10gb": {"guaranteed": 4}, "3g.40gb": {"guaranteed": 1}}
    teams = {"vision": {"gpus": {"pool_a": {"sizes": sizes}}}}
    found = supply(H100 | {"bedplate_sharing": mixed}, bedplate_teams=teams)
    assert found.quota("vision", "pool_a").guaranteed == 5
    assert (
        "Teams' quotas of the sizes of pool_a are counted as one of all sizes together."
        in found.notes
    )
