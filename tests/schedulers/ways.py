"""What names a device on this API server: read of the API server, and built for the tests."""

from __future__ import annotations

import copy
import itertools
import json
from typing import TYPE_CHECKING, Any

from bedplate.components.schedulers import dra
from bedplate.portable.dra import IMPLICIT
from tests.schedulers.api import ApiError
from tests.schedulers.dra import claim, template
from tests.schedulers.nodes import GPU
from tests.schedulers.workloads import IMAGE, pod_spec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.schedulers.api import Api

#: What another chart brings: a class of the same GPUs, with a resource of its own.
LATER, DECLARED = "later.example", "later.example/gpu"


def documents(api: Api) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each group-version of the API server with its OpenAPI document."""
    # The index is JSON that does not say so.
    for path, found in json.loads(api.call("GET", "/openapi/v3"))["paths"].items():
        if path.startswith("api"):
            yield path, api.call("GET", found["serverRelativeURL"])


def properties(document: dict[str, Any], schema: str) -> set[str]:
    """Return the names of the fields of a schema."""
    return set(document["components"]["schemas"][schema].get("properties", {}))


def with_pods(document: dict[str, Any]) -> set[str]:
    """Return the plurals of the namespaced resources that have a specification of pods in them."""
    schemas = document.get("components", {}).get("schemas", {})

    def inside(schema: Any, seen: frozenset[str]) -> bool:
        if isinstance(schema, list):
            return any(inside(one, seen) for one in schema)
        if not isinstance(schema, dict):
            return False
        if {"containers", "initContainers"} <= set(schema.get("properties", {})):
            return True
        name = str(schema.get("$ref", "")).rpartition("/")[2]
        if name:
            return name not in seen and inside(schemas[name], seen | {name})
        return any(inside(one, seen) for one in schema.values())

    found = set()
    for path, calls in document["paths"].items():
        *_, before, plural = path.split("/")
        body = calls.get("post", {}).get("requestBody")
        if before == "{namespace}" and body and inside(body, frozenset()):
            found.add(plural)
    return found


def templates(
    namespace: str, spec: dict[str, Any], name: str = "w", told: Mapping[str, str] | None = None
) -> dict[tuple[str, str], dict[str, Any]]:
    """Return an object of each kind with these pods, by API group and plural.

    `told`: the pods' annotations.
    """
    labels = {"app": name}
    inside = {"metadata": {"labels": labels, "annotations": dict(told or {})}, "spec": spec}
    often = {"spec": {**spec, "restartPolicy": "Always"}, "metadata": inside["metadata"]}
    chosen = {"selector": {"matchLabels": labels}, "template": often}
    part = {"name": "w", "replicas": 1, "template": {"spec": {"template": inside}}}
    made = {
        ("", "pods"): ("v1", "Pod", {"spec": spec}),
        ("", "podtemplates"): ("v1", "PodTemplate", {"template": often}),
        ("", "replicationcontrollers"): (
            "v1",
            "ReplicationController",
            {"spec": {"replicas": 1, "selector": labels, "template": often}},
        ),
        ("batch", "jobs"): ("batch/v1", "Job", {"spec": {"template": inside}}),
        ("batch", "cronjobs"): (
            "batch/v1",
            "CronJob",
            {"spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": inside}}}},
        ),
        ("apps", "deployments"): ("apps/v1", "Deployment", {"spec": chosen}),
        ("apps", "replicasets"): ("apps/v1", "ReplicaSet", {"spec": chosen}),
        ("apps", "daemonsets"): ("apps/v1", "DaemonSet", {"spec": chosen}),
        ("apps", "statefulsets"): (
            "apps/v1",
            "StatefulSet",
            {"spec": {**chosen, "serviceName": "w"}},
        ),
        ("jobset.x-k8s.io", "jobsets"): (
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            {"spec": {"replicatedJobs": [part]}},
        ),
    }
    return {
        where: {
            "apiVersion": version,
            "kind": kind,
            "metadata": {"name": name, "namespace": namespace, **_of_pods(kind, told)},
            **copy.deepcopy(content),
        }
        for where, (version, kind, content) in made.items()
    }


def _of_pods(kind: str, told: Mapping[str, str] | None) -> dict[str, Any]:
    return {"annotations": dict(told)} if kind == "Pod" and told else {}


def asking(
    limits: dict[str, str], *, kind: str = "containers", requests: bool = False, **more: Any
) -> dict[str, Any]:
    """Return a pod's specification with a container of a kind that asks for resources."""
    spec = pod_spec(0)
    if kind == "containers":
        spec["containers"][0]["resources"] = {"requests" if requests else "limits": limits}
    else:
        spec["initContainers"] = [early(limits, kind, requests=requests)]
    return {**spec, **more}


