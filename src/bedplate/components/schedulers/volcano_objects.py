"""What Volcano is told: its scheduler's configuration, queues, priority classes and HyperNodes.

Pure functions. Names of plugins, arguments and fields are those of Volcano 1.14.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final

import yaml

from bedplate.common import cel
from bedplate.components.refs import MANAGED
from bedplate.components.schedulers.kueue.tenancy import ABOUT_LIMITS, limits
from bedplate.components.schedulers.topology import object_name
from bedplate.portable.dra import IMPLICIT
from bedplate.site.nesting import DOMAIN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bedplate.components.schedulers.topology import Places
    from bedplate.lock.model import Team
    from bedplate.site.presets import Preset

SCHEDULER: Final = "volcano"
BATCH: Final = "scheduling.volcano.sh/v1beta1"
TOPOLOGY: Final = "topology.volcano.sh/v1alpha1"
ABOUT: Final = "bedplate.io/about"
#: The label of a team's namespaces.
TEAM_LABEL: Final = "bedplate.io/team"
GUARD: Final = "bedplate-volcano-queues"
CLAIMS_GUARD: Final = "bedplate-volcano-claims"
#: Pods of a team reach nothing of the host but by Kubernetes' resources.
SECURITY: Final = {"pod-security.kubernetes.io/enforce": "baseline"}
RBAC: Final = "rbac.authorization.k8s.io"
#: What a member may do: Kubernetes' own role, and the chart's for Volcano's jobs.
ROLES: Final = ("edit", "vcjob-editor-role")
#: What names no queue goes into the one that its namespace names.
QUEUE_NAME: Final = "scheduling.volcano.sh/queue-name"
#: The chart's own, and the one that gives a pod group the queue that its namespace names.
ADMISSIONS: Final = (
    "/jobs/mutate",
    "/jobs/validate",
    "/podgroups/mutate",
    "/podgroups/validate",
    "/queues/mutate",
    "/queues/validate",
    "/hypernodes/validate",
    "/cronjobs/validate",
)
#: How much a GPU counts for a node's score against cpu and memory, which jobs rarely fill.
GPU_WEIGHT: Final = 10
SCORE_WEIGHT: Final = 10
#: Kubernetes' own scores that prefer empty nodes, and so pull against packing.
NO_PULL: Final = {"leastrequested.weight": 0, "balancedresource.weight": 0}


def scheduler_config(
    preset: Preset, resources: Iterable[str], *, queued_elsewhere: bool = False
) -> str:
    """Return the scheduler's configuration file.

    Args:
        preset: what it is decided by.
        resources: resources of accelerators, by which nodes are packed.
        queued_elsewhere: Kueue admits workloads, and decides who has to make room.
    """
    counted = list(resources)
    actions = ["allocate", "backfill"]
    if not queued_elsewhere and preset.queue.reclaim != "Never":
        actions.insert(1, "reclaim")
    if not queued_elsewhere and preset.queue.preemption != "Never":
        actions.insert(1, "preempt")
    else:
        # It holds back a job that its queue has no room for, which therefore could not ask others
        # to make room.
        actions.insert(0, "enqueue")
    # The first tier whose plugins name pods decides who makes room. So `capacity`, which knows the
    # guarantees, is in the tier of `conformance`, and `gang`, which would spare whole gangs and ask
    # no further, has no say.
    first = [
        {"name": "priority"},
        {"name": "gang", "enablePreemptable": False, "enableReclaimable": False},
        {"name": "conformance"},
        {"name": "capacity"},
    ]
    second = [{"name": "predicates"}, *_placement(preset, counted)]
    content = {
        "actions": ", ".join(actions),
        "tiers": [{"plugins": first}, {"plugins": second}],
    }
    text: str = yaml.safe_dump(content, sort_keys=False)
    return text


def _placement(preset: Preset, resources: list[str]) -> list[dict[str, Any]]:
    plugins: list[dict[str, Any]] = [{"name": "nodeorder", "arguments": NO_PULL}]
    if preset.placement.pods == "binpack":
        weights = {f"binpack.resources.{name}": GPU_WEIGHT for name in resources}
        arguments = {
            "binpack.weight": SCORE_WEIGHT,
            "binpack.cpu": 1,
            "binpack.memory": 1,
            "binpack.resources": ", ".join(resources),
            **weights,
        }
        plugins.append({"name": "binpack", "arguments": arguments})
    else:
        arguments = {
            "resourceStrategyFitWeight": SCORE_WEIGHT,
            "resources": {
                name: {"type": "LeastAllocated", "weight": GPU_WEIGHT} for name in resources
            },
        }
        plugins.append({"name": "resource-strategy-fit", "arguments": arguments})
    arguments = {
        "weight": SCORE_WEIGHT,
        "hypernode.binpack.cpu": 1,
        "hypernode.binpack.memory": 1,
        "hypernode.binpack.resources": ", ".join(resources),
        **{f"hypernode.binpack.resources.{name}": GPU_WEIGHT for name in resources},
        # Of pods that ask for no topology: whether they too fill one domain after the other.
        "hypernode.binpack.normal-pod.enable": (
            preset.placement.pods == "binpack" and preset.placement.topology != "none"
        ),
    }
    return [*plugins, {"name": "network-topology-aware", "arguments": arguments}]


def values(tag: str, scheduler: str) -> dict[str, Any]:
    """Return the values of Volcano's chart: the tag of its three images, and `scheduler_config`."""
    return {
        "basic": {"image_tag_version": tag, "image_pull_policy": "IfNotPresent"},
        "custom": {
            "common_labels": dict(MANAGED),
            "enabled_admissions": ",".join(ADMISSIONS),
            "scheduler_config_override": scheduler,
        },
    }


