"""What Volcano is told, from the lock: configuration, queues, classes and topology."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from bedplate.components.cluster import artifact
from bedplate.components.config import StackError
from bedplate.components.schedulers import topology
from bedplate.components.schedulers import volcano_objects as volcano
from bedplate.components.schedulers.volcano import Volcano, tag_of, volcano_args
from bedplate.site.presets import Placement, Preset, Queue, load_presets
from tests.stacks.locks import lock_of
from tests.stacks.test_components import run

if TYPE_CHECKING:
    import pulumi

GPU = "nvidia.com/gpu"
IMAGE = "docker.io/volcanosh/vc-{}:v1.14.1@sha256:" + "0" * 64


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a site with evidence of gpu-a; chart and images are as its bill would have them."""
    monkeypatch.setattr(artifact, "chart", lambda *_: Path("../volcano.tgz"))
    monkeypatch.setattr(artifact, "image", lambda *given: IMAGE.format(given[-1]))
    evidence = tmp_path / ".bedplate/evidence"
    evidence.mkdir(parents=True)
    labels = {"nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/gpu.clique": "7.1"}
    (evidence / "host-gpu-a.json").write_text(json.dumps({"labels": labels}))
    return tmp_path


def config(preset: Preset, *, queued_elsewhere: bool = False) -> dict[str, Any]:
    """Return the scheduler's configuration as it will read it."""
    text = volcano.scheduler_config(preset, [GPU], queued_elsewhere=queued_elsewhere)
    content: dict[str, Any] = yaml.safe_load(text)
    return content


