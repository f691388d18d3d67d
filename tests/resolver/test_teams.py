"""Teams and presets of a site: what is refused, and what the lock has of them."""

from __future__ import annotations

from typing import Any

import pytest

from bedplate.lock.model import TeamPerUser
from bedplate.resolver import Refusal
from bedplate.site.presets import load_presets
from tests.resolver.test_whole_sites import T4, decide, host, planned, rules

SHARED = T4 | {"bedplate_sharing": {"mode": "time-slicing", "replicas": 10}}


def answer(teams: dict[str, Any], **more: Any) -> Any:
    """Decide a site of two nodes with four cards of ten shares each."""
    everywhere = {"bedplate_teams": teams, "bedplate_schedulers": ["kueue"]} | more
    control_plane = host("cp1", ["control_plane"], everywhere)
    nodes = [host(f"n{n}", ["gpu_pools", "pool_a"], SHARED | everywhere) for n in (1, 2)]
    return decide(control_plane, *nodes)


def team(guaranteed: int, **more: Any) -> dict[str, Any]:
    """A team with a part of the pool."""
    return {"gpus": {"pool_a": {"guaranteed": guaranteed}}} | more


def test_a_team_has_a_namespace_of_its_name_and_may_borrow_what_is_idle() -> None:
    lock = planned(answer({"vision": team(50), "speech": team(30, weight=2.0)})).lock
    assert lock.cluster is not None
    found = lock.cluster.teams["vision"]
    assert found.namespaces == ["vision"]
    assert found.gpus["pool_a"]["nvidia.com/gpu"].model_dump() == {
        "guaranteed": 50,
        "borrow": None,
    }
    assert lock.cluster.preset is not None
    assert lock.cluster.preset.name == "plain"


def test_a_default_of_containers_has_room_on_a_node() -> None:
    """Of 64 GiB a node has some 60 for pods; of CPUs nothing is known, and nothing refused."""
    size = {"bedplate_host": {"os": "debian-12", "memory": "64Gi"}}
    default = {"memory": "16Gi", "cpus": 4, "disk": "50Gi"}
    lock = planned(answer({"a": team(1, per_container=default)}, **size)).lock
    assert lock.cluster is not None
    assert lock.cluster.teams["a"].per_container == {
        "memory": "16Gi",
        "cpu": "4000m",
        "ephemeral-storage": "50Gi",
    }
    refusal = answer({"a": team(1, per_container=default | {"memory": "64Gi"})}, **size)
    assert rules(refusal) == ["team-container"]
    text = str(refusal.problems[0])
    assert "bedplate_teams.a.per_container.memory — got 64Gi / allowed up to 6" in text
    assert "Mi, which a node of pool_a has for pods — write less" in text


def test_a_pod_of_a_team_has_a_maximum_of_its_node() -> None:
    """A default above it would be refused by the API server, with all that it is to hold."""
    most = {"memory": "64Gi", "cpus": 0.5, "disk": "200Gi"}
    lock = planned(answer({"a": team(1, per_pod=most, per_container={"cpus": 0.5})})).lock
    assert lock.cluster is not None
    assert lock.cluster.teams["a"].per_pod == {
        "memory": "64Gi",
        "cpu": "500m",
        "ephemeral-storage": "200Gi",
    }
    default = {"cpus": 0.51, "memory": "65Gi"}
    refusal = answer({"a": team(1, per_pod=most, per_container=default)})
    assert [str(one).split(" — ")[1:3] for one in refusal.problems] == [
        [
            f"bedplate_teams.a.per_container.{key}",
            f"got {got} / allowed up to {most[key]}, as per_pod",
        ]
        for key, got in (("cpus", "0.51"), ("memory", "65Gi"))
    ]


@pytest.mark.parametrize(
    ("teams", "rule", "words"),
    [
        ({"a": team(50), "b": team(31)}, "team-guarantee", "81 (a 50 + b 31)"),
        ({"a": {"gpus": {"pool_b": {"guaranteed": 1}}}}, "team-pool", "pool_a"),
        ({"kube-system": team(1)}, "team-namespace", "not a team's"),
        (
            {"a": team(1, namespaces=["x"]), "x": team(1)},
            "team-namespace",
            "the namespace of team a",
        ),
    ],
)
def test_refused(teams: dict[str, Any], rule: str, words: str) -> None:
    refusal = answer(teams)
    assert rules(refusal) == [rule]
    assert words in str(refusal.problems[0])