def objects(
    teams: Mapping[str, Team], preset: Preset, resources: Iterable[str], known: Places
) -> list[dict[str, Any]]:
    """Return all that is made once Volcano answers."""
    return [
        *priority_classes(preset),
        *namespaces(teams),
        *queues(teams, preset),
        *(guard(resources) if teams else []),
        *claims_guard(),
        *hypernodes(known, known.nodes),
    ]


def queues(teams: Mapping[str, Team], preset: Preset) -> list[dict[str, Any]]:
    """Return a queue for each team: what it is guaranteed, and how much it may use in all.

    A queue counts a resource over all pools. What is used beyond the guarantee is reclaimed when
    the teams that it belongs to ask for it.
    """
    lowest = min((team.priority for team in teams.values()), default=0)
    return [
        {
            "apiVersion": BATCH,
            "kind": "Queue",
            "metadata": _metadata(name, f"Queue of team {name}: {_described(team)}."),
            "spec": _queue(team, preset, min(0, lowest)),
        }
        for name, team in sorted(teams.items())
    ]


def _queue(team: Team, preset: Preset, lowest: int) -> dict[str, Any]:
    guaranteed, most = quotas(team)
    fifo = preset.queue.order == "StrictFIFO"
    return {
        "deserved": {name: str(count) for name, count in guaranteed.items()},
        **({"capability": {name: str(count) for name, count in most.items()}} if most else {}),
        "reclaimable": preset.queue.reclaim != "Never",
        "dequeueStrategy": "fifo" if fifo else "traverse",
        "priority": team.priority - lowest,
    }


def quotas(team: Team) -> tuple[dict[str, int], dict[str, int]]:
    """Return what a team is guaranteed of each resource, and the most that it may use where there
    is such a limit."""
    guaranteed: dict[str, int] = {}
    most: dict[str, int] = {}
    unlimited: set[str] = set()
    for of_pool in team.gpus.values():
        for resource, quota in of_pool.items():
            guaranteed[resource] = guaranteed.get(resource, 0) + quota.guaranteed
            if quota.borrow is None:
                unlimited.add(resource)
            else:
                most[resource] = most.get(resource, 0) + quota.guaranteed + quota.borrow
    return guaranteed, {name: n for name, n in most.items() if name not in unlimited}


