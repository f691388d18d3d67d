"""The readers of what GPUs and programs do, on each node with GPUs. Pure functions of the lock.

A reader needs all of a host's GPUs and processes, so its pod starts with all rights, in a namespace
of its own; it gives them up before its first answer. No account's token is in it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from bedplate.accounting.store import NAMESPACE as ACCOUNTING
from bedplate.components.frameworks import hub_objects, volumes
from bedplate.components.schedulers.kueue.objects import Object, made
from bedplate.lock.offers import offers, pools_of_nodes
from bedplate.pods.hub import node_use
from bedplate.pods.hub.node_use import USE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bedplate.lock import Lock

PROGRAM: Final = "node_use.py"
FOLDER: Final = "/etc/bedplate/program"
#: The host's root in a reader.
ROOT: Final = "/host"


def namespace() -> Object:
    """Return the namespace of the readers."""
    about = "Reads when each pod used its GPU last, for the hub and the recorder of usage."
    allowed = {"pod-security.kubernetes.io/enforce": "privileged"}
    return made("Namespace", USE, about, version="v1", labels=allowed)


def objects(lock: Lock, image: str) -> list[Object]:
    """Return what lies in it, the readers last; `image` has Python."""
    pools = [name for name in sorted(pools_of_nodes(lock)) if offers(lock.pools[name])]
    hosts = sorted({name for pool in pools for name in volumes.nodes(lock, pool)})
    return [*access(), _program(), _readers(hosts, image)]


def for_recorder(lock: Lock, image: str) -> list[Object]:
    """Return the namespace and what lies in it where there is no hub: the recorder asks alone."""
    listed = [one for one in objects(lock, image) if one["kind"] not in {"Role", "RoleBinding"}]
    return [namespace(), *listed]


def access() -> list[Object]:
    """Return who may find the readers, and who may ask them."""
    rbac, net = hub_objects.RBAC, "networking.k8s.io/v1"
    hub = {"kind": "ServiceAccount", "name": hub_objects.HUB, "namespace": hub_objects.NAMESPACE}
    reads = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    bound: Object = {
        "roleRef": {"apiGroup": rbac.partition("/")[0], "kind": "Role", "name": USE},
        "subjects": [hub],
    }
    label = "kubernetes.io/metadata.name"
    may = [
        {"namespaceSelector": {"matchLabels": {label: one}}}
        for one in (hub_objects.NAMESPACE, ACCOUNTING)
    ]
    policy = {
        "podSelector": {},
        "policyTypes": ["Ingress"],
        "ingress": [{"from": may, "ports": [{"protocol": "TCP", "port": node_use.PORT}]}],
    }
    about = "Hub and recorder alone ask the readers. Flannel does not enforce this."
    return [
        made("Role", USE, "Lists the readers.", version=rbac, namespace=USE, rules=reads),
        made("RoleBinding", USE, "The hub.", version=rbac, namespace=USE, **bound),
        made("NetworkPolicy", USE, about, version=net, namespace=USE, spec=policy),
    ]


def _program() -> Object:
    text = Path(node_use.__file__).read_text()
    about = "The readers' program."
    return made("ConfigMap", USE, about, version="v1", namespace=USE, data={PROGRAM: text})


def _readers(hosts: Iterable[str], image: str) -> Object:
    labels = {"app.kubernetes.io/name": USE}
    container: Object = {
        "name": "reader",
        "image": image,
        "command": ["python3", f"{FOLDER}/{PROGRAM}", "--root", ROOT],
        "ports": [{"name": "http", "containerPort": node_use.PORT}],
        # Only such a container has all GPUs of the host; its program goes on as nobody.
        "securityContext": {"privileged": True, "runAsUser": 0},
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        "volumeMounts": [
            {"name": "program", "mountPath": FOLDER, "readOnly": True},
            {"name": "host", "mountPath": ROOT, "readOnly": True},
        ],
    }
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    spec = {
        "hostPID": True,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {required: volumes.terms(list(hosts))}},
        "containers": [container],
        "volumes": [
            {"name": "program", "configMap": {"name": USE}},
            {"name": "host", "hostPath": {"path": "/", "type": "Directory"}},
        ],
    }
    mark = {"bedplate.io/configuration": hub_objects.digest(_program()["data"])}
    found = made(
        "DaemonSet",
        USE,
        "Says when each pod of a node used its GPU last.",
        version="apps/v1",
        namespace=USE,
        spec={
            "selector": {"matchLabels": labels},
            "updateStrategy": {"rollingUpdate": {"maxUnavailable": "100%"}},
            "template": {"metadata": {"labels": labels, "annotations": mark}, "spec": spec},
        },
    )
    # Without a reader kernels decide what is idle: nothing of the stack waits for one.
    found["metadata"]["annotations"]["pulumi.com/skipAwait"] = "true"
    return found
