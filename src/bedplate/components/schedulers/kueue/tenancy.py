"""Teams' namespaces, what their members may do in them, and what all members may see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from bedplate.components.schedulers.kueue.objects import TEAM_LABEL, Object, made

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bedplate.components.schedulers.kueue.args import QueuesArgs
    from bedplate.lock.model import Team

MEMBER: Final = "bedplate-team-member"
VIEWER: Final = "bedplate-queue-viewer"
RBAC: Final = "rbac.authorization.k8s.io/v1"
GROUP: Final = "group:"
#: Pods of a team get no device nodes, sockets or folders of the host but by Kubernetes' resources.
SECURITY: Final = {"pod-security.kubernetes.io/enforce": "baseline"}
#: Finished jobs count too. One script in a loop shall not fill etcd for all.
JOBS: Final = 5000
ABOUT_LIMITS: Final = "What containers have of their node where they do not say it, and pods most."

READ: Final = ("get", "list", "watch")
WRITE: Final = (*READ, "create", "update", "patch", "delete", "deletecollection")
#: What a member may do in the team's namespaces: (API group, resources, verbs).
MAY: Final = (
    ("batch", ("jobs", "cronjobs"), WRITE),
    ("apps", ("deployments", "deployments/scale", "statefulsets", "statefulsets/scale"), WRITE),
    ("apps", ("replicasets",), READ),
    ("jobset.x-k8s.io", ("jobsets",), WRITE),
    ("batch.volcano.sh", ("jobs",), WRITE),
    ("scheduling.volcano.sh", ("podgroups",), READ),
    ("", ("pods", "services", "configmaps", "secrets", "persistentvolumeclaims"), WRITE),
    ("", ("pods/exec", "pods/attach", "pods/portforward"), ("get", "create")),
    ("", ("pods/log", "events", "serviceaccounts", "resourcequotas", "limitranges"), READ),
    ("kueue.x-k8s.io", ("localqueues", "workloads"), READ),
    ("visibility.kueue.x-k8s.io", ("localqueues/pendingworkloads",), READ),
)
#: What a member may see of the whole cluster: how much there is, and who has how much of it.
SEES: Final = (
    (
        "kueue.x-k8s.io",
        ("clusterqueues", "cohorts", "resourceflavors", "topologies", "workloadpriorityclasses"),
        READ,
    ),
)


def objects(args: QueuesArgs) -> list[Object]:
    """Return namespaces and rights of all teams."""
    teams = args.teams
    if not teams:
        return []
    told = "May submit work in the namespaces of a team, and see where it waits."
    seen = "May see all queues, quotas and priorities."
    found = [
        made("ClusterRole", MEMBER, told, version=RBAC, rules=_rules(MAY)),
        made("ClusterRole", VIEWER, seen, version=RBAC, rules=_rules(SEES)),
    ]
    for name, team in sorted(teams.items()):
        found += [one for namespace in team.namespaces for one in _namespace(name, team, namespace)]
    if every := [one for team in teams.values() for one in subjects(team)]:
        found.append(
            made(
                "ClusterRoleBinding",
                VIEWER,
                "Members of all teams.",
                version=RBAC,
                roleRef=_role(VIEWER),
                subjects=[one for i, one in enumerate(every) if one not in every[:i]],
            )
        )
    return found


def _namespace(name: str, team: Team, namespace: str) -> Iterator[Object]:
    labels = {TEAM_LABEL: name}
    about = f"Work of team {name}; GPUs by the queue `default`."
    own = made("Namespace", namespace, about, version="v1")
    # It stays when the stack goes, and is then in nobody's way: no label says it is the stack's.
    own["metadata"]["labels"] = {**labels, **SECURITY}
    yield own
    yield made(
        "ResourceQuota",
        "bedplate",
        "Finished jobs count until they are deleted. GPUs are the ClusterQueue's matter.",
        version="v1",
        namespace=namespace,
        labels=labels,
        spec={"hard": {"count/jobs.batch": str(JOBS)}},
    )
    if team.per_container or team.per_pod:
        yield made(
            "LimitRange",
            "bedplate",
            ABOUT_LIMITS,
            version="v1",
            namespace=namespace,
            labels=labels,
            spec=limits(team),
        )
    if team.members:
        yield made(
            "RoleBinding",
            MEMBER,
            f"Members of team {name}.",
            version=RBAC,
            namespace=namespace,
            labels=labels,
            roleRef=_role(MEMBER),
            subjects=subjects(team),
        )


def limits(team: Team) -> Object:
    """Return the specification of a LimitRange: what others leave idle of CPUs may be used too.

    Kubernetes wants a limit of each container where there is a maximum: without a default it is
    the maximum.
    """
    most, requests = dict(team.per_pod), dict(team.per_container)
    default = most | {name: one for name, one in requests.items() if name != "cpu"}
    # Kubernetes would request of the node what is limited.
    asked = dict.fromkeys(most, "0") | requests
    of: Object = {"type": "Container", "defaultRequest": asked, "default": default, "max": most}
    found = [{key: value for key, value in of.items() if value}]
    return {"limits": [*found, {"type": "Pod", "max": most}] if most else found}


def _rules(table: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]) -> list[Object]:
    return [
        {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
        for group, resources, verbs in table
    ]


def _role(name: str) -> Object:
    return {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}


def subjects(team: Team) -> list[dict[str, Any]]:
    """Return the members of a team as RBAC names them."""
    return [
        {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "Group" if member.startswith(GROUP) else "User",
            "name": member.removeprefix(GROUP),
        }
        for member in team.members
    ]