def plugins(content: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return all plugins by name."""
    return {one["name"]: one for tier in content["tiers"] for one in tier["plugins"]}


def preset(**queue: Any) -> Preset:
    """Return a preset with values of the queue."""
    return Preset(name="test", queue=Queue(**queue))


@pytest.mark.parametrize(
    ("queue", "elsewhere", "actions"),
    [
        ({}, False, "allocate, preempt, reclaim, backfill"),
        ({"preemption": "Never"}, False, "enqueue, allocate, reclaim, backfill"),
        ({"reclaim": "Never"}, False, "allocate, preempt, backfill"),
        ({"reclaim": "Never", "preemption": "Never"}, False, "enqueue, allocate, backfill"),
        ({}, True, "enqueue, allocate, backfill"),
    ],
)
def test_actions_follow_the_preset(queue: dict[str, Any], elsewhere: bool, actions: str) -> None:
    assert config(preset(**queue), queued_elsewhere=elsewhere)["actions"] == actions


def test_binpack_counts_gpus_first_and_nothing_pulls_against_it() -> None:
    found = plugins(config(Preset(name="test", placement=Placement(pods="binpack"))))

    assert found["binpack"]["arguments"]["binpack.resources"] == GPU
    assert found["binpack"]["arguments"][f"binpack.resources.{GPU}"] == 10
    assert found["nodeorder"]["arguments"] == {
        "leastrequested.weight": 0,
        "balancedresource.weight": 0,
    }
    assert "resource-strategy-fit" not in found


def test_spread_takes_the_node_with_the_most_free_gpus() -> None:
    found = plugins(config(Preset(name="test", placement=Placement(pods="spread"))))

    assert found["resource-strategy-fit"]["arguments"]["resources"] == {
        GPU: {"type": "LeastAllocated", "weight": 10}
    }
    assert "binpack" not in found
    aware = found["network-topology-aware"]["arguments"]
    assert aware["hypernode.binpack.normal-pod.enable"] is False


def test_values_name_the_tag_and_leave_the_rest_to_the_chart(site: Path) -> None:
    preset = load_presets()["training"]
    args = volcano_args(site, lock_of({"gpu-a": {}}, addons=["volcano", "kueue"], preset=preset))
    elsewhere = args["queued_elsewhere"]
    scheduler = volcano.scheduler_config(preset, [GPU], queued_elsewhere=elsewhere)
    found = volcano.values(args["tag"], scheduler)

    assert found["basic"] == {"image_tag_version": "v1.14.1", "image_pull_policy": "IfNotPresent"}
    assert found["custom"]["common_labels"] == {"app.kubernetes.io/managed-by": "bedplate"}
    override = yaml.safe_load(found["custom"]["scheduler_config_override"])
    assert override["actions"] == "enqueue, allocate, backfill"  # Kueue decides who makes room


TEAMS: dict[str, Any] = {
    "vision": {
        "namespaces": ["vision"],
        "members": ["alice", "group:students"],
        "gpus": {
            "pool_class": {GPU: {"guaranteed": 10, "borrow": 20}},
            "pool_train": {GPU: {"guaranteed": 2, "borrow": 0}},
        },
        "priority": -5,
    },
    "speech": {"namespaces": ["speech"], "gpus": {"pool_class": {GPU: {"guaranteed": 30}}}},
}


def test_a_queue_for_each_team() -> None:
    lock = lock_of({"gpu-a": {}}, teams=TEAMS)
    assert lock.cluster is not None

    speech, vision = volcano.queues(lock.cluster.teams, preset(order="StrictFIFO"))

    assert speech["metadata"]["name"] == "speech"
    assert speech["spec"] == {
        "deserved": {GPU: "30"},
        "reclaimable": True,
        "dequeueStrategy": "fifo",
        "priority": 5,
    }
    assert vision["spec"]["deserved"] == {GPU: "12"}
    assert vision["spec"]["capability"] == {GPU: "32"}
    assert vision["spec"]["priority"] == 0
    assert vision["metadata"]["annotations"]["bedplate.io/about"] == (
        "Queue of team vision: 12 of nvidia.com/gpu guaranteed, 32 at most."
    )


def test_a_queue_that_nobody_may_reclaim_from_says_so() -> None:
    lock = lock_of({"gpu-a": {}}, teams=TEAMS)
    assert lock.cluster is not None

    found = volcano.queues(lock.cluster.teams, preset(reclaim="Never"))

    assert [one["spec"]["reclaimable"] for one in found] == [False, False]
    assert {one["spec"]["dequeueStrategy"] for one in found} == {"traverse"}


def test_priority_classes_preempt_only_where_the_preset_lets_them() -> None:
    found = volcano.priority_classes(load_presets()["training"])

    assert {one["metadata"]["name"]: one["value"] for one in found} == {
        "urgent": 1000,
        "normal": 0,
        "spare": -1000,
    }
    assert {one["preemptionPolicy"] for one in found} == {"PreemptLowerPriority"}
    (course,) = volcano.priority_classes(load_presets()["classroom"])
    assert course["preemptionPolicy"] == "Never"


def shown(hypernodes: list[dict[str, Any]]) -> list[tuple[str, int, str, list[str]]]:
    """Return name, tier, tier's name and members of each."""
    return [
        (
            one["metadata"]["name"],
            one["spec"]["tier"],
            one["spec"]["tierName"],
            [
                f"{member['type']} {member['selector']['exactMatch']['name']}"
                for member in one["spec"]["members"]
            ],
        )
        for one in hypernodes
    ]


def test_hypernodes_are_domains_in_leaves_in_racks() -> None:
    lock = lock_of(
        {
            "a": {"rack": "r1", "leaf": "l1", "nvlink_domain": "d1"},
            "b": {"rack": "r1", "leaf": "l1", "nvlink_domain": "d1"},
            "c": {"rack": "r1", "leaf": "l1"},
            "d": {"rack": "r2", "leaf": "l2"},
        }
    )

    found = volcano.hypernodes(topology.places(lock, {}), lock.hosts)

    assert shown(found) == [
        ("host-c", 1, "nvlink-domain", ["Node c"]),
        ("host-d", 1, "nvlink-domain", ["Node d"]),
        ("nvlink-domain-d1", 1, "nvlink-domain", ["Node a", "Node b"]),
        ("leaf-l1", 2, "leaf", ["HyperNode host-c", "HyperNode nvlink-domain-d1"]),
        ("leaf-l2", 2, "leaf", ["HyperNode host-d"]),
        ("rack-r1", 3, "rack", ["HyperNode leaf-l1"]),
        ("rack-r2", 3, "rack", ["HyperNode leaf-l2"]),
    ]


def test_without_topology_each_host_is_a_domain() -> None:
    lock = lock_of({"b": {}, "a": {}})

    assert shown(volcano.hypernodes(topology.places(lock, {}), lock.hosts)) == [
        ("host-a", 1, "nvlink-domain", ["Node a"]),
        ("host-b", 1, "nvlink-domain", ["Node b"]),
    ]


def test_a_host_without_a_leaf_is_in_its_rack() -> None:
    lock = lock_of({"a": {"rack": "r1", "leaf": "l1"}, "b": {"rack": "r1"}})

    assert shown(volcano.hypernodes(topology.places(lock, {}), lock.hosts))[-2:] == [
        ("leaf-l1", 2, "leaf", ["HyperNode host-a"]),
        ("rack-r1", 3, "rack", ["HyperNode host-b", "HyperNode leaf-l1"]),
    ]


def test_the_component_is_the_chart_and_then_its_objects(site: Path) -> None:
    lock = lock_of({"gpu-a": {"rack": "r1"}}, teams=TEAMS, preset=load_presets()["training"])

    def program() -> dict[str, pulumi.Output[Any]]:
        return {"hypernodes": Volcano("volcano", volcano_args(site, lock)).hypernodes}

    engine, outputs = run(program)

    release = engine.one("kubernetes:helm.sh/v3:Release")
    assert release.inputs["chart"] == "../volcano.tgz"
    assert release.inputs["namespace"] == "volcano-system"
    assert release.inputs["atomic"] is True
    assert release.inputs["values"]["basic"]["image_tag_version"] == "v1.14.1"
    hypernodes = engine.seen["kubernetes:topology.volcano.sh/v1alpha1:HyperNode"]
    assert [one.name for one in hypernodes] == [
        "volcano-hypernode-nvlink-domain-7-1-772444",
        "volcano-hypernode-rack-r1",
    ]
    assert outputs["hypernodes"] == (["nvlink-domain-7-1-772444", "rack-r1"], False)
    queues = engine.seen["kubernetes:scheduling.volcano.sh/v1beta1:Queue"]
    assert [one.inputs["metadata"]["name"] for one in queues] == ["speech", "vision"]
    assert {tuple(one.depends_on) for one in [*queues, *hypernodes]} == {("volcano-release",)}
    assert "kubernetes:admissionregistration.k8s.io/v1:ValidatingAdmissionPolicy" in engine.seen
    spaces = engine.seen["kubernetes:core/v1:Namespace"]
    assert {one.inputs["metadata"]["name"]: one.retained for one in spaces} == {
        "speech": True,
        "vision": True,
    }
    bindings = engine.seen["kubernetes:rbac.authorization.k8s.io/v1:RoleBinding"]
    assert {one.name: one.depends_on for one in bindings} == {
        f"volcano-rolebinding-vision-bedplate-{role}": {
            "volcano-release",
            "volcano-namespace-vision",
        }
        for role in ("edit", "vcjob-editor-role")
    }


def test_beside_kueue_volcano_has_no_queues(site: Path) -> None:
    lock = lock_of({"gpu-a": {}}, teams=TEAMS, addons=["kueue", "volcano"])
    args = volcano_args(site, lock)
    found = volcano.objects(args["teams"], lock.preset, args["resources"], args["places"])

    assert [
        (one["kind"], one["metadata"]["name"]) for one in found if one["kind"] != "HyperNode"
    ] == [
        ("ValidatingAdmissionPolicy", volcano.CLAIMS_GUARD),
        ("ValidatingAdmissionPolicyBinding", volcano.CLAIMS_GUARD),
    ]


def test_members_are_users_and_groups() -> None:
    lock = lock_of({}, teams=TEAMS)
    assert lock.cluster is not None

    found = volcano.namespaces(lock.cluster.teams)

    assert "LimitRange" not in {one["kind"] for one in found}
    sized = lock.cluster.teams["vision"].model_copy(update={"per_container": {"cpu": "4000m"}})
    given = [one for one in volcano.namespaces({"vision": sized}) if one["kind"] == "LimitRange"]
    limits = [{"type": "Container", "defaultRequest": {"cpu": "4000m"}}]
    assert [one["spec"] for one in given] == [{"limits": limits}] * len(sized.namespaces)

    subjects = [one["subjects"] for one in found if one["kind"] == "RoleBinding"]
    group = "rbac.authorization.k8s.io"
    assert (
        subjects
        == [
            [
                {"apiGroup": group, "kind": "User", "name": "alice"},
                {"apiGroup": group, "kind": "Group", "name": "students"},
            ]
        ]
        * 2
    )


def test_images_of_two_versions_are_refused() -> None:
    with pytest.raises(StackError, match=r"got the tags v1\.14\.0, v1\.14\.1 / allowed one for"):
        tag_of([IMAGE.format("scheduler"), "docker.io/volcanosh/vc-webhook-manager:v1.14.0"])
