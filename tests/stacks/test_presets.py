"""Every preset's parts are rendered together, with every way to share GPUs that goes with them."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.components.schedulers import dra, topology
from bedplate.components.schedulers import volcano_objects as volcano
from bedplate.components.schedulers.kueue import configuration, policies, queues, tenancy
from bedplate.site.presets import load_presets
from tests.resolver.test_presets import RACK, answer, choice
from tests.resolver.test_whole_sites import planned
from tests.schedulers.locks import queues_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bedplate.lock import Lock

SHARING: dict[str, dict[str, Any]] = {
    "whole": {},
    "time-slicing": {"mode": "time-slicing", "replicas": 10},
    "mps": {"mode": "mps", "replicas": 4},
    "dra": {"mode": "dra"},
}
TEAMS = {
    "vision": {"gpus": {"pool_a": {"guaranteed": 2}}, "members": ["alice", "group:students"]},
    "speech": {"gpus": {"pool_a": {"guaranteed": 1, "borrow": 1}}, "weight": 2.0, "priority": 5},
}
NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


def rendered(lock: Lock) -> Iterator[dict[str, Any]]:
    """Yield every object of every part that the lock has."""
    assert lock.cluster is not None
    assert lock.cluster.preset is not None
    for part in (queues, policies, tenancy):
        yield from part.objects(queues_of(lock))
    args = dra.dra_args(lock)
    if args is not None:
        yield from dra.objects(limited=args["limited"])
    if "volcano" in {addon.name for addon in lock.cluster.addons}:
        yield from volcano.objects({}, lock.preset, [], topology.places(lock, {}))


#: Volcano, which `training` brings, places no GPUs by claim.
TOGETHER = sorted((name, way) for name in load_presets() for way in SHARING)
TOGETHER.remove(("training", "dra"))


@pytest.mark.parametrize(("name", "sharing"), TOGETHER)
def test_a_presets_parts_are_rendered_together(name: str, sharing: str) -> None:
    # Kueue does not choose nodes by what they offer as claims.
    placed = {"placement": {"pods": "spread"}} if sharing == "dra" else {}
    everywhere = choice(name, **placed) | {"bedplate_teams": TEAMS}
    shared = SHARING[sharing]
    lock = planned(answer(everywhere, ({"bedplate_sharing": shared} if shared else {}) | RACK)).lock
    assert lock.cluster is not None
    found = list(rendered(lock))
    kinds = Counter(one["kind"] for one in found)
    assert kinds["ClusterQueue"] == kinds["LocalQueue"] == len(TEAMS)
    assert kinds["WorkloadPriorityClass"] >= len(load_presets()[name].priorities)
    assert (kinds["DeviceClass"] > 0) == (sharing == "dra")
    # Beside Kueue, which every preset brings, Volcano has no queues of its own.
    assert kinds["Queue"] == 0
    assert configuration.values(queues_of(lock), "registry.example/kueue:v1@sha256:" + "a" * 64)

    places = [
        (one["apiVersion"].partition("/")[0], one["kind"], one["metadata"].get("namespace"),
         one["metadata"]["name"])
        for one in found
    ]  # fmt: skip
    assert [place for place, times in Counter(places).items() if times > 1] == []
    assert [name for *_, name in places if not NAME.fullmatch(name.replace(":", "-"))] == []


def test_admission_changes_work_only_where_the_api_server_can() -> None:
    """A team's own class, and who submits: by policies that Kubernetes has from 1.36 on."""
    lock = planned(answer(choice("research") | {"bedplate_teams": TEAMS}, RACK)).lock
    assert lock.cluster is not None

    def kinds(version: str) -> set[str]:
        kubernetes = lock.cluster.kubernetes.model_copy(update={"version": version})
        cluster = lock.cluster.model_copy(update={"kubernetes": kubernetes})
        found = policies.objects(queues_of(lock.model_copy(update={"cluster": cluster})))
        return {one["kind"] for one in found if "Mutating" in one["kind"]}

    assert kinds("1.36.3") == {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"}
    assert kinds("1.35.6") == set()


@pytest.mark.parametrize("name", sorted(load_presets()))
def test_the_queues_say_what_the_preset_says(name: str) -> None:
    lock = planned(answer(choice(name) | {"bedplate_teams": TEAMS})).lock
    preset = load_presets()[name]
    for one in rendered(lock):
        if one["kind"] != "ClusterQueue":
            continue
        spec = one["spec"]
        assert spec["queueingStrategy"] == preset.queue.order
        if preset.queue.preemption == "Never":
            assert spec["preemption"]["withinClusterQueue"] == "Never"
        flavors = [flavor for group in spec["resourceGroups"] for flavor in group["flavors"]]
        limits = {
            resource["name"]: resource.get("borrowingLimit")
            for flavor in flavors
            for resource in flavor["resources"]
            if resource["name"] == "nvidia.com/gpu"
        }
        if "vision" in one["metadata"]["name"]:
            borrows = None if preset.queue.borrowing else "0"
            assert {str(limit) if limit is not None else None for limit in limits.values()} == {
                borrows
            }