def guard(resources: Iterable[str]) -> list[dict[str, Any]]:
    """Return the policies by which GPUs in a team's namespace go through the team's queue alone."""
    team = f"namespaceObject.metadata.labels['{TEAM_LABEL}']"
    named = "(has(object.spec.queue) ? object.spec.queue : 'default')"
    counted = ", ".join(f"'{name}'" for name in resources)
    # A device class has a resource of its own, for which limits may be missing (Kubernetes 1.36).
    asks = " || ".join(
        f"c.?resources.?{kind}.orValue({{}}).exists(r, r in [{counted}] || "
        f"r.startsWith('{IMPLICIT}'))"
        for kind in ("limits", "requests")
    )
    every = "(object.spec.containers + object.spec.?initContainers.orValue([]))"
    own = f"object.spec.schedulerName == '{SCHEDULER}'"
    return [
        *_policy(
            GUARD,
            "Jobs and pod groups in a team's namespace name the team's own queue.",
            [_rule("scheduling.volcano.sh", "podgroups"), _rule("batch.volcano.sh", "jobs")],
            f"{named} == {team}",
            cel.message(
                "another queue than the team's",
                "spec.queue",
                f"{{{named}}}",
                f"{{{team}}}",
                f"write queue: {{{team}}}",
            ),
        ),
        *_policy(
            f"{GUARD}-pods",
            "Pods with GPUs in a team's namespace are placed by the scheduler that counts quotas.",
            [_rule("", "pods")],
            f"{own} || !{every}.exists(c, {asks})",
            cel.message(
                "pod with GPUs is not in the queue",
                "spec.schedulerName",
                "{object.spec.schedulerName}",
                SCHEDULER,
                f"write schedulerName: {SCHEDULER}, and the annotation"
                f" scheduling.volcano.sh/queue-name: {{{team}}}",
            ),
        ),
    ]


def claims_guard() -> list[dict[str, Any]]:
    """Return the policy by which pods with claims go to the scheduler that allocates them.

    Volcano binds such a pod and leaves its claims without a device.
    """
    own = f"object.spec.schedulerName == '{SCHEDULER}'"
    return _policy(
        CLAIMS_GUARD,
        "Pods with resource claims are placed by the scheduler that allocates claims.",
        [_rule("", "pods", "CREATE")],
        f"!({own} && has(object.spec.resourceClaims) && size(object.spec.resourceClaims) > 0)",
        cel.message(
            "pod with resource claims at a scheduler that allocates none",
            "spec.schedulerName",
            SCHEDULER,
            "default-scheduler",
            "leave schedulerName out, or ask for GPUs by nvidia.com/gpu",
        ),
        everywhere=True,
    )


def _policy(
    name: str,
    about: str,
    rules: list[dict[str, Any]],
    expression: str,
    message: str,
    *,
    everywhere: bool = False,
) -> list[dict[str, Any]]:
    version = "admissionregistration.k8s.io/v1"
    of_teams = {"matchExpressions": [{"key": TEAM_LABEL, "operator": "Exists"}]}
    policy = {
        "apiVersion": version,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": _metadata(name, about),
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                **({} if everywhere else {"namespaceSelector": of_teams}),
                "resourceRules": rules,
            },
            "validations": [{"expression": expression, "messageExpression": message}],
        },
    }
    binding = {
        "apiVersion": version,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": _metadata(name, about),
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }
    return [policy, binding]


