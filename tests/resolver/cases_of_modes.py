"""The cases about GPUs that differ, about claims, and about what a mode holds back. See `cases`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.properties.building import Plain, Pool
from tests.resolver.cases import (
    CGROUP_1,
    CGROUP_1_ALLOWED,
    UBUNTU,
    Case,
    driver,
    one,
    pins,
    share,
)

TWO_BOARDS = [{"model": "a100", "count": 4}, {"model": "b200", "count": 4}]
WHOLE = {"mode": "none", "cards": [3]}


def cut(cards: list[int], **profiles: int) -> dict[str, Any]:
    """Return an entry of GPUs that are divided; a profile's dot is an underscore."""
    named = {name.replace("_", ".").removeprefix("x"): count for name, count in profiles.items()}
    return {"mode": "mig", "cards": cards, "profiles": named}


def each(*entries: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a wish for GPUs that differ."""
    return list(entries)


#: GPUs that have several profiles, or that differ.
DIVIDED = [
    Case(
        "mig-geometry",
        "instances-that-have-room",
        one(sharing=share("mig", profiles={"3g.40gb": 1, "1g.10gb": 4})),
        one(sharing=share("mig", profiles={"3g.40gb": 1, "1g.10gb": 5})),
        {
            "pools.pool_a.sharing.layout.0.cards": [0, 1, 2, 3],
            "pools.pool_a.sharing.layout.0.profiles": {"1g.10gb": 4, "3g.40gb": 1},
            "pools.pool_a.expects": {
                "resource": "nvidia.com/mig-1g.10gb",
                "count": 16,
                "also": {"nvidia.com/mig-3g.40gb": 4},
                "by": "cluster",
            },
        },
    ),
    Case(
        "mig-geometry",
        "places-that-overlap",
        one(sharing=share("mig", profiles={"3g.40gb": 1, "2g.20gb": 2})),
        one(sharing=share("mig", profiles={"3g.40gb": 1, "2g.20gb": 3})),
    ),
    Case(
        "mig-geometry",
        "a-profile-of-another-board",
        one(sharing=share("mig", profiles={"1g.10gb": 7})),
        one(sharing=share("mig", profiles={"1g.23gb": 7})),
    ),
    Case(
        "mig-geometry",
        "places-that-nobody-has-read",
        one("b200", sharing=share("mig", profiles={"1g.23gb": 7})),
        one("b200", sharing=share("mig", profiles={"1g.23gb": 3, "3g.40gb": 1})),
    ),
    Case(
        "mig-geometry",
        "a-profile-that-pods-cannot-name",
        one(sharing=share("mig", profile="1g.10gb+me")),
        one(sharing=share("mig", profiles={"1g.10gb+me": 1, "1g.10gb": 6})),
    ),
    Case(
        "sharing-cards",
        "each-once",
        one(sharing=each(cut([0, 1], x1g_10gb=7), cut([2], x3g_40gb=1, x1g_10gb=4), WHOLE)),
        one(sharing=each(cut([0, 1], x1g_10gb=7), cut([1, 2], x3g_40gb=1), WHOLE)),
        {
            "pools.pool_a.sharing.mode": "mig",
            "pools.pool_a.sharing.layout.1.cards": [2],
            "pools.pool_a.sharing.layout.2.profiles": {},
            "pools.pool_a.expects": {
                "resource": "nvidia.com/gpu",
                "count": 1,
                "also": {"nvidia.com/mig-1g.10gb": 18, "nvidia.com/mig-3g.40gb": 1},
                "by": "cluster",
            },
        },
    ),
    Case(
        "sharing-cards",
        "every-one",
        one(sharing=each({"mode": "mig", "profile": "3g.40gb", "cards": [0, 1, 2]}, WHOLE)),
        one(sharing=each({"mode": "mig", "profile": "3g.40gb", "cards": [0, 1]}, WHOLE)),
        {"pools.pool_a.sharing.layout.0.profiles": {"3g.40gb": 2}},
    ),
    Case(
        "sharing-cards",
        "no-more-than-there-are",
        one(sharing=each(cut([0, 1, 2], x1g_10gb=7), WHOLE)),
        one(sharing=each(cut([0, 1, 2, 4], x1g_10gb=7), WHOLE)),
    ),
    Case(
        "sharing-cards",
        "modes-of-a-whole-host",
        one(sharing=each(cut([0, 1, 2], x1g_10gb=7), WHOLE)),
        one(sharing=each(cut([0, 1, 2], x1g_10gb=7), {"mode": "mps", "replicas": 4, "cards": [3]})),
    ),
    Case(
        "sharing-cards",
        "none-divided",
        one(sharing=each(cut([0, 1, 2], x1g_10gb=7), WHOLE)),
        one(sharing=each({"mode": "none", "cards": [0, 1, 2]}, WHOLE)),
    ),
    Case(
        "sharing-cards",
        "one-model",
        one(sharing=each(cut([0, 1, 2], x1g_10gb=7), WHOLE)),
        one(TWO_BOARDS, sharing=each(cut([0, 1, 2, 4, 5, 6, 7], x3g_40gb=1), WHOLE)),
    ),
    Case(
        "sharing-cards",
        "in-kubernetes-alone",
        one(sharing=share("mig", profile="1g.10gb"), parent="slurm"),
        one(sharing=each(cut([0, 1, 2], x1g_10gb=7), WHOLE), parent="slurm"),
    ),
    Case(
        "slurm-models",
        "one-model",
        one(TWO_BOARDS),
        one(TWO_BOARDS, parent="slurm"),
    ),
    Case(
        "slurm-or-kubernetes",
        "several-profiles",
        one(sharing=share("mig", profile="1g.10gb"), parent="slurm"),
        one(sharing=share("mig", profiles={"1g.10gb": 7}), parent="slurm"),
    ),
    Case(
        "slurm-or-kubernetes",
        "claims",
        one(sharing=share("dra")),
        one(sharing=share("dra"), parent="slurm"),
    ),
]


def beside(plain: Plain, **wishes: Any) -> Plain:
    """Return a site with one pool more, of T4 that nobody shares."""
    board = {"gpu": [{"model": "t4", "count": 4}], "host": {"os": UBUNTU}}
    return replace(plain, pools={**plain.pools, "pool_b": Pool({**board, **wishes}, 1)})


OLDER_TOOLKIT = {"nvidia_container_toolkit": "1.17.8"}
#: Pools whose GPUs a DRA driver owns.
CLAIMS = [
    Case(
        "component-kubernetes",
        "claims-by-memory",
        one(sharing=share("dra"), kubernetes="1.36.2"),
        one(sharing=share("dra"), kubernetes="1.35"),
        {
            "cluster.nvidia_dra_driver.version": "0.5.0",
            "pools.pool_a.sharing.memory": "counted",
            "pools.pool_a.expects": {
                "resource": "nvidia.com/gpu",
                "count": 4,
                "also": {},
                "by": "dra",
            },
        },
        warned="dra, memory counted: nothing holds back what a share allocates",
    ),
    Case(
        "component-kubernetes",
        "an-older-dra-driver",
        one(sharing=share("dra"), kubernetes="1.36.3", pins=pins(nvidia_dra_driver="0.4.0")),
        one(sharing=share("dra"), kubernetes="1.36.2", pins=pins(nvidia_dra_driver="0.4.0")),
        {"cluster.nvidia_dra_driver.version": "0.4.0"},
    ),
    Case(
        "component-driver",
        "older-than-was-seen",
        one(sharing=share("dra"), driver=driver("570")),
        one(sharing=share("dra"), driver=driver("535")),
        warned="taken because it ran with 570.211.01 on simulated GPUs",
    ),
    Case(
        "component-driver",
        "of-its-own-pools-alone",
        beside(one("t4", sharing=share("dra")), driver=driver("535")),
        beside(one("t4", sharing=share("dra"), driver=driver("535"))),
        {"pools.pool_a.expects.by": "dra", "pools.pool_b.expects.by": "cluster"},
    ),
    Case(
        "component-driver",
        "as-its-maker-supports",
        one(sharing=share("dra"), pins=pins(nvidia_dra_driver="0.4.0", nvidia_driver="580.65.06")),
        one(
            sharing=share("dra"),
            pins=pins(nvidia_dra_driver="0.4.0", nvidia_driver="570.211.01"),
        ),
        silent="on simulated GPUs",
    ),
    Case(
        "resource-owner",
        "operator-beside-claims",
        one(sharing=share("dra")),
        one(sharing=share("dra"), shared={"operators": ["gpu-operator"]}),
        {"pools.pool_a.expects.by": "dra"},
        silent="on simulated GPUs",
    ),
    Case(
        "resource-owner",
        "hami-beside-claims",
        one(shared={"schedulers": ["hami"]}),
        one(sharing=share("dra"), shared={"schedulers": ["hami"]}),
        {"pools.pool_a.expects.by": "cluster"},
    ),
]
#: The least that must hold a share's memory back.
ISOLATION = [
    Case(
        "isolation",
        "limited",
        one("t4", sharing=share("mps", replicas=4, isolation="limited")),
        one("t4", sharing=share("time-slicing", replicas=4, isolation="limited")),
        {"pools.pool_a.sharing.memory": "limited", "pools.pool_a.sharing.compute": "limited"},
    ),
    Case(
        "isolation",
        "isolated",
        one(sharing=share("mig", profile="1g.10gb", isolation="isolated")),
        one(sharing=share("mps", replicas=4, isolation="isolated")),
        {"pools.pool_a.sharing.memory": "isolated", "pools.pool_a.sharing.compute": "isolated"},
    ),
    Case(
        "isolation",
        "whole-gpus",
        one("t4", sharing=share("none", isolation="isolated")),
        one("t4", sharing=share("time-slicing", replicas=2, isolation="isolated")),
        {"pools.pool_a.sharing.memory": "isolated", "pools.pool_a.sharing.compute": "isolated"},
    ),
    Case(
        "isolation",
        "claims-are-never-isolated",
        one(sharing=share("dra", isolation="limited")),
        one(sharing=share("dra", isolation="isolated")),
        {"pools.pool_a.sharing.memory": "limited", "pools.pool_a.sharing.compute": "counted"},
        warned="dra, memory limited: memory that CUDA manages (cudaMallocManaged) is not held back",
    ),
    Case(
        "isolation",
        "by-the-toolkit",
        one(sharing=share("dra"), pins=pins(**OLDER_TOOLKIT)),
        one(sharing=share("dra", isolation="limited"), pins=pins(**OLDER_TOOLKIT)),
    ),
    Case(
        "isolation",
        "by-a-call-of-the-driver",
        one(sharing=share("dra"), driver=driver("570")),
        one(sharing=share("dra", isolation="limited"), driver=driver("570")),
    ),
    Case(
        "isolation",
        "by-the-control-group",
        one(os=CGROUP_1, kubelet=CGROUP_1_ALLOWED, sharing=share("dra")),
        one(os=CGROUP_1, kubelet=CGROUP_1_ALLOWED, sharing=share("dra", isolation="limited")),
    ),
    Case(
        "isolation",
        "nobody-lifts-the-limits-of-newer-branches",
        one(sharing=share("mps", replicas=4, isolation="limited"), driver=driver("570")),
        one(sharing=share("time-slicing", replicas=4, isolation="limited"), driver=driver("570")),
        warned="a program that is root and reaches MPS's pipe gets round the limits of all",
    ),
    Case(
        "isolation",
        "limits-that-nobody-has-measured",
        one(sharing=share("mps", replicas=4), driver=driver("615")),
        one(sharing=share("mps", replicas=4, isolation="limited"), driver=driver("615")),
        {"pools.pool_a.sharing.memory": "counted"},
        warned="mps, memory counted on R615: its limits were never measured",
    ),
    Case(
        "isolation",
        "a-branch-whose-limits-were-measured",
        one(
            sharing=share("mps", replicas=4, isolation="limited"), driver={"policy": "new-feature"}
        ),
        one(sharing=share("mps", replicas=4, isolation="limited"), driver=driver("610")),
        {"pools.pool_a.sharing.memory": "limited"},
    ),
    Case(
        "isolation",
        "anybody-lifts-those-of-older-branches",
        one(sharing=share("mps", replicas=4, isolation="limited"), driver=driver("535")),
        one(sharing=share("time-slicing", replicas=4, isolation="limited"), driver=driver("535")),
        {"pools.pool_a.sharing.compute": "counted"},
        warned="any program that reaches MPS's pipe gets round the limits of all shares",
    ),
]
