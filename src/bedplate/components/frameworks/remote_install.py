"""What a cluster has for remote GPUs before anybody asks: kind, rights, queues, controller.

A team's engines run in a namespace of their own, `remote-TEAM`. It has the team's label and queue,
so quota and policies are the team's, and no member has a right in it: who could enter an engine's
pod would pass its front.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from typing import TYPE_CHECKING, Any, Final

from bedplate.common.errors import BedplateError, Problem
from bedplate.common.shipped import modules, program
from bedplate.components.schedulers.accounting_objects import ACCOUNT as RECORDER
from bedplate.components.schedulers.accounting_objects import LETS_IN
from bedplate.components.schedulers.kueue.objects import QUEUE, TEAM_LABEL, made
from bedplate.components.schedulers.kueue.tenancy import RBAC, SECURITY, subjects
from bedplate.pods.remote.claims import API, GROUP, PLURAL, USER, definition
from bedplate.pods.remote.objects import (
    NAMESPACE,
    NOBODY,
    PROGRAM,
    RESTRICTED,
    TEAM_NAMESPACE,
    Settings,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from bedplate.lock.model import Team

Object = dict[str, Any]
NAME: Final = "bedplate-remote"
APP: Final = {"app.kubernetes.io/name": NAME}
ADMISSION: Final = "admissionregistration.k8s.io/v1"
ALL: Final = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
LABEL_LENGTH: Final = 63
#: By role, what the controller may do; the last two are bound by namespace.
ROLES: Final = {
    f"{NAME}-claims": (
        "Reads claims and writes their status.",
        [(GROUP, [PLURAL], ["get", "list"]), (GROUP, [f"{PLURAL}/status"], ["patch"])],
    ),
    f"{NAME}-engines": (
        "Makes and deletes the engines of claims, and reads what became of them.",
        [
            ("batch", ["jobs"], ["create", "get", "list", "patch", "delete"]),
            ("", ["services"], ["create", "delete"]),
            ("", ["secrets"], ["create", "get", "delete"]),
            ("networking.k8s.io", ["networkpolicies"], ["create", "delete"]),
            ("", ["pods"], ["get", "list"]),
            ("kueue.x-k8s.io", ["workloads"], ["get", "list"]),
        ],
    ),
    f"{NAME}-clients": (
        "Gives clients their certificates.",
        [("", ["secrets"], ["create", "get", "delete"])],
    ),
}
MEMBER: Final = f"{NAME}-member"


def settings(
    teams: Mapping[str, Team], resources: Iterable[str], engine: str, python: str, **more: Any
) -> Settings:
    """Return the controller's settings for teams. Raises BedplateError where a name is taken."""
    own = {TEAM_NAMESPACE.format(name): name for name in teams}
    taken = [
        Problem(
            what=f"namespace {namespace} is that of a team's remote GPUs",
            key=f"bedplate_teams.{name}.namespaces",
            got=namespace,
            allowed="a name that is not remote-TEAM, so that no member enters an engine's pod",
            fix="rename it",
        )
        for name, team in teams.items()
        for namespace in team.namespaces
        if namespace in own or namespace == NAMESPACE
    ]
    taken += [
        Problem(
            what=f"the name of team {name} is too long for the namespace of its remote GPUs",
            key=f"bedplate_teams.{name}",
            got=f"{len(namespace)} characters in {namespace}",
            allowed=f"{LABEL_LENGTH}",
            fix="give it a shorter name",
        )
        for namespace, name in own.items()
        if len(namespace) > LABEL_LENGTH
    ]
    if taken:
        raise BedplateError(taken)
    by_namespace = {
        namespace: name for name, team in sorted(teams.items()) for namespace in team.namespaces
    }
    return Settings(
        engine=engine,
        python=python,
        teams=by_namespace,
        resources=tuple(resources),
        **more,
    )


def objects(teams: Mapping[str, Team], wanted: Settings) -> list[Object]:
    """Return all documents, in the order in which they are needed."""
    running = [*_program(wanted), _deployment(wanted)]
    digest = hashlib.sha256(json.dumps(running[0], sort_keys=True).encode()).hexdigest()
    template = running[-1]["spec"]["template"]["metadata"]
    template["annotations"] = {"bedplate.io/configuration": digest[:16]}
    found = definition()
    found["metadata"] |= made("", "", "Shares of GPUs on other nodes, for a time.")["metadata"] | {
        "name": found["metadata"]["name"]
    }
    return [found, *_rights(teams), *_policies(), *running]


@functools.cache
def archive() -> bytes:
    """Return front and controller as one file that Python runs; equal sources give equal bytes."""
    shared = ("pods/hub/idle.py", "pods/api.py")
    return program("pods/remote", [*modules("pods/remote", "install.py"), *shared])


def _rights(teams: Mapping[str, Team]) -> Iterator[Object]:
    told = "The controller of remote GPUs."
    own = made("Namespace", NAMESPACE, told, version="v1")
    own["metadata"]["labels"] |= SECURITY
    yield own
    yield made("ServiceAccount", NAME, told, version="v1", namespace=NAMESPACE)
    for name, (about, rules) in ROLES.items():
        yield made("ClusterRole", name, about, version=RBAC, rules=_rules(rules))
    account = [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}]
    claims, engines, clients = ROLES
    yield _bound(claims, account, None)
    rules = [(GROUP, [PLURAL], list(ALL))]
    about = "May ask for GPUs on other nodes, and release them."
    yield made("ClusterRole", MEMBER, about, version=RBAC, rules=_rules(rules))
    for name, team in sorted(teams.items()):
        yield from _engines(name)
        yield _bound(engines, account, TEAM_NAMESPACE.format(name))
        if team.per_user.limited:
            yield _bound(LETS_IN, [RECORDER], TEAM_NAMESPACE.format(name))
        for namespace in team.namespaces:
            yield _bound(clients, account, namespace)
            if team.members:
                yield _bound(MEMBER, subjects(team), namespace)


