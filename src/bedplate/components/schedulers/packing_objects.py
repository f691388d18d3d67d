"""What packing is in the cluster, as documents. Pure functions.

A scheduler of its own and its extender in one pod, the rights of both, and two admission policies:
one writes into a pod that asks for a share what it needs, one refuses what would not be counted.
"""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Any, Final

import yaml

from bedplate.common.shipped import modules, program
from bedplate.components.refs import MANAGED
from bedplate.components.schedulers.packing_config import NAME, NAMESPACE, configuration
from bedplate.pods.packing.shares import GPUS, RESOURCE, WHOLE

if TYPE_CHECKING:
    from collections.abc import Iterator

Object = dict[str, Any]
#: What reads amounts, for hosts and pods alike.
SHARED: Final = ("pods/api.py", "pods/watching.py", "portable/quantities.py")
RUNTIME_CLASS: Final = "nvidia"
VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
HEALTH: Final = 10271
SECURE: Final = 10259
APP: Final = {"app.kubernetes.io/name": NAME}
ARCHIVE: Final = "packing.pyz"
#: No user of the image: neither program needs to be one.
NOBODY: Final = 65532
REPLICAS: Final = 2
#: Containers of a pod that the filling policy looks at: CEL has no index of a list's element.
MOST_CONTAINERS: Final = 32
SCRATCH: Final = "/var/run/bedplate"


def objects(scheduler: str, python: str, replicas: int = REPLICAS) -> list[Object]:
    """Return all documents.

    Args:
        scheduler: the image of kube-scheduler, of the cluster's version.
        python: an image with Python 3.10 or newer as `python3`. The extender itself is mounted.
        replicas: instances; one decides, the others wait for its Lease.
    """
    configured = list(_configuration())
    digest = hashlib.sha256(yaml.safe_dump(configured).encode()).hexdigest()
    running = _deployment(scheduler, python, replicas)
    # Pods start again with what they read at their start.
    template = running["spec"]["template"]["metadata"]
    template["annotations"] = {"bedplate.io/configuration": digest[:16]}
    return [*_rights(), *_policies(), *configured, running]


def archive() -> bytes:
    """Return the extender as one file that Python runs; equal sources give equal bytes."""
    return program("pods/packing", [*modules("pods/packing"), *SHARED])


def _object(version: str, kind: str, name: str, text: str, **more: Any) -> Object:
    metadata: Object = {
        "name": name,
        "labels": {**MANAGED, **APP},
        "annotations": {"kubernetes.io/description": text},
    }
    if kind in {"ServiceAccount", "Role", "RoleBinding", "ConfigMap", "Deployment", "Service"}:
        metadata["namespace"] = NAMESPACE
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **more}