def test_an_idle_time_of_a_team_needs_kueue_and_a_mode_that_can_be_measured() -> None:
    """What nothing measures never ends: the plan says where."""
    wished = {"vision": team(50, idle_timeout="30m"), "audio": team(1)}
    found = planned(answer(wished))
    assert found.lock.cluster is not None
    teams = found.lock.cluster.teams
    assert (teams["vision"].idle_timeout_s, teams["audio"].idle_timeout_s) == (1800, None)
    assert found.lock.cluster.usage
    assert not [one for one in found.notices if "idle" in one.text]
    refusal = answer(wished, bedplate_schedulers=["volcano"])
    assert rules(refusal) == ["team-queue"]
    text = str(refusal.problems[0])
    assert "bedplate_teams.vision.idle_timeout — got an idle time without kueue / allowed" in text
    by_mps = {"bedplate_sharing": {"mode": "mps", "replicas": 4}}
    everywhere = {"bedplate_teams": {"vision": team(1, idle_timeout="30m")}}
    everywhere |= {"bedplate_schedulers": ["kueue"]}
    control_plane = host("cp1", ["control_plane"], everywhere)
    node = host("n1", ["gpu_pools", "pool_a"], T4 | by_mps | everywhere)
    told = [str(one) for one in planned(decide(control_plane, node)).notices]
    assert [one for one in told if "idle_timeout of vision ends nothing there" in one]


MIXED = {"mode": "mig", "profiles": {"3g.40gb": 1, "1g.10gb": 4}}
A100 = {**T4, "bedplate_gpu": {"model": "a100-sxm4-80gb", "count": 4}, "bedplate_sharing": MIXED}


def mixed(teams: dict[str, Any]) -> Any:
    """Decide a site of two nodes whose four GPUs are of two sizes each."""
    everywhere = {"bedplate_teams": teams, "bedplate_schedulers": ["kueue"]}
    control_plane = host("cp1", ["control_plane"], everywhere)
    nodes = [host(f"n{n}", ["gpu_pools", "pool_a"], A100 | everywhere) for n in (1, 2)]
    return decide(control_plane, *nodes)


def sized(**sizes: int) -> dict[str, Any]:
    """A team with parts of the sizes of the pool."""
    parts = {name.replace("_", "."): {"guaranteed": count} for name, count in sizes.items()}
    return {"gpus": {"pool_a": {"sizes": parts}}}


def test_a_pool_of_several_sizes_has_a_quota_for_each() -> None:
    lock = planned(
        mixed({"a": sized(**{"1g_10gb": 20, "3g_40gb": 8}), "b": sized(**{"1g_10gb": 12})})
    )
    assert lock.lock.cluster is not None
    found = lock.lock.cluster.teams
    assert found["a"].gpus["pool_a"]["nvidia.com/mig-1g.10gb"].guaranteed == 20
    assert found["a"].gpus["pool_a"]["nvidia.com/mig-3g.40gb"].guaranteed == 8
    # What a team doesn't name, it has nothing of, and borrows nothing.
    assert found["b"].gpus["pool_a"]["nvidia.com/mig-3g.40gb"].model_dump() == {
        "guaranteed": 0,
        "borrow": 0,
    }


@pytest.mark.parametrize(
    ("teams", "rule", "words"),
    [
        ({"a": team(4)}, "team-size", "write sizes: {1g.10gb: {guaranteed: …}, 3g.40gb: "),
        ({"a": sized(**{"2g_20gb": 1})}, "team-size", "got 2g.20gb / allowed 1g.10gb, 3g.40gb"),
        (
            {"a": sized(**{"3g_40gb": 5}), "b": sized(**{"3g_40gb": 4})},
            "team-guarantee",
            "got 9 (a 5 + b 4) / allowed 8, which is all that pool_a offers of 3g.40gb",
        ),
        ({"a": {"gpus": {"pool_a": {}}}}, "team-pool", "got neither of them"),
        (
            {
                "a": {
                    "gpus": {
                        "pool_a": {"guaranteed": 1, **sized(**{"1g_10gb": 1})["gpus"]["pool_a"]}
                    }
                }
            },
            "team-pool",
            "got sizes and guaranteed",
        ),
    ],
)
def test_sizes_refused(teams: dict[str, Any], rule: str, words: str) -> None:
    refusal = mixed(teams)
    assert rules(refusal) == [rule]
    assert words in str(refusal.problems[0])