def _engines(team: str) -> Iterator[Object]:
    namespace = TEAM_NAMESPACE.format(team)
    told = f"Engines of team {team}'s remote claims; its members have no rights here."
    own = made("Namespace", namespace, told, version="v1", labels={TEAM_LABEL: team})
    own["metadata"]["labels"] |= SECURITY
    yield own
    yield made(
        "LocalQueue",
        QUEUE,
        f"Engines wait here for the quota of team {team}.",
        namespace=namespace,
        labels={TEAM_LABEL: team},
        spec={"clusterQueue": team},
    )


def _rules(table: list[tuple[str, list[str], list[str]]]) -> list[Object]:
    return [
        {"apiGroups": [group], "resources": resources, "verbs": verbs}
        for group, resources, verbs in table
    ]


def _bound(role: str, to: list[Object], namespace: str | None) -> Object:
    return made(
        "RoleBinding" if namespace else "ClusterRoleBinding",
        role,
        "Remote GPUs.",
        version=RBAC,
        namespace=namespace,
        roleRef={"apiGroup": RBAC.partition("/")[0], "kind": "ClusterRole", "name": role},
        subjects=to,
    )


def _policies() -> Iterator[Object]:
    def rules(operation: str) -> Object:
        rule = {
            "apiGroups": [GROUP],
            "apiVersions": ["*"],
            "operations": [operation],
            "resources": [PLURAL],
        }
        return {"resourceRules": [rule]}

    def policy(kind: str, name: str, about: str, spec: Object) -> Iterator[Object]:
        binding: Object = {"policyName": name}
        if kind == "ValidatingAdmissionPolicy":
            binding["validationActions"] = ["Deny"]
        yield made(kind, name, about, version=ADMISSION, spec={"failurePolicy": "Fail", **spec})
        yield made(f"{kind}Binding", name, about, version=ADMISSION, spec=binding)

    # Patches of JSON: an apply configuration of a kind that is new to the API server is refused.
    key = USER.replace("/", "~1")
    written = (
        "(has(object.metadata.annotations) ? [] :"
        " [JSONPatch{op: 'add', path: '/metadata/annotations', value: {}}])"
        f" + [JSONPatch{{op: 'add', path: '/metadata/annotations/{key}',"
        " value: request.userInfo.username}]"
    )
    yield from policy(
        "MutatingAdmissionPolicy",
        f"{NAME}-asked-by",
        "Writes who asks into a claim.",
        {
            "matchConstraints": rules("CREATE"),
            "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": written}}],
        },
    )

    def of(one: str) -> str:
        where = f"{one}.metadata.annotations"
        return f"(has({where}) && '{USER}' in {where} ? {where}['{USER}'] : '')"

    yield from policy(
        "ValidatingAdmissionPolicy",
        f"{NAME}-asked-by",
        "Who asked for a claim stays written in it.",
        {
            "matchConstraints": rules("UPDATE"),
            "validations": [
                {
                    "expression": f"{of('object')} == {of('oldObject')}",
                    "message": f"annotation {USER} is written when a claim is made, and stays",
                }
            ],
        },
    )


def _program(wanted: Settings) -> Iterator[Object]:
    told = {
        "engine": wanted.engine,
        "python": wanted.python,
        "teams": dict(wanted.teams),
        "resources": list(wanted.resources),
        "command": list(wanted.command),
        "engine_port": wanted.engine_port,
    }
    yield made(
        "ConfigMap",
        NAME,
        "The controller's program and settings.",
        version="v1",
        namespace=NAMESPACE,
        data={"settings.json": json.dumps(told)},
        binaryData={PROGRAM: base64.b64encode(archive()).decode()},
    )


def _deployment(wanted: Settings) -> Object:
    container = {
        "name": "controller",
        "image": wanted.python,
        "command": ["python3", "-B", f"/etc/bedplate/{PROGRAM}", "controller"],
        "args": ["--settings=/etc/bedplate/settings.json"],
        "resources": {
            "requests": {"cpu": "50m", "memory": "64Mi"},
            "limits": {"memory": "256Mi"},
        },
        "securityContext": RESTRICTED,
        "volumeMounts": [
            {"name": "program", "mountPath": "/etc/bedplate", "readOnly": True},
            {"name": "scratch", "mountPath": "/tmp"},  # noqa: S108 - in the container
        ],
    }
    pod = {
        "serviceAccountName": NAME,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": NOBODY,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [
            {"name": "program", "configMap": {"name": NAME}},
            {"name": "scratch", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        ],
    }
    spec = {
        "replicas": 1,
        "strategy": {"type": "Recreate"},  # never two that move claims
        "selector": {"matchLabels": APP},
        "template": {"metadata": {"labels": dict(APP)}, "spec": pod},
    }
    about = "Gives claims their certificates when the queue admits them, and ends them."
    return made("Deployment", NAME, about, version="apps/v1", namespace=NAMESPACE, spec=spec)


__all__ = ["API", "archive", "objects", "settings"]