def early(limits: dict[str, str], kind: str, *, requests: bool = False) -> dict[str, Any]:
    """Return an init container, or a sidecar, that asks for resources."""
    return {
        "name": "early",
        "image": IMAGE,
        "resources": {"requests" if requests else "limits": limits},
        **({"restartPolicy": "Always"} if kind == "sidecar" else {}),
    }


def refusal(api: Api, item: dict[str, Any]) -> str:
    """Return why the API server would refuse an object; nothing where it would make it."""
    try:
        api.call("POST", api.path_of(item, named=False), item, params={"dryRun": "All"})
    except ApiError as error:
        return str(error)
    return ""


def claimed(name: str, **more: str) -> dict[str, Any]:
    """Return a pod's specification with a claim."""
    spec = pod_spec(0)
    spec["containers"][0]["resources"]["claims"] = [{"name": name}]
    return {**spec, "resourceClaims": [{"name": name, **more}]}


CLASSES = (dra.WHOLE, dra.SHARE, LATER)
WHERE = ("containers", "init", "sidecar")
BY_CLASS = "asks for devices by a device class — namespace devices"
INSTEAD = "ask for GPUs by the resource, which the queue default counts"
SIDECAR = (
    "has GPUs in a sidecar and in another container — namespace devices — got nvidia.com/gpu in an"
    " init container with restartPolicy Always / allowed one of them, which the queue counts — give"
    " all GPUs to one container"
)
CLAIM = (
    "with resource claims — namespace devices — got gpu / allowed nvidia.com/gpu — ask for GPUs by"
    " the resource: the queue does not count claims"
)
REFUSED = {
    **{
        f"{one}-{kind}-{'requests' if requests else 'limits'}": (
            asking({f"{IMPLICIT}{one}": "2"}, kind=kind, requests=requests),
            f"{BY_CLASS} — got deviceclass.resource.kubernetes.io/… / allowed {GPU} — {INSTEAD}",
        )
        for one, kind, requests in itertools.product(CLASSES, WHERE, (True, False))
    },
    **{
        f"declared-{kind}": (
            asking({DECLARED: "1"}, kind=kind),
            f"{BY_CLASS} — got {DECLARED} / allowed {GPU} — {INSTEAD}",
        )
        for kind in WHERE
    },
    "beside-a-counted-one": (
        asking({GPU: "1", f"{IMPLICIT}{dra.WHOLE}": "2"}),
        BY_CLASS,
    ),
    "of-a-sidecar": (
        {**asking({GPU: "1"}), "initContainers": [early({GPU: "1"}, "sidecar")]},
        SIDECAR,
    ),
    "of-no-pool": (
        asking({"nvidia.com/mig-1g.10gb": "1"}),
        f"asks for GPUs that no pool offers — namespace devices — allowed {GPU} — {INSTEAD}",
    ),
    "by-template": (
        claimed("gpu", resourceClaimTemplateName="whole"),
        CLAIM,
    ),
    "ready-made": (claimed("mine", resourceClaimName="mine"), "with resource claims"),
}


def classes() -> list[dict[str, Any]]:
    """Return the classes of devices: Bedplate's, and one of another chart."""
    later = dra.objects(limited=False)[0]
    later["metadata"]["name"] = LATER
    later["spec"]["extendedResourceName"] = DECLARED
    return [*dra.objects(limited=False), later]


def in_force(api: Api, namespace: str) -> bool:
    """Tell whether the API server has read the policies, and the class of another chart."""
    late = templates(namespace, asking({DECLARED: "1"}))["", "podtemplates"]
    made = refusal(api, claim(template(namespace, "mine", None)))
    return "by a device class" in refusal(api, late) and "by hand" in made