CLAIMS = {"bedplate_sharing": {"mode": "dra"}}
SPREAD = {"name": "research", "placement": {"pods": "spread"}}


def by_claim(teams: dict[str, Any], **more: Any) -> Any:
    """Decide a site whose GPUs are whole in one pool, and offered by claim in another."""
    everywhere = {"bedplate_teams": teams} | more
    return decide(
        host("cp1", ["control_plane"], everywhere),
        host("n1", ["gpu_pools", "pool_a"], T4 | CLAIMS | everywhere),
        host("n2", ["gpu_pools", "pool_b"], T4 | everywhere),
    )


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            {"bedplate_schedulers": ["kueue"]},
            (
                "got pool_a of mode dra with placement.pods: binpack, where Kueue chooses nodes / "
                "allowed placement.pods: spread, or another mode — write placement: {pods: spread} "
                "in bedplate_preset, or leave the pool out"
            ),
        ),
        (
            {"bedplate_schedulers": ["volcano"]},
            (
                "got pool_a of mode dra with volcano / allowed pools whose GPUs a device plugin "
                "offers, where Volcano places pods — leave the pool out, or remove volcano"
            ),
        ),
        (
            {"bedplate_schedulers": ["kueue", "volcano"], "bedplate_preset": SPREAD},
            "got pool_a of mode dra with volcano",
        ),
    ],
    ids=["packed-by-kueue", "volcano", "volcano-below-kueue"],
)
def test_a_quota_of_gpus_by_claim_is_refused_where_the_scheduler_sees_none(
    more: dict[str, Any], words: str
) -> None:
    """`tests/schedulers` shows both: Kueue finds no node, Volcano binds without a device."""
    refusal = by_claim({"a": team(1)}, **more)
    assert rules(refusal) == ["team-claims"]
    assert words in str(refusal.problems[0])
    planned(by_claim({"a": {"gpus": {"pool_b": {"guaranteed": 1}}}}, **more))


def test_a_quota_of_gpus_by_claim_is_planned_where_kueue_counts_alone() -> None:
    planned(by_claim({"a": team(1)}, bedplate_preset=SPREAD))


def test_a_part_that_is_too_large_names_one_that_fits() -> None:
    refusal = answer({"a": team(50), "b": team(31)})
    assert isinstance(refusal, Refusal)
    assert refusal.problems[0].fix.startswith("write 49 for a")
    planned(answer({"a": team(49), "b": team(31)}))


def test_teams_need_queues() -> None:
    assert rules(answer({"a": team(1)}, bedplate_schedulers=[])) == ["team-queue"]
    planned(answer({"a": team(1)}, bedplate_schedulers=[], bedplate_preset="research"))


def test_a_teams_limits_of_one_request_are_in_the_lock() -> None:
    limits = {"gpus": 4, "time": "8h"}
    found = planned(answer({"vision": team(50, per_request=limits), "speech": team(1)})).lock
    assert found.cluster is not None
    teams = found.cluster.teams
    assert teams["vision"].per_request.model_dump() == {"gpus": 4, "time_s": 28800}
    assert teams["speech"].per_request.model_dump() == {"gpus": None, "time_s": None}


@pytest.mark.parametrize(
    "limit",
    [
        {"per_request": {"time": "8h"}},
        {"per_user": {"gpus": 1}},
        {"per_user": {"hours": 40}},
        {"idle_timeout": "1h"},
    ],
)
def test_limits_need_kueue(limit: dict[str, Any]) -> None:
    """Volcano's queues know no time, no size of one job, and no person."""
    refusal = answer({"a": team(1, **limit)}, bedplate_schedulers=["volcano"])
    assert rules(refusal) == ["team-queue"]
    (problem,) = refusal.problems
    assert problem.key == f"bedplate_teams.a.{next(iter(limit))}"
    assert problem.fix == "add kueue to bedplate_schedulers, or remove it"