def _rights() -> Iterator[Object]:
    group = "rbac.authorization.k8s.io"
    account = {"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}

    def bound(kind: str, name: str, to: str, text: str, role: str = "ClusterRole") -> Object:
        of = {"apiGroup": group, "kind": role, "name": to}
        return _object(f"{group}/v1", kind, name, text, roleRef=of, subjects=[account])

    yield _object("v1", "ServiceAccount", NAME, "Schedules and binds pods that ask for shares.")
    yield bound("ClusterRoleBinding", NAME, "system:kube-scheduler", "It is a kube-scheduler.")
    yield bound(
        "ClusterRoleBinding", f"{NAME}-volumes", "system:volume-scheduler", "It places volumes too."
    )
    yield _object(
        f"{group}/v1",
        "ClusterRole",
        f"{NAME}-nodes",
        f"Writes {RESOURCE} into the status of nodes.",
        rules=[{"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]}],
    )
    yield bound("ClusterRoleBinding", f"{NAME}-nodes", f"{NAME}-nodes", "For the extender.")
    leases = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    yield _object(
        f"{group}/v1",
        "Role",
        NAME,
        "Holds and reads its own Lease.",
        rules=[
            {**leases, "verbs": ["create"]},
            {
                **leases,
                "resourceNames": [NAME],
                "verbs": ["get", "list", "watch", "update", "patch"],
            },
        ],
    )
    yield bound("RoleBinding", NAME, NAME, "Its own Lease.", "Role")
    yield bound(
        "RoleBinding",
        f"{NAME}-authentication",
        "extension-apiserver-authentication-reader",
        "Who may read its metrics.",
        "Role",
    )


def _configuration() -> Iterator[Object]:
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        **configuration(),
    }
    yield _object(
        "v1",
        "ConfigMap",
        NAME,
        "The scheduler's configuration, and the extender's program.",
        data={"scheduler.yml": yaml.safe_dump(config)},
        binaryData={ARCHIVE: base64.b64encode(archive()).decode()},
    )
    yield _object(
        "v1",
        "Service",
        NAME,
        "Metrics and health of the extender; its questions are asked on the loopback address.",
        spec={
            "clusterIP": "None",
            "selector": APP,
            "ports": [{"name": "metrics", "port": HEALTH, "targetPort": HEALTH}],
        },
    )


def _deployment(scheduler: str, python: str, replicas: int) -> Object:
    def probe(port: int, scheme: str) -> Object:
        return {"httpGet": {"path": "/healthz", "port": port, "scheme": scheme}}

    restricted = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    mounted = [{"name": "config", "mountPath": "/etc/bedplate", "readOnly": True}]
    containers = [
        {
            "name": "kube-scheduler",
            "image": scheduler,
            "command": ["kube-scheduler", "--config=/etc/bedplate/scheduler.yml"],
            "args": [f"--secure-port={SECURE}", f"--cert-dir={SCRATCH}"],
            "livenessProbe": probe(SECURE, "HTTPS"),
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
            "securityContext": restricted,
            "volumeMounts": [*mounted, {"name": "scratch", "mountPath": SCRATCH}],
        },
        {
            "name": "extender",
            "image": python,
            "command": ["python3", "-B", f"/etc/bedplate/{ARCHIVE}"],
            "args": [f"--lease={NAMESPACE}/{NAME}", f"--health-port={HEALTH}"],
            "ports": [{"name": "metrics", "containerPort": HEALTH}],
            "livenessProbe": probe(HEALTH, "HTTP"),
            "readinessProbe": probe(HEALTH, "HTTP"),
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
            "securityContext": restricted,
            "volumeMounts": mounted,
        },
    ]
    control = "node-role.kubernetes.io/control-plane"
    apart = {"labelSelector": {"matchLabels": APP}, "topologyKey": "kubernetes.io/hostname"}
    spec = {
        "serviceAccountName": NAME,
        "priorityClassName": "system-cluster-critical",
        "nodeSelector": {control: ""},
        "tolerations": [{"key": control, "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 100, "podAffinityTerm": apart}
                ]
            }
        },
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": NOBODY,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": containers,
        "volumes": [
            {"name": "config", "configMap": {"name": NAME}},
            {"name": "scratch", "emptyDir": {}},
        ],
    }
    return _object(
        "apps/v1",
        "Deployment",
        NAME,
        "A kube-scheduler that asks the packing extender, and the extender, in one pod.",
        spec={
            "replicas": replicas,
            "selector": {"matchLabels": APP},
            "template": {"metadata": {"labels": {**MANAGED, **APP}}, "spec": spec},
        },
    )


def _asks(container: str) -> str:
    """CEL: whether a container asks for a share."""
    requests = f"{container}.resources.requests"
    return f"(has({container}.resources) && has({requests}) && '{RESOURCE}' in {requests})"


_CONTAINERS: Final = (
    "(object.spec.containers + (has(object.spec.initContainers) ? object.spec.initContainers : []))"
)
_ASKED: Final = f"{_CONTAINERS}.exists(c, {_asks('c')})"
_AMOUNT: Final = f"quantity(c.resources.requests['{RESOURCE}']).asInteger()"


def _annotation(of: str) -> str:
    """CEL: the GPUs that an object names, or nothing."""
    where = f"{of}.metadata.annotations"
    return f"(has({where}) && '{GPUS}' in {where} ? {where}['{GPUS}'] : '')"


def _policies() -> Iterator[Object]:
    yield from _bound("MutatingAdmissionPolicy", f"{NAME}-fills", _FILLS_TEXT, _fills())
    yield from _bound("ValidatingAdmissionPolicy", f"{NAME}-counts", _COUNTS_TEXT, _counts())


_FILLS_TEXT: Final = f"A pod that asks for {RESOURCE} gets scheduler, runtime and environment."
_COUNTS_TEXT: Final = f"Refuses pods that ask for {RESOURCE} and would not be counted."


def _bound(kind: str, name: str, text: str, spec: Object) -> Iterator[Object]:
    version = "admissionregistration.k8s.io/v1"
    binding: Object = {"policyName": name}
    if kind == "ValidatingAdmissionPolicy":
        binding["validationActions"] = ["Deny"]
    yield _object(version, kind, name, text, spec={"failurePolicy": "Fail", **spec})
    yield _object(version, f"{kind}Binding", name, text, spec=binding)


def _rules(operations: list[str], resources: list[str]) -> Object:
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": operations,
        "resources": resources,
    }
    return {"resourceRules": [rule]}


