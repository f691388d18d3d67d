"""Kueue's objects and configuration as pure functions of the lock."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from bedplate.components.config import StackError
from bedplate.components.schedulers.kueue import (
    Quota,
    Team,
    groups,
    person_limits,
    policies,
    queues,
    request_limits,
    tenancy,
)
from bedplate.components.schedulers.kueue.configuration import configuration, values
from bedplate.lock.claims import RESOURCE
from bedplate.lock.courses import PerUser
from bedplate.lock.model import Lock
from tests.frameworks.claims import with_claims
from tests.schedulers.locks import lock_of, queues_of

if TYPE_CHECKING:
    from bedplate.components.schedulers.kueue import QueuesArgs

GPU = "nvidia.com/gpu"
TEAMS: dict[str, Any] = {
    "vision": {"gpus": {"pool_a": (8, None)}, "weight": 2.0, "members": ["alice", "group:lab"]},
    "audio": {"gpus": {"pool_a": (4, 2)}, "namespaces": ["audio", "speech"], "priority": 5},
}
#: The flavour of the pool that has racks.
POOL_A = "pool-a.rack-nvlink-domain"
TEAMS_OF_CLASS: dict[str, Any] = {"lab": {"gpus": {"pool_class": (1, 0)}}}
HOSTS = [{"rack": "r1", "nvlink_domain": "d1"}, {"rack": "r1", "nvlink_domain": "d2"}]


def lock(**more: Any) -> Any:
    """Return a lock with two pools: two hosts of eight GPUs with topology, one without."""
    return lock_of({"pool_a": HOSTS, "pool_b": [{}]}, TEAMS, **more)


def given(**more: Any) -> QueuesArgs:
    """Return what such a lock decides of queues."""
    return queues_of(lock(**more))


def by_name(objects: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    """Return the objects of a kind, by name or namespace and name."""
    found = {}
    for one in objects:
        if one["kind"] == kind:
            metadata = one["metadata"]
            found["/".join(filter(None, (metadata.get("namespace"), metadata["name"])))] = one
    return found


def test_a_team_has_its_guarantee_and_nothing_of_other_pools() -> None:
    found = by_name(queues.objects(given()), "ClusterQueue")
    (group,) = found["vision"]["spec"]["resourceGroups"]
    assert group == {
        "coveredResources": [GPU],
        "flavors": [
            {"name": POOL_A, "resources": [{"name": GPU, "nominalQuota": "8"}]},
            {
                "name": "pool-b",
                "resources": [{"name": GPU, "nominalQuota": "0", "borrowingLimit": "0"}],
            },
        ],
    }
    (group,) = found["audio"]["spec"]["resourceGroups"]
    (quota,) = group["flavors"][0]["resources"]
    assert quota == {"name": GPU, "nominalQuota": "4", "borrowingLimit": "2"}
    assert found["vision"]["spec"]["fairSharing"] == {"weight": "2"}
    assert found["vision"]["spec"]["namespaceSelector"] == {
        "matchLabels": {"bedplate.io/team": "vision"}
    }
    about = found["audio"]["metadata"]["annotations"]["bedplate.io/about"]
    assert about == "Team audio: 4 nvidia.com/gpu of pool_a, and 2 more."


def test_what_is_guaranteed_to_none_can_be_borrowed() -> None:
    (cohort,) = by_name(queues.objects(given()), "Cohort").values()
    (group,) = cohort["spec"]["resourceGroups"]
    assert group["flavors"] == [{"name": POOL_A, "resources": [{"name": GPU, "nominalQuota": "4"}]}]


def test_a_class_by_claims_is_a_quota_of_claims() -> None:
    of = with_claims(lock_of({"pool_class": [{}]}, TEAMS_OF_CLASS), {"seminar": (2, 6144)})
    objects = queues.objects(queues_of(of))
    (group,) = by_name(objects, "ClusterQueue")["seminar"]["spec"]["resourceGroups"]
    (only,) = group["flavors"]
    assert only["name"] == "pool-claims.claims.seminar"
    quotas = {one["name"]: one["nominalQuota"] for one in only["resources"]}
    assert quotas == {RESOURCE: "2", GPU: "0"}
    assert of.cluster is not None
    two = of.cluster.courses["seminar"].model_copy(update={"per_user": PerUser(shares=2)})
    more = of.model_copy(
        update={"cluster": of.cluster.model_copy(update={"courses": {"seminar": two}})}
    )
    (group,) = by_name(queues.objects(queues_of(more)), "ClusterQueue")["seminar"]["spec"][
        "resourceGroups"
    ]
    assert {one["nominalQuota"] for one in group["flavors"][0]["resources"]} == {"4", "0"}
    assert all(one["borrowingLimit"] == "0" for one in only["resources"])
    flavor = by_name(objects, "ResourceFlavor")["pool-claims.claims.seminar"]
    assert flavor["spec"] == {"nodeLabels": {"bedplate.io/pool": "pool_claims"}}, "no topology"
    (made,) = by_name(objects, "ResourceClaimTemplate")
    assert made == "seminar/share-6144mi"
    assert configuration(queues_of(of))["resources"]["deviceClassMappings"] == [
        {"name": RESOURCE, "deviceClassNames": ["gpu-memory.nvidia.com"]}
    ]
    assert "deviceClassMappings" not in configuration(given())["resources"]
    # Nothing of the pool's whole GPUs is lent to teams: claims may be on any of them.
    (cohort,) = by_name(objects, "Cohort").values()
    assert "pool-claims" not in str(cohort["spec"])


def test_only_courses_have_gpus_from_their_hub_alone() -> None:
    """Of each kind that has pods; a site without courses has no such check."""
    of = with_claims(lock_of({"pool_class": [{}]}, TEAMS_OF_CLASS), {"seminar": (2, 6144)})
    names = {"", "-of-templates", "-of-pod-templates", "-of-cron-jobs", "-of-job-sets"}
    names |= {"-of-volcano-jobs"}

    def judged(lock: Lock) -> set[str]:
        return {
            one["metadata"]["name"].removeprefix("bedplate-counted-devices")
            for one in policies.objects(queues_of(lock))
            if "GPUs of a course is not made by the hub" in str(one)
        }

    assert judged(of) == names
    assert judged(lock()) == set()


def test_a_quota_of_what_no_pool_offers_is_refused() -> None:
    """Kueue would count nothing, without a word."""
    known = given()
    teams = {"vision": Team(namespaces=["vision"], gpus={"pool_c": {GPU: Quota(guaranteed=1)}})}
    with pytest.raises(StackError) as refused:
        replace(known, teams=known.teams | teams)
    assert str(refused.value) == (
        f"a quota of what no pool offers — teams — got {GPU} of pool_c for team vision / allowed "
        f"{GPU} of pool_a, {GPU} of pool_b — correct the quota, or add the pool with what it offers"
    )


def test_each_namespace_of_a_team_has_the_same_queue() -> None:
    found = by_name(queues.objects(given()), "LocalQueue")
    assert {name: one["spec"] for name, one in found.items()} == {
        "audio/default": {"clusterQueue": "audio"},
        "speech/default": {"clusterQueue": "audio"},
        "vision/default": {"clusterQueue": "vision"},
    }


def test_pools_select_their_nodes_and_have_their_levels() -> None:
    objects = queues.objects(given())
    flavors = {name: one["spec"] for name, one in by_name(objects, "ResourceFlavor").items()}
    assert flavors == {
        POOL_A: {
            "nodeLabels": {"bedplate.io/pool": "pool_a"},
            "topologyName": "rack-nvlink-domain",
        },
        "pool-b": {"nodeLabels": {"bedplate.io/pool": "pool_b"}, "topologyName": "hosts"},
    }
    found = by_name(objects, "Topology")
    assert [one["nodeLabel"] for one in found["rack-nvlink-domain"]["spec"]["levels"]] == [
        "topology.bedplate.io/rack",
        "topology.bedplate.io/nvlink-domain",
        "kubernetes.io/hostname",
    ]


@pytest.mark.parametrize("placement", [{"pods": "spread"}, {"extender": True}])
def test_where_another_places_pods_kueue_counts_quota_alone(placement: dict[str, Any]) -> None:
    """Then pods that find no node are put back by a time limit."""
    other = given(preset={"placement": placement})
    assert not by_name(queues.objects(other), "Topology")
    # Kueue never changes a flavour's topology: one without has a name of its own.
    assert set(by_name(queues.objects(other), "ResourceFlavor")) == {
        "pool-a.quota-only",
        "pool-b.quota-only",
    }
    assert "waitForPodsReady" in configuration(other)
    assert "waitForPodsReady" not in configuration(given())


def test_pools_that_share_a_resource_share_a_group() -> None:
    one, nothing = {"nominalQuota": "1"}, {"nominalQuota": "0"}
    found = queues.groups(
        {"pool-a": {"x": one}, "pool-b": {"y": one}, "pool-c": {"x": one, "z": one}}
    )
    assert found == [
        {
            "coveredResources": ["y"],
            "flavors": [{"name": "pool-b", "resources": [{"name": "y", **one}]}],
        },
        {
            "coveredResources": ["x", "z"],
            "flavors": [
                {
                    "name": "pool-a",
                    "resources": [{"name": "x", **one}, {"name": "z", **nothing}],
                },
                {"name": "pool-c", "resources": [{"name": "x", **one}, {"name": "z", **one}]},
            ],
        },
    ]


def test_the_preset_decides_order_reclaim_and_fair_shares() -> None:
    chosen = {
        "order": "StrictFIFO",
        "reclaim": "Never",
        "preemption": "Never",
        "fair_sharing": True,
    }
    strict = given(preset={"queue": chosen, "priorities": {"urgent": 10}})
    spec = by_name(queues.objects(strict), "ClusterQueue")["audio"]["spec"]
    assert spec["queueingStrategy"] == "StrictFIFO"
    assert spec["preemption"] == {"reclaimWithinCohort": "Never", "withinClusterQueue": "Never"}
    assert configuration(strict)["fairSharing"] == {
        "preemptionStrategies": ["LessThanOrEqualToFinalShare"]
    }
    assert "fairSharing" not in configuration(given())
    classes = by_name(queues.objects(strict), "WorkloadPriorityClass")
    assert {name: one["value"] for name, one in classes.items()} == {"urgent": 10, "team-audio": 5}


def test_jobsets_are_queued_where_the_addon_is() -> None:
    names = configuration(given(addons=["kueue", "jobset"]))["integrations"]["frameworks"]
    assert "jobset.x-k8s.io/jobset" in names
    assert "jobset.x-k8s.io/jobset" not in configuration(given())["integrations"]["frameworks"]


def test_the_image_is_pulled_by_digest_and_there_are_two_where_they_fit() -> None:
    found = values(given(), "registry.k8s.io/kueue/kueue:v0.19.2@sha256:ab")["controllerManager"]
    assert found["manager"]["image"] == {
        "repository": "registry.k8s.io/kueue/kueue",
        "tag": "v0.19.2@sha256:ab",
        "pullPolicy": "IfNotPresent",
    }
    assert (found["replicas"], found["podDisruptionBudget"]["enabled"]) == (2, True)
    alone = values(queues_of(lock_of({"pool_a": [{}]}, {})), "a:b@sha256:ab")["controllerManager"]
    assert (alone["replicas"], alone["podDisruptionBudget"]["enabled"]) == (1, False)


def test_kueue_looks_at_teams_namespaces_alone() -> None:
    text = values(given(), "a:b@sha256:ab")["managerConfig"]["controllerManagerConfigYaml"]
    assert yaml.safe_load(text)["managedJobsNamespaceSelector"] == {
        "matchExpressions": [{"key": "bedplate.io/team", "operator": "Exists"}]
    }


def test_members_are_bound_in_their_namespaces_and_see_all_queues() -> None:
    objects = tenancy.objects(given())
    assert set(by_name(objects, "Namespace")) == {"audio", "speech", "vision"}
    (bound,) = by_name(objects, "RoleBinding").values()
    assert bound["metadata"]["namespace"] == "vision"
    assert [(one["kind"], one["name"]) for one in bound["subjects"]] == [
        ("User", "alice"),
        ("Group", "lab"),
    ]
    (seen,) = by_name(objects, "ClusterRoleBinding").values()
    assert seen["subjects"] == bound["subjects"]


def test_containers_of_a_team_have_a_default_of_their_node() -> None:
    """Memory and disk are limited too; CPUs that others leave idle may be used."""
    of = lock()
    assert of.cluster is not None
    assert by_name(tenancy.objects(queues_of(of)), "LimitRange") == {}
    size = {"memory": "16Gi", "cpu": "4000m", "ephemeral-storage": "50Gi"}
    vision = of.cluster.teams["vision"].model_copy(update={"per_container": size})
    teams = of.cluster.teams | {"vision": vision}
    cluster = of.cluster.model_copy(update={"teams": teams})
    objects = tenancy.objects(queues_of(of.model_copy(update={"cluster": cluster})))
    (found,) = by_name(objects, "LimitRange").values()
    assert found["metadata"]["namespace"] == "vision"
    (limit,) = found["spec"]["limits"]
    assert limit["type"] == "Container"
    assert limit["defaultRequest"] == size
    assert limit["default"] == {"memory": "16Gi", "ephemeral-storage": "50Gi"}


def test_pods_of_a_team_have_a_maximum_of_their_node() -> None:
    """Containers without a limit have the default, or the maximum: without one none is admitted."""
    of = lock()
    assert of.cluster is not None
    most = {"memory": "64Gi", "cpu": "16000m"}
    update = {"per_pod": most, "per_container": {"memory": "16Gi", "cpu": "4000m"}}
    found = tenancy.limits(of.cluster.teams["vision"].model_copy(update=update))
    assert found["limits"] == [
        {
            "type": "Container",
            "defaultRequest": update["per_container"],
            "default": {"memory": "16Gi", "cpu": "16000m"},
            "max": most,
        },
        {"type": "Pod", "max": most},
    ]
    alone = tenancy.limits(of.cluster.teams["vision"].model_copy(update={"per_pod": most}))
    assert alone["limits"][0]["defaultRequest"] == {"memory": "0", "cpu": "0"}


def test_a_site_without_teams_gets_no_rights_and_no_policies() -> None:
    bare = queues_of(lock_of({"pool_a": [{}]}, {}))
    assert tenancy.objects(bare) == []
    assert policies.objects(bare) == []
    assert {one["kind"] for one in queues.objects(bare)} == {"Topology", "ResourceFlavor"}


def test_work_gets_the_class_of_a_team_that_has_a_priority() -> None:
    name = "bedplate-team-class"
    bound = by_name(policies.objects(given()), "MutatingAdmissionPolicyBinding")[name]
    assert bound["spec"]["matchResources"]["namespaceSelector"] == {
        "matchExpressions": [{"key": "bedplate.io/team", "operator": "In", "values": ["audio"]}]
    }
    equal = lock_of({"pool_a": [{}]}, {"vision": {"gpus": {"pool_a": (1, 0)}}})
    assert name not in by_name(policies.objects(queues_of(equal)), "MutatingAdmissionPolicy")


def test_every_policy_is_bound_to_teams_namespaces() -> None:
    objects = policies.objects(given())
    bound = by_name(objects, "ValidatingAdmissionPolicyBinding")
    assert set(bound) == set(by_name(objects, "ValidatingAdmissionPolicy"))
    for one in bound.values():
        assert one["spec"]["validationActions"] == ["Deny"]
        assert one["spec"]["matchResources"]["namespaceSelector"] == {
            "matchExpressions": [{"key": "bedplate.io/team", "operator": "Exists"}]
        }


def test_devices_by_class_are_judged_where_kubernetes_has_classes_with_names() -> None:
    """And groups of pods are for API servers that can remove what the user says of a pod."""

    def found(version: str) -> tuple[set[str], set[str]]:
        content = lock().model_dump()
        content["cluster"]["kubernetes"]["version"] = version
        objects = policies.objects(queues_of(Lock.model_validate(content)))
        by_class = {
            one["spec"]["paramKind"]["kind"]
            for one in objects
            if one["kind"] == "ValidatingAdmissionPolicy" and "paramKind" in one["spec"]
        }
        kinds = {one["kind"] for one in objects if one["metadata"]["name"] == groups.NAME}
        return by_class, {kind for kind in kinds if not kind.endswith("Binding")}

    both = {"MutatingAdmissionPolicy", "ValidatingAdmissionPolicy"}
    assert found("1.36.3") == ({"DeviceClass"}, both)
    assert found("1.35.6") == (set(), {"ValidatingAdmissionPolicy"})


def test_what_one_member_has_is_held_to_be_counted() -> None:
    teams = {
        "vision": {"gpus": {"pool_a": (8, None)}, "per_user": {"gpus": 4}},
        "audio": {
            "gpus": {"pool_a": (4, 2)},
            "per_user": {"gpus": 4},
            "per_request": {"gpus": 2},
        },
        "speech": {"gpus": {"pool_a": (0, 2)}},
        "text": {"gpus": {"pool_a": (0, 2)}, "per_user": {"hours": 40}},
    }
    wanted = lock_of({"pool_a": HOSTS, "pool_b": [{}]}, teams)
    assert person_limits.hours(wanted) == {"text": ("text", 40)}
    (policy, binding) = person_limits.objects(queues_of(wanted))
    (change,) = policy["spec"]["mutations"]
    for text in (
        "'audio': 'one person has at most 4 GPUs or shares of team audio at once: this waits ",
        "'text': 'this waits until it is counted to its person'",
    ):
        assert text in change["jsonPatch"]["expression"]
    selector = binding["spec"]["matchResources"]["namespaceSelector"]
    only = {"key": "bedplate.io/team", "operator": "In", "values": ["audio", "text", "vision"]}
    assert selector == {"matchExpressions": [only]}
    # A request that is larger than that would wait for ever.
    sizes = by_name(list(request_limits.objects(queues_of(wanted))), "ValidatingAdmissionPolicy")
    spec = sizes["bedplate-request-limits"]["spec"]
    variables = {one["name"]: one["expression"] for one in spec["variables"]}
    assert variables["most_gpus"] == "{'audio': 2, 'vision': 4}[?variables.team].orValue(0)"
    (size,) = spec["validations"]
    whose = "(variables.team in [\"vision\"] ? 'per_user' : 'per_request')"
    assert whose in size["messageExpression"]
    assert not list(person_limits.objects(given()))


def test_requests_are_limited_for_the_teams_that_say_so() -> None:
    teams = {
        "vision": {"gpus": {"pool_a": (8, None)}, "per_request": {"gpus": 4}},
        "audio": {"gpus": {"pool_a": (4, 2)}, "per_request": {"time_s": 60}},
        "speech": {"gpus": {"pool_a": (0, 2)}},
    }
    wanted = lock_of({"pool_a": HOSTS, "pool_b": [{}]}, teams)
    found = list(request_limits.objects(queues_of(wanted)))
    policy = by_name(found, "ValidatingAdmissionPolicy")["bedplate-request-limits"]
    variables = {one["name"]: one["expression"] for one in policy["spec"]["variables"]}
    assert variables["most_gpus"] == "{'vision': 4}[?variables.team].orValue(0)"
    assert variables["most_time"] == "{'audio': 60}[?variables.team].orValue(0)"
    # The team's time is written only where it has one.
    bindings = by_name(found, "MutatingAdmissionPolicyBinding").values()
    selected = [one["spec"]["matchResources"]["namespaceSelector"] for one in bindings]
    only = {"key": "bedplate.io/team", "operator": "In", "values": ["audio"]}
    assert selected == [{"matchExpressions": [only]}] * 3
    assert not list(request_limits.objects(given()))
