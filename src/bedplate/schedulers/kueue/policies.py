"""What the API server itself refuses in teams' namespaces: nobody gets round the queue.

Kueue's own `manageJobsWithoutQueueName` would hold what names no queue, without a word and only of
the kinds that Kueue knows. These policies are judged after Kueue's webhooks have marked what they
queue: what asks for GPUs and is not marked is refused, whatever made it, with the way to go.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from bedplate import cel
from bedplate.lock.claims import by_claim
from bedplate.lock.offers import offers
from bedplate.schedulers import jobset
from bedplate.schedulers.kueue import claims, classes, users
from bedplate.schedulers.kueue.objects import (
    CONTROLLER,
    HUB_ACCOUNT,
    QUEUE,
    QUEUE_LABEL,
    TEAM_LABEL,
    Object,
    made,
)
from bedplate.schedulers.kueue.queues import pools_of, teams_of

if TYPE_CHECKING:
    from bedplate.catalogue import Catalogue
    from bedplate.lock import Lock
    from bedplate.schedulers.kueue.users import Kinds

VERSION: Final = "admissionregistration.k8s.io/v1"
GATES: Final = ("kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology")
JOB_CONTROLLER: Final = "system:serviceaccount:kube-system:job-controller"

#: Where a message says that its object is.
NAMESPACE: Final = "namespace {object.metadata.namespace}"

CREATE: Final = ("CREATE",)
UPDATE: Final = ("UPDATE",)
BOTH: Final = ("CREATE", "UPDATE")

_QUEUED_KINDS: Final = (
    ("batch", "v1", ("jobs",)),
    ("apps", "v1", ("deployments", "statefulsets", "replicasets", "daemonsets")),
    ("jobset.x-k8s.io", "*", ("jobsets",)),
    ("", "v1", ("pods",)),
)


def objects(lock: Lock, catalogue: Catalogue | None = None) -> list[Object]:
    """Return the policies with their bindings; none where there are no teams."""
    if not teams_of(lock):
        return []
    return [
        *_policy(
            "bedplate-own-queue",
            "A team's namespace submits to the team's own ClusterQueue.",
            [("kueue.x-k8s.io", "*", ("localqueues",))],
            BOTH,
            f"object.spec.clusterQueue == namespaceObject.metadata.labels['{TEAM_LABEL}']",
            cel.message(
                "LocalQueue {object.metadata.name} of another team",
                NAMESPACE,
                "clusterQueue {object.spec.clusterQueue}",
                f"that of team {{namespaceObject.metadata.labels['{TEAM_LABEL}']}}",
                f"submit to the queue {QUEUE}, which is there",
            ),
        ),
        *_policy(
            "bedplate-known-queue",
            "A workload names the one queue of its namespace, or none.",
            _QUEUED_KINDS,
            CREATE,
            f"!has(object.metadata.labels) || !('{QUEUE_LABEL}' in object.metadata.labels) || "
            f"object.metadata.labels['{QUEUE_LABEL}'] == '{QUEUE}'",
            cel.message(
                "no such queue",
                NAMESPACE,
                f"{QUEUE_LABEL}: {{object.metadata.labels['{QUEUE_LABEL}']}}",
                QUEUE,
                "leave the label out, or write the allowed name",
            ),
        ),
        *_policy(
            "bedplate-queued-pods",
            "A pod with GPUs waits for its quota: Kueue holds it, or the Job that it belongs to.",
            [("", "v1", ("pods",))],
            CREATE,
            f"!variables.gpus || variables.held || request.userInfo.username == '{JOB_CONTROLLER}'",
            cel.message(
                "pod with GPUs is not in the queue",
                NAMESPACE,
                "no hold by Kueue",
                "pods that wait for their quota",
                f"label it {QUEUE_LABEL}: {QUEUE}, and give it no owner and no node",
            ),
            variables={
                "gpus": gpus("object.spec", lock),
                "held": "has(object.spec.schedulingGates) && "
                f"object.spec.schedulingGates.exists(g, g.name == '{GATES[0]}')",
            },
        ),
        *_policy(
            "bedplate-queued-jobs",
            "A Job with GPUs begins suspended: Kueue starts it when there is quota.",
            [("batch", "v1", ("jobs",))],
            CREATE,
            "!variables.gpus || (has(object.spec.suspend) && object.spec.suspend) || "
            f"request.userInfo.username == '{jobset.CONTROLLER}'",
            cel.message(
                "job with GPUs is not in the queue",
                NAMESPACE,
                "a job that starts at once",
                "jobs that wait for their quota",
                f"label it {QUEUE_LABEL}: {QUEUE}",
            ),
            variables={"gpus": gpus("object.spec.template.spec", lock)},
        ),
        *_policy(
            "bedplate-queue-starts-jobs",
            "Only the queue starts what waits in it.",
            [("batch", "v1", ("jobs",)), ("jobset.x-k8s.io", "*", ("jobsets",))],
            UPDATE,
            "!(has(oldObject.spec.suspend) && oldObject.spec.suspend) || "
            "(has(object.spec.suspend) && object.spec.suspend) || request.userInfo.username in "
            f"{_list([CONTROLLER, jobset.CONTROLLER])}",
            _by_hand("{object.metadata.name}", "suspend: false from"),
        ),
        *_policy(
            "bedplate-queue-starts-pods",
            "Only the queue lifts its hold of a pod.",
            [("", "v1", ("pods",))],
            UPDATE,
            f"request.userInfo.username == '{CONTROLLER}' || !has(oldObject.spec.schedulingGates) "
            f"|| {_list(GATES)}.all(gate, !oldObject.spec.schedulingGates.exists(g, g.name == gate)"
            " || (has(object.spec.schedulingGates) && "
            "object.spec.schedulingGates.exists(g, g.name == gate)))",
            _by_hand("pod {object.metadata.name}", "a hold lifted by"),
        ),
        *_claims(lock),
        *classes.objects(lock, catalogue),
        *users.objects(lock, catalogue),
    ]


def _claims(lock: Lock) -> list[Object]:
    """Return who may claim: where courses do, the hub for their students, and nothing else.

    Pods of the hub's Jobs are made by the controller, which makes those of anybody's: so Jobs with
    claims are the hub's alone.
    """
    courses = bool(by_claim(lock))
    fix = "ask for GPUs by the resource: the queue does not count claims"
    if courses:
        fix = "ask for GPUs by the resource, or in the hub: it alone claims, for its students"

    def policy(name: str, about: str, noun: str, spec: str, *excepted: str) -> list[Object]:
        expression = " || ".join([f"!{claims.asks(spec)}", *excepted])
        got, allowed = f"{{{spec}.resourceClaims[0].name}}", ", ".join(_resources(lock))
        kinds: Kinds = (("batch", "v1", ("jobs",)),) if noun == "job" else (("", "v1", ("pods",)),)
        said = cel.message(f"{noun} with resource claims", NAMESPACE, got, allowed, fix)
        operations = BOTH if noun == "job" else CREATE
        return _policy(name, about, kinds, operations, expression, said)

    about = "GPUs are asked for by the resource that the queue counts."
    if not courses:
        return policy("bedplate-counted-claims", about, "pod", "object.spec")
    makers = _list([HUB_ACCOUNT, JOB_CONTROLLER])
    right = claims.by_template(lock, "object.spec")
    pods = f"(request.userInfo.username in {makers} && {right})"
    spec = "object.spec.template.spec"
    before = "oldObject != null && oldObject.spec.template.spec"
    same = f"({before}.?resourceClaims == {spec}.?resourceClaims)"
    jobs = f"({claims.of_hub()} && {claims.by_template(lock, spec)})"
    return [
        *policy("bedplate-counted-claims", about, "pod", "object.spec", pods),
        *policy("bedplate-counted-claims-of-jobs", about, "job", spec, same, jobs),
    ]


def _by_hand(what: str, got: str) -> str:
    return cel.message(
        f"{what} is not started by hand",
        NAMESPACE,
        f"{got} {{request.userInfo.username}}",
        "the queue alone",
        "see what it waits for: kubectl -n {object.metadata.namespace} get workloads",
    )


def _resources(lock: Lock) -> list[str]:
    return sorted({name for pool in pools_of(lock) for name in offers(lock.pools[pool])})


def _list(names: list[str] | tuple[str, ...]) -> str:
    """Return a list as CEL writes it."""
    return json.dumps(list(names))


def gpus(spec: str, lock: Lock) -> str:
    """Return the expression that says whether a pod's specification asks for GPUs.

    Claims count where courses have some; elsewhere they are refused.
    """
    domains = sorted({resource.partition("/")[0] for resource in _resources(lock)})
    one = " || ".join(f"r.startsWith('{domain}/')" for domain in domains) or "false"
    asks = f"has(c.resources) && has(c.resources.limits) && c.resources.limits.exists(r, {one})"
    first = f"has({spec}.initContainers) && {spec}.initContainers.exists(c, {asks})"
    claimed = f" || {claims.asks(spec)}" if by_claim(lock) else ""
    return f"({spec}.containers.exists(c, {asks})) || ({first}){claimed}"


def _policy(
    name: str,
    about: str,
    kinds: list[tuple[str, str, tuple[str, ...]]] | tuple[tuple[str, str, tuple[str, ...]], ...],
    operations: tuple[str, ...],
    expression: str,
    message: str,
    variables: dict[str, str] | None = None,
) -> list[Object]:
    """Return a policy and what binds it to the teams' namespaces."""
    rules = [
        {
            "apiGroups": [group],
            "apiVersions": [version],
            "resources": list(resources),
            "operations": list(operations),
        }
        for group, version, resources in kinds
    ]
    spec: Object = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": rules},
        "validations": [
            {"expression": expression, "messageExpression": message, "reason": "Forbidden"}
        ],
    }
    if variables:
        spec["variables"] = [{"name": key, "expression": told} for key, told in variables.items()]
    teams = {"matchExpressions": [{"key": TEAM_LABEL, "operator": "Exists"}]}
    binding = {
        "policyName": name,
        "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": teams},
    }
    return [
        made("ValidatingAdmissionPolicy", name, about, version=VERSION, spec=spec),
        made("ValidatingAdmissionPolicyBinding", name, about, version=VERSION, spec=binding),
    ]