def test_a_limit_of_persons_is_in_the_lock() -> None:
    limited = {"a": team(1, per_user={"gpus": 4, "hours": 0.5}), "b": team(1)}
    found = planned(answer(limited)).lock
    assert found.cluster is not None
    assert found.cluster.usage, "the recorder counts, also without a hub"
    assert found.cluster.teams["a"].per_user == TeamPerUser(gpus=4, hours=0.5)
    assert not found.cluster.teams["b"].per_user.limited
    of_week = planned(answer({"a": team(1, per_user={"hours": 40})}))
    assert of_week.lock.cluster is not None
    assert of_week.lock.cluster.usage


def test_a_limit_of_persons_needs_their_names() -> None:
    older = {"version": "1.35", "endpoint": "192.0.2.1:6443"}
    refusal = answer({"a": team(1, per_user={"gpus": 4})}, bedplate_kubernetes=older)
    assert rules(refusal) == ["team-person"]
    (problem,) = refusal.problems
    assert problem.key == "bedplate_teams.a.per_user"
    assert "whose API server writes no user's name into requests" in str(problem)


def test_a_preset_brings_its_schedulers_and_the_site_changes_single_values() -> None:
    chosen = {"name": "classroom", "queue": {"preemption": "LowerPriority"}}
    lock = planned(answer({"a": team(1)}, bedplate_schedulers=[], bedplate_preset=chosen)).lock
    assert lock.cluster is not None
    assert lock.cluster.preset is not None
    assert [addon.name for addon in lock.cluster.addons] == ["kueue"]
    own = load_presets()["classroom"].queue
    changed = lock.cluster.preset.queue
    assert changed == own.model_copy(update={"preemption": "LowerPriority"}) != own
    # Where the preset lends nothing, a team without a limit of its own borrows nothing.
    assert lock.cluster.teams["a"].gpus["pool_a"]["nvidia.com/gpu"].borrow == 0


def test_a_version_that_the_site_names_wins_over_the_presets() -> None:
    lock = planned(
        answer({}, bedplate_schedulers=["kueue-0.19.1"], bedplate_preset="classroom")
    ).lock
    assert lock.cluster is not None
    assert [(one.name, one.version) for one in lock.cluster.addons] == [("kueue", "0.19.1")]


@pytest.mark.parametrize(
    ("own", "limit", "most"),
    [
        (team(50), 81, 80),
        (team(50), 80, None),
        ({"gpus": {"pool_a": {"guaranteed": 50, "borrow": 10}}}, 61, 60),
        ({"gpus": {"pool_a": {"guaranteed": 50, "borrow": 0}}}, 50, None),
    ],
)
def test_a_limit_above_all_that_a_team_can_have_is_reported(
    own: dict[str, Any], limit: int, most: int | None
) -> None:
    """Two nodes offer 80 shares; what may be borrowed is counted."""
    found = planned(answer({"vision": own | {"per_request": {"gpus": limit}}})).notices
    told = [(one.text, one.hint) for one in found if "per_request" in one.text]
    text = f"per_request of vision allows {limit} GPUs or shares, and the team can have {most} at "
    text += "most: larger requests are taken, and wait for ever"
    assert told == (
        []
        if most is None
        else [
            (
                text,
                f"write bedplate_teams.vision.per_request.gpus: {most}, or less",
            )
        ]
    )


def test_defaults_of_containers_on_hosts_of_unknown_size_are_reported() -> None:
    size = {"bedplate_host": {"os": "debian-12", "memory": "64Gi"}}
    default = {"memory": "16Gi", "cpus": 4}
    found = planned(answer({"a": team(1, per_container=default)}, **size)).notices
    told = [(one.text, one.hint) for one in found if "per_container" in one.text]
    assert told == [
        (
            "whether a node of pool_a has the cpus in per_container of a is not known",
            "write bedplate_host.cpus of pool_a",
        )
    ]
