"""What the API server itself refuses in teams' namespaces: nobody gets round the queue.

Kueue's own `manageJobsWithoutQueueName` would hold what names no queue, without a word and only of
the kinds that Kueue knows. These policies are judged after Kueue's webhooks have marked what they
queue: what asks for GPUs and is not marked is refused, whatever made it, with the way to go.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from bedplate.common import cel
from bedplate.components.schedulers import jobset
from bedplate.components.schedulers.kueue import (
    classes,
    devices,
    groups,
    person_limits,
    request_limits,
    users,
)
from bedplate.components.schedulers.kueue.admission import BOTH, CREATE, NAMESPACE, UPDATE, policy
from bedplate.components.schedulers.kueue.objects import (
    CONTROLLER,
    HUB_ACCOUNT,
    JOB_CONTROLLER,
    QUEUE,
    QUEUE_LABEL,
    TEAM_LABEL,
    Object,
)
from bedplate.pods.hub import placed

if TYPE_CHECKING:
    from bedplate.components.schedulers.kueue.args import QueuesArgs

#: What Kueue's holds of a pod begin with, and the one that every pod has which it queues.
GATES: Final = "kueue.x-k8s.io/"
GATE: Final = f"{GATES}admission"
#: The hold of the pods that an elastic Job gets while it runs.
ELASTIC_GATE: Final = f"{GATES}elastic-job"

_TEAM: Final = f"namespaceObject.metadata.labels['{TEAM_LABEL}']"
_NAMED: Final = f"object.metadata.?labels[?'{QUEUE_LABEL}']"
_SUSPENDED: Final = "object.spec.?suspend.orValue(false)"

_QUEUED_KINDS: Final = (
    ("batch", "v1", ("jobs",)),
    ("apps", "v1", ("deployments", "statefulsets", "replicasets", "daemonsets")),
    ("jobset.x-k8s.io", "*", ("jobsets",)),
    ("", "v1", ("pods",)),
)


def objects(args: QueuesArgs) -> list[Object]:
    """Return the policies with their bindings; none where there are no teams."""
    if not args.teams:
        return []
    return [
        *policy(
            "bedplate-own-queue",
            "A team's namespace submits to the team's own ClusterQueue.",
            (("kueue.x-k8s.io", "*", ("localqueues",)),),
            BOTH,
            {
                f"object.spec.clusterQueue == {_TEAM}": cel.message(
                    "LocalQueue {object.metadata.name} of another team",
                    NAMESPACE,
                    "clusterQueue {object.spec.clusterQueue}",
                    f"that of team {{{_TEAM}}}",
                    f"submit to the queue {QUEUE}, which is there",
                )
            },
        ),
        *policy(
            "bedplate-known-queue",
            "A workload names the one queue of its namespace, or none.",
            _QUEUED_KINDS,
            CREATE,
            {
                f"{_NAMED}.orValue('{QUEUE}') == '{QUEUE}'": cel.message(
                    "no such queue",
                    NAMESPACE,
                    f"{QUEUE_LABEL}: {{{_NAMED}.value()}}",
                    QUEUE,
                    "leave the label out, or write the allowed name",
                )
            },
        ),
        *policy(
            "bedplate-queued-pods",
            "A pod with GPUs waits for its quota: Kueue holds it, or the Job that it belongs to.",
            (("", "v1", ("pods",)),),
            CREATE,
            {
                f"!variables.gpus || variables.held || {_by(JOB_CONTROLLER)}": _queued(
                    "pod",
                    "no hold by Kueue",
                    f"label it {QUEUE_LABEL}: {QUEUE}, and give it no owner and no node",
                )
            },
            variables={
                "gpus": devices.gpus("object.spec", args),
                "held": f"{_gates('object')}.exists(g, g.name == '{GATE}')",
            },
        ),
        *policy(
            "bedplate-queued-jobs",
            "A Job with GPUs begins suspended: Kueue starts it when there is quota.",
            (("batch", "v1", ("jobs",)),),
            CREATE,
            {
                f"!variables.gpus || {_SUSPENDED} || {_by(jobset.CONTROLLER)}": _queued(
                    "job", "a job that starts at once", f"label it {QUEUE_LABEL}: {QUEUE}"
                )
            },
            variables={"gpus": devices.gpus("object.spec.template.spec", args)},
        ),
        *(_job_sets(args) if args.jobsets else []),
        *policy(
            "bedplate-queue-starts-jobs",
            "Only the queue starts what waits in it.",
            (
                ("batch", "v1", ("jobs",)),
                ("jobset.x-k8s.io", "*", ("jobsets",)),
            ),
            UPDATE,
            {
                f"!oldObject.spec.?suspend.orValue(false) || {_SUSPENDED} || "
                f"{_by(CONTROLLER, jobset.CONTROLLER)}": _by_hand(
                    "{object.metadata.name}", "suspend: false from"
                )
            },
        ),
        *policy(
            "bedplate-jobs-keep-their-size",
            "A Job that runs has the pods that the queue has counted, and gets no more.",
            (("batch", "v1", ("jobs",)),),
            UPDATE,
            {
                f"!variables.gpus || {_SUSPENDED} || variables.pods <= variables.before || "
                f"object.spec.template.spec.?schedulingGates.orValue([])"
                f".exists(g, g.name == '{ELASTIC_GATE}') || {_by(jobset.CONTROLLER)}": cel.message(
                    "job {object.metadata.name} grows while it runs",
                    NAMESPACE,
                    "{string(variables.pods)} pods at a time",
                    "{string(variables.before)}, which the queue has counted",
                    "submit another job for the rest",
                )
            },
            variables={
                "gpus": devices.gpus("object.spec.template.spec", args),
                "pods": _at_a_time("object"),
                "before": _at_a_time("oldObject"),
            },
        ),
        *policy(
            "bedplate-queue-starts-pods",
            "Only the queue lifts its hold of a pod; the hub that of one whose node is chosen.",
            (("", "v1", ("pods",)),),
            UPDATE,
            {
                f"{_by(CONTROLLER)} || {_gates('oldObject')}.all(gate, "
                f"!gate.name.startsWith('{GATES}') || "
                f"(gate.name == '{placed.GATE}' && {_by(HUB_ACCOUNT)}) || "
                f"{_gates('object')}.exists(g, g.name == gate.name))": _by_hand(
                    "pod {object.metadata.name}", "a hold lifted by"
                )
            },
        ),
        *devices.objects(args),
        *request_limits.objects(args),
        *person_limits.objects(args),
        *groups.objects(args),
        *classes.objects(args),
        *users.objects(args),
    ]


def _by(*users: str) -> str:
    return f"request.userInfo.username in {json.dumps(users)}"


def _at_a_time(job: str) -> str:
    """CEL: how many pods a Job has at a time, as Kueue counts them."""
    most = f"{job}.spec.parallelism"
    done = f"{job}.spec.?completions.orValue({most})"
    return f"{done} < {most} ? {done} : {most}"


def _gates(pod: str) -> str:
    return f"{pod}.spec.?schedulingGates.orValue([])"


def _queued(noun: str, got: str, fix: str) -> str:
    what = f"{noun} with GPUs is not in the queue"
    return cel.message(what, NAMESPACE, got, f"{noun}s that wait for their quota", fix)


def _job_sets(args: QueuesArgs) -> list[Object]:
    """Return the policy by which a JobSet begins suspended: its Jobs are not looked at."""
    spec = "j.template.spec.template.spec"
    return policy(
        "bedplate-queued-job-sets",
        "A JobSet with GPUs begins suspended: Kueue starts it when there is quota.",
        (("jobset.x-k8s.io", "*", ("jobsets",)),),
        CREATE,
        {
            f"!variables.gpus || {_SUSPENDED}": _queued(
                "jobset", "a jobset that starts at once", f"label it {QUEUE_LABEL}: {QUEUE}"
            )
        },
        variables={"gpus": f"object.spec.replicatedJobs.exists(j, {devices.gpus(spec, args)})"},
    )


def _by_hand(what: str, got: str) -> str:
    return cel.message(
        f"{what} is not started by hand",
        NAMESPACE,
        f"{got} {{request.userInfo.username}}",
        "the queue alone",
        "see what it waits for: kubectl -n {object.metadata.namespace} get workloads",
    )