def namespaces(teams: Mapping[str, Team]) -> list[dict[str, Any]]:
    """Return the teams' namespaces, and in each its members' rights to submit work."""
    found: list[dict[str, Any]] = []
    for name, team in sorted(teams.items()):
        for namespace in team.namespaces:
            metadata = _metadata(namespace, f"Work of team {name}, by the queue {name}.")
            # They stay when the stack goes, so no label says that they are the stack's.
            labels = {TEAM_LABEL: name, **SECURITY}
            found.append(
                {
                    "apiVersion": "v1",
                    "kind": "Namespace",
                    "metadata": {
                        **metadata,
                        "labels": labels,
                        "annotations": {**metadata["annotations"], QUEUE_NAME: name},
                    },
                }
            )
            if team.per_container or team.per_pod:
                found.append(
                    {
                        "apiVersion": "v1",
                        "kind": "LimitRange",
                        "metadata": {**_metadata("bedplate", ABOUT_LIMITS), "namespace": namespace},
                        "spec": limits(team),
                    }
                )
            found += [
                {
                    "apiVersion": f"{RBAC}/v1",
                    "kind": "RoleBinding",
                    "metadata": {
                        **_metadata(f"bedplate-{role}", f"Members of team {name}."),
                        "namespace": namespace,
                    },
                    "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
                    "subjects": [_subject(member) for member in team.members],
                }
                for role in ROLES
                if team.members
            ]
    return found


def _subject(member: str) -> dict[str, str]:
    kind = "Group" if member.startswith("group:") else "User"
    return {"apiGroup": RBAC, "kind": kind, "name": member.removeprefix("group:")}


def _rule(group: str, plural: str, *operations: str) -> dict[str, Any]:
    return {
        "apiGroups": [group],
        "apiVersions": ["*"],
        "operations": list(operations or ("CREATE", "UPDATE")),
        "resources": [plural],
    }


def _described(team: Team) -> str:
    guaranteed, most = quotas(team)
    return ", ".join(
        f"{count} of {name} guaranteed, "
        + (f"{most[name]} at most" if name in most else "as much as others leave")
        for name, count in sorted(guaranteed.items())
    )


def priority_classes(preset: Preset) -> list[dict[str, Any]]:
    """Return the preset's priority classes for pods; a class that may not preempt says so."""
    never = preset.queue.preemption == "Never"
    return [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name, "labels": dict(MANAGED)},
            "value": value,
            "preemptionPolicy": "Never" if never else "PreemptLowerPriority",
            "description": f"Class {name} of the preset {preset.name}.",
        }
        for name, value in sorted(preset.priorities.items())
    ]


def hypernodes(known: Places, nodes: Iterable[str]) -> list[dict[str, Any]]:
    """Return Volcano's topology of the named nodes, from the narrowest tier to the widest.

    Tier 1 are NVLink domains; a node that is in none is a domain of its own. The next tiers are
    the levels that the site has, narrowest first. What a level has no value for is a member of the
    next wider level that has one.
    """
    named = sorted(nodes)
    wide = [level for level in reversed(known.levels) if level != DOMAIN]
    tiers = {level: tier for tier, level in enumerate((DOMAIN, *wide), start=1)}
    members: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for node in named:
        place = known.nodes.get(node, {})
        own = place.get(DOMAIN)
        path = [(DOMAIN, own) if own is not None else ("host", node)]
        path += [(level, place[level]) for level in wide if level in place]
        _join(members, path[0], ("Node", node))
        for inner, outer in itertools.pairwise(path):
            _join(members, outer, ("HyperNode", object_name(*inner)))
    return [
        {
            "apiVersion": TOPOLOGY,
            "kind": "HyperNode",
            "metadata": _metadata(object_name(level, value), f"{_spelt(level)} {value}"),
            "spec": {
                "tier": tiers[_tier(level)],
                "tierName": _spelt(_tier(level)),
                "members": [
                    {"type": kind, "selector": {"exactMatch": {"name": name}}}
                    for kind, name in sorted(within)
                ],
            },
        }
        for (level, value), within in sorted(
            members.items(), key=lambda item: (tiers[_tier(item[0][0])], item[0])
        )
    ]


def _join(
    members: dict[tuple[str, str], list[tuple[str, str]]],
    group: tuple[str, str],
    member: tuple[str, str],
) -> None:
    known = members.setdefault(group, [])
    if member not in known:
        known.append(member)


def _tier(level: str) -> str:
    return DOMAIN if level == "host" else level


def _spelt(level: str) -> str:
    return level.replace("_", "-")


def _metadata(name: str, description: str) -> dict[str, Any]:
    return {
        "name": name,
        "labels": dict(MANAGED),
        "annotations": {ABOUT: description},
    }
