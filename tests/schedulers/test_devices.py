"""Every way to a device that this Kubernetes has: Kueue counts it, or the API server refuses it.

The first tests read the ways from the API server: they fail when a newer Kubernetes has another.
Then each is tried, as an administrator: no missing right refuses it here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bedplate.components.schedulers import dra
from bedplate.components.schedulers.kueue import groups, policies, tenancy
from bedplate.components.schedulers.kueue.devices import TEMPLATES
from bedplate.portable.dra import IMPLICIT
from tests.schedulers import ways
from tests.schedulers.api import Api, ApiError, eventually
from tests.schedulers.dra import claim, template
from tests.schedulers.locks import lock_of, queues_of
from tests.schedulers.nodes import GPU

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.schedulers.control_plane import ControlPlane

TEAM = "devices"
JOBSETS = "jobset.x-k8s.io"
LOCK = lock_of(
    {"pool_a": [{}]},
    {TEAM: {"gpus": {"pool_a": (1, 0)}}},
    gpus=4,
    preset={"placement": {"pods": "spread"}},
    addons=["kueue", "jobset"],
)

#: Fields that name devices, or let a pod near them; the tests below try each.
OF_DEVICES = {
    "PodSpec": "containers ephemeralContainers hostIPC hostNetwork hostPID initContainers nodeName"
    " overhead resourceClaims resources runtimeClassName schedulerName schedulingGates"
    " securityContext volumes",
    "Container": "env envFrom resizePolicy resources restartPolicy restartPolicyRules"
    " securityContext volumeDevices volumeMounts",
    "ResourceRequirements": "claims limits requests",
    "PodResourceClaim": "name resourceClaimName resourceClaimTemplateName",
    "ResourceClaim": "name request",
}
#: `schedulingGroup` names a PodGroup, which may have claims: behind a gate that is off (1.36), and
#: only for pods that have the same claim themselves (DRAWorkloadResourceClaims).
OF_NONE = {
    "PodSpec": "activeDeadlineSeconds affinity automountServiceAccountToken dnsConfig dnsPolicy"
    " enableServiceLinks hostAliases hostUsers hostname hostnameOverride imagePullSecrets"
    " nodeSelector os preemptionPolicy priority priorityClassName readinessGates restartPolicy"
    " schedulingGroup serviceAccount serviceAccountName setHostnameAsFQDN shareProcessNamespace"
    " subdomain terminationGracePeriodSeconds tolerations topologySpreadConstraints",
    "Container": "args command image imagePullPolicy lifecycle livenessProbe name ports"
    " readinessProbe startupProbe stdin stdinOnce terminationMessagePath terminationMessagePolicy"
    " tty workingDir",
}
KINDS = {"resource.k8s.io": "deviceclasses resourceclaims resourceclaimtemplates resourceslices"}
KINDS["scheduling.k8s.io"] = "priorityclasses"
PARTS = "attach binding ephemeralcontainers eviction exec log portforward proxy resize status"


def test_this_kubernetes_has_no_other_way_to_name_a_device(control_plane: ControlPlane) -> None:
    api = control_plane.api
    known = dict(ways.documents(api))
    for kind, fields in OF_DEVICES.items():
        found = ways.properties(known["api/v1"], f"io.k8s.api.core.v1.{kind}")
        assert found == {*fields.split(), *OF_NONE.get(kind, "").split()}, kind
    listed = api.call("GET", "/api/v1")["resources"]
    assert [one["name"] for one in listed if one["name"].startswith("pods/")] == [
        f"pods/{part}" for part in PARTS.split()
    ]
    for group, plurals in KINDS.items():
        found = {
            path.split("/")[-1]
            for name, document in known.items()
            if name.startswith(f"apis/{group}/v")
            for path in document["paths"]
            if "post" in document["paths"][path]
        }
        assert found == set(plurals.split()), group


def test_every_kind_with_pods_is_judged(control_plane: ControlPlane) -> None:
    judged = {(of, one) for _, kinds, _ in TEMPLATES for of, _, many in kinds for one in many}
    found = {
        ("" if name == "api/v1" else name.split("/")[1], plural)
        for name, document in ways.documents(control_plane.api)
        for plural in ways.with_pods(document)
    }
    installed_by_charts = {(JOBSETS, "jobsets"), ("batch.volcano.sh", "jobs")}
    assert found - installed_by_charts == judged - installed_by_charts


@pytest.fixture(scope="module")
def judged(control_plane: ControlPlane) -> Iterator[Api]:
    """The policies of a team, with the classes of devices."""
    api = control_plane.api
    of = queues_of(LOCK)
    made = [*ways.classes(), *tenancy.objects(of), *policies.objects(of)]
    for one in made:
        api.apply(one)
    eventually(lambda: ways.in_force(api, TEAM))
    yield api
    for one in reversed(made):
        api.delete(api.path_of(one))


def test_what_no_queue_counts_is_refused_in_every_kind(judged: Api) -> None:
    wrong = []
    for way, (spec, said) in ways.REFUSED.items():
        for (group, plural), made in ways.templates(TEAM, spec).items():
            found = ways.refusal(judged, made) if group != JOBSETS else said
            # Without Kueue nothing is queued: of what starts at once that may be said first.
            unqueued = plural in ("pods", "jobs") and "is not in the queue" in found
            if said not in found and not unqueued:
                wrong.append((way, plural, found))
    assert wrong == []


def patched(api: Api, plural: str, version: str, name: str, change: dict[str, Any]) -> str:
    """Return why the API server refuses a change; nothing where it is made."""
    try:
        api.patch(api.path(plural, version, TEAM, name), change)
    except ApiError as error:
        return str(error)
    return ""


def test_a_change_is_judged_and_what_was_there_before_goes_on(judged: Api) -> None:
    before = ways.templates(TEAM, ways.asking({}))["apps", "deployments"]
    judged.create(before)
    inside = ways.templates(TEAM, ways.asking({f"{IMPLICIT}{dra.WHOLE}": "1"}))
    wrong = inside["apps", "deployments"]["spec"]["template"]
    change = {"spec": {"template": wrong}}
    assert "by a device class" in patched(judged, "deployments", "apps/v1", "w", change)
    assert patched(judged, "deployments", "apps/v1", "w", {"spec": {"replicas": 0}}) == ""
    judged.delete(judged.path("deployments", "apps/v1", TEAM, "w"))


def test_a_claim_by_hand_and_a_device_by_annotation_are_refused(judged: Api) -> None:
    made = claim(template(TEAM, "mine", None, dra.WHOLE))
    assert (
        "a claim that is made by hand — namespace devices — got ResourceClaim mine / allowed"
        f" {GPU} — {ways.INSTEAD}"
    ) in ways.refusal(judged, made)
    named = ways.templates(TEAM, ways.asking({}))["", "pods"]
    named["metadata"]["annotations"] = {"cdi.k8s.io/gpus": "nvidia.com/gpu=all"}
    assert "pod with devices by annotation" in ways.refusal(judged, named)


def test_a_value_of_the_annotation_that_kueue_writes_is_removed(judged: Api) -> None:
    made = ways.templates(TEAM, ways.asking({}))["", "pods"]
    made["metadata"]["annotations"] = {groups.ROLE: "mine", "mine.example/note": "kept"}
    found = judged.create(made)["metadata"]["annotations"]
    assert (groups.ROLE in found, found["mine.example/note"]) == (False, "kept")
    change = {"metadata": {"annotations": {groups.ROLE: "mine"}}}
    assert "pod w changes what Kueue writes" in patched(judged, "pods", "v1", "w", change)
    judged.delete(judged.path("pods", "v1", TEAM, "w"), gracePeriodSeconds=0)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"volumes": [{"name": "d", "hostPath": {"path": "/dev"}}]}, "hostPath volumes"),
        ({"hostPID": True}, "hostPID=true"),
        ({"hostNetwork": True}, "hostNetwork=true"),
        ({"hostIPC": True}, "hostIPC=true"),
        ({"overhead": {GPU: "1"}}, "without corresponding RuntimeClass defined Overhead"),
        ({"resources": {"limits": {GPU: "1"}}}, "spec.resources.limits[nvidia.com/gpu]"),
    ],
)
def test_what_kubernetes_itself_refuses(judged: Api, spec: dict[str, Any], said: str) -> None:
    made = ways.templates(TEAM, {**ways.asking({}), **spec})["", "pods"]
    assert said in ways.refusal(judged, made)
