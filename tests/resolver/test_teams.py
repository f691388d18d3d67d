"""Teams and presets of a site: what is refused, and what the lock has of them."""

from __future__ import annotations

from typing import Any

import pytest

from bedplate.presets import load_presets
from bedplate.resolver import Refusal
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


def test_a_part_that_is_too_large_names_one_that_fits() -> None:
    refusal = answer({"a": team(50), "b": team(31)})
    assert isinstance(refusal, Refusal)
    assert refusal.problems[0].fix.startswith("write 49 for a")
    planned(answer({"a": team(49), "b": team(31)}))


def test_teams_need_queues() -> None:
    assert rules(answer({"a": team(1)}, bedplate_schedulers=[])) == ["team-queue"]
    planned(answer({"a": team(1)}, bedplate_schedulers=[], bedplate_preset="research"))


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
