"""The recorder of usage in the cluster, as documents. Pure functions."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import TYPE_CHECKING, Any, Final

from bedplate.accounting.ending import JOBS, SHARES
from bedplate.accounting.store import NAMESPACE
from bedplate.common.shipped import program as program_of
from bedplate.components.refs import MANAGED
from bedplate.components.schedulers.kueue.objects import HUB_ACCOUNT
from bedplate.pods.hub.hours import NAME as TABLE_OF_HOURS
from bedplate.pods.remote.objects import TEAM_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bedplate.accounting import turns
    from bedplate.accounting.ending import Limits
    from bedplate.accounting.hours import Limits as OfWeek
    from bedplate.accounting.records import Units

Object = dict[str, Any]
NAME: Final = "bedplate-accounting"
APP: Final = {"app.kubernetes.io/name": NAME}
ARCHIVE: Final = "accounting.pyz"
#: The files that it reads, and its options of these names.
TABLES: Final = ("units", "idle", "per_user", "hours")
#: What the recorder is made of; the rest of these packages is for the command line.
FILES: Final = (
    *(f"accounting/{name}.py" for name in ("__main__", "book", "ending")),
    *(f"accounting/{name}.py" for name in ("hours", "measured", "recorder", "records", "store")),
    *(f"accounting/{name}.py" for name in ("turns", "usage")),
    *(f"pods/hub/{name}.py" for name in ("hours", "idle", "memory", "node_use", "shares")),
    *(f"pods/packing/{name}.py" for name in ("quantities", "shares")),
    "pods/api.py",
    "portable/quantities.py",
)
NOBODY: Final = 65532
#: What it may do in namespaces whose idle shares end.
ENDS: Final = "bedplate-idle"
#: And in those of teams with a limit for each member.
LETS_IN: Final = "bedplate-turns"
ACCOUNT: Final = {"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}
RBAC: Final = "rbac.authorization.k8s.io"


def archive() -> bytes:
    """Return the recorder as one file that Python runs; equal sources give equal bytes."""
    return program_of("accounting", FILES)


def objects(
    python: str,
    units: Units,
    idle: Limits | None = None,
    per_user: turns.Limits | None = None,
    hours: OfWeek | None = None,
) -> list[Object]:
    """Return all documents.

    Args:
        python: an image with Python 3.11 or newer as `python3`. The recorder itself is mounted.
        units: GPUs by unit, by pool and resource.
        idle: after how many seconds what is idle ends, by namespace.
        per_user: team and what one member of it has at once, by namespace.
        hours: whose limit it is, and GPU-hours that a person has in a week, by queue.
    """
    limits, persons = idle or {}, per_user or {}
    program = archive()
    tables = {
        f"{name}.json": json.dumps(table, sort_keys=True)
        for name, table in zip(TABLES, (units, limits, persons, hours or {}), strict=True)
    }
    digest = hashlib.sha256(program + "".join(tables.values()).encode()).hexdigest()[:16]
    own = _object(
        "v1",
        "ConfigMap",
        f"{NAME}-program",
        "The recorder, the GPUs that a unit of each resource is, idle times, limits of persons.",
        data=tables,
        binaryData={ARCHIVE: base64.b64encode(program).decode()},
    )
    space = _object("v1", "Namespace", NAMESPACE, "Who held how many GPUs for how long.")
    # It has the records: they stay when the stack goes, and no label says they are the stack's.
    space["metadata"]["labels"] = {"pod-security.kubernetes.io/enforce": "restricted"}
    rights = (*_rights(), *_may_end(limits), *_may_let_in(persons))
    teams = {team for team, _ in persons.values()}
    if any(of not in teams for of, _ in (hours or {}).values()):
        rights = (*rights, *_hub_reads())
    return [space, *rights, own, _deployment(python, digest)]


def _object(
    version: str, kind: str, name: str, text: str, within: str = NAMESPACE, **more: Any
) -> Object:
    metadata: Object = {
        "name": name,
        "labels": {**MANAGED, **APP},
        "annotations": {"kubernetes.io/description": text},
    }
    if kind not in {"Namespace", "ClusterRole", "ClusterRoleBinding"}:
        metadata["namespace"] = within
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **more}


def _may_end(idle: Limits) -> Iterator[Object]:
    """Yield what the recorder may change, in the namespaces of what ends when it is idle."""
    event = {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]}
    ends = [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["list", "patch"]}, event]
    work = [
        {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"], "verbs": ["list", "patch"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "patch"]},
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["list", "patch"]},
        {"apiGroups": ["apps"], "resources": ["replicasets"], "verbs": ["get"]},
        {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": ["patch"]},
        {"apiGroups": ["bedplate.io"], "resources": ["remoteclaims"], "verbs": ["get", "patch"]},
    ]
    for name, kind, about, rules in (
        (ENDS, SHARES, "Ends shares that are idle.", ends),
        (f"{ENDS}-jobs", JOBS, "Ends jobs and remote claims that are idle.", work),
    ):
        within = sorted(namespace for namespace, times in idle.items() if kind in times)
        yield from _may(name, about, rules, within)


def _may_let_in(persons: turns.Limits) -> Iterator[Object]:
    """Yield the same of teams' namespaces; those of remote claims have it where they are made."""
    own = sorted(name for name, (team, _) in persons.items() if name != TEAM_NAMESPACE.format(team))
    lets = [{"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": ["patch"]}]
    return _may(LETS_IN, "Lets members' requests into the queue.", lets, own)