def _fills() -> Object:
    # Patches of JSON: an apply configuration may not write a fieldRef, whose type is atomic.
    one = "object.spec.containers[i]"
    env = "Object.spec.containers.env"
    field = (
        f"{env}{{name: '{VISIBLE}', valueFrom: {env}.valueFrom{{"
        f"fieldRef: {env}.valueFrom.fieldRef{{"
        f"fieldPath: \"metadata.annotations['{GPUS}']\"}}}}}}"
    )
    lacks = f"(!has({one}.env) || !{one}.env.exists(e, e.name == '{VISIBLE}'))"
    asking = f"{list(range(MOST_CONTAINERS))}.filter(i, i < object.spec.containers.size() && "
    where = "'/spec/containers/' + string(i) + '/env"
    expression = (
        "(object.spec.schedulerName != 'default-scheduler' ? [] :"
        f" [JSONPatch{{op: 'add', path: '/spec/schedulerName', value: '{NAME}'}}])"
        " + (has(object.spec.runtimeClassName) ? [] :"
        f" [JSONPatch{{op: 'add', path: '/spec/runtimeClassName', value: '{RUNTIME_CLASS}'}}])"
        # An empty list first: kube-apiserver 1.36.3 panics over a value that is a list of objects.
        f" + {asking}{_asks(one)} && !has({one}.env))"
        f".map(i, JSONPatch{{op: 'add', path: {where}', value: []}})"
        f" + {asking}{_asks(one)} && {lacks})"
        f".map(i, JSONPatch{{op: 'add', path: {where}/-', value: {field}}})"
    )
    return {
        "matchConstraints": _rules(["CREATE"], ["pods"]),
        "matchConditions": [{"name": "asks", "expression": _ASKED}],
        "reinvocationPolicy": "IfNeeded",
        "mutations": [
            {
                "patchType": "JSONPatch",
                "jsonPatch": {"expression": expression},
            }
        ],
    }


def _counts() -> Object:
    whole = f"{_AMOUNT} > 0 && ({_AMOUNT} <= {WHOLE} || {_AMOUNT} % {WHOLE} == 0)"
    kept = f"{_annotation('object')} == (oldObject == null ? '' : {_annotation('oldObject')})"
    checks = {
        f"{RESOURCE} is a share of one GPU (1 to {WHOLE}) or whole GPUs (a multiple of {WHOLE})": (
            f"{_CONTAINERS}.all(c, !{_asks('c')} || ({whole}))"
        ),
        f"{RESOURCE}: one ordinary container of a pod may ask for it": (
            f"!{_ASKED} || {_CONTAINERS}.filter(c, {_asks('c')}).size() == 1 &&"
            f" object.spec.containers.exists_one(c, {_asks('c')})"
        ),
        f"{RESOURCE} is counted by scheduler {NAME} alone: give no other schedulerName": (
            f"!{_ASKED} || object.spec.schedulerName == '{NAME}'"
        ),
        f"{RESOURCE}: the scheduler chooses the node: use a nodeSelector in place of nodeName": (
            f"oldObject != null || !{_ASKED} || !has(object.spec.nodeName)"
        ),
        f"{VISIBLE} of a container with {RESOURCE} comes from annotation {GPUS}": (
            f"{_CONTAINERS}.all(c, !{_asks('c')} || !has(c.env) || c.env.all(e, e.name !="
            f" '{VISIBLE}' || has(e.valueFrom) && has(e.valueFrom.fieldRef) &&"
            f" e.valueFrom.fieldRef.fieldPath == \"metadata.annotations['{GPUS}']\"))"
        ),
        f"annotation {GPUS} is written by the binding alone": kept,
    }
    return {
        "matchConstraints": _rules(["CREATE", "UPDATE"], ["pods", "pods/status"]),
        "validations": [
            {"expression": expression, "message": message} for message, expression in checks.items()
        ],
    }