def _may(name: str, about: str, rules: list[Object], namespaces: list[str]) -> Iterator[Object]:
    if namespaces:
        yield _object(f"{RBAC}/v1", "ClusterRole", name, about, rules=rules)
    for namespace in namespaces:
        yield _object(
            f"{RBAC}/v1",
            "RoleBinding",
            name,
            "For the recorder.",
            within=namespace,
            roleRef={"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
            subjects=[ACCOUNT],
        )


def _hub_reads() -> Iterator[Object]:
    """Yield the hub's right to read who has used up the hours of a course."""
    name = f"{NAME}-hours"
    rule = {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [TABLE_OF_HOURS]}
    about = "Reads what persons have used of courses."
    yield _object(f"{RBAC}/v1", "Role", name, about, rules=[rule | {"verbs": ["get"]}])
    yield _object(
        f"{RBAC}/v1",
        "RoleBinding",
        name,
        "For the hub.",
        roleRef={"apiGroup": RBAC, "kind": "Role", "name": name},
        subjects=[{"kind": "User", "name": HUB_ACCOUNT, "apiGroup": RBAC}],
    )


def _rights() -> Iterator[Object]:
    api = f"{RBAC}/v1"
    see = ["get", "list", "watch"]
    reads = [
        {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": see},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get"]},
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]},
        {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"], "verbs": ["get"]},
    ]
    keeps = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "get", "update"]}]
    yield _object("v1", "ServiceAccount", NAME, "Reads Workloads and keeps records of them.")
    yield _object(api, "ClusterRole", NAME, "Reads Workloads and what they are for.", rules=reads)
    yield _object(api, "Role", NAME, "Keeps its records.", rules=keeps)
    for kind in ("ClusterRole", "Role"):
        yield _object(
            api,
            f"{kind}Binding",
            NAME,
            "For the recorder.",
            roleRef={"apiGroup": RBAC, "kind": kind, "name": NAME},
            subjects=[ACCOUNT],
        )


def _deployment(python: str, digest: str) -> Object:
    control = "node-role.kubernetes.io/control-plane"
    container = {
        "name": "recorder",
        "image": python,
        "command": ["python3", "-B", f"/etc/bedplate/{ARCHIVE}"],
        "args": [f"--{name.replace('_', '-')}=/etc/bedplate/{name}.json" for name in TABLES],
        "resources": {
            "requests": {"cpu": "20m", "memory": "64Mi"},
            "limits": {"memory": "512Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "program", "mountPath": "/etc/bedplate", "readOnly": True}],
    }
    spec = {
        "serviceAccountName": NAME,
        "tolerations": [{"key": control, "operator": "Exists", "effect": "NoSchedule"}],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": NOBODY,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [{"name": "program", "configMap": {"name": f"{NAME}-program"}}],
    }
    return _object(
        "apps/v1",
        "Deployment",
        NAME,
        "Follows Workloads and keeps a record of each admission.",
        spec={
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": APP},
            "template": {
                "metadata": {
                    "labels": {**MANAGED, **APP},
                    "annotations": {"bedplate.io/configuration": digest},
                },
                "spec": spec,
            },
        },
    )
