"""A job as objects of Kubernetes: queue and scheduler as add-ons and preset say.

Pure functions: `kubectl apply` takes what they return as well as Pulumi does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bedplate.common import shipped
from bedplate.components.frameworks.jobs import placing, pods
from bedplate.components.schedulers.kueue.objects import QUEUE, QUEUE_LABEL
from bedplate.components.schedulers.volcano_objects import QUEUE_NAME, SCHEDULER

if TYPE_CHECKING:
    from bedplate.components.frameworks.jobs.args import JobsArgs
    from bedplate.components.frameworks.jobs.model import Request
    from bedplate.components.frameworks.jobs.pods import Object

JOBSETS: Final = "jobset.x-k8s.io/v1alpha2"
VOLCANO_JOBS: Final = "batch.volcano.sh/v1alpha1"
#: Kueue suspends an admitted workload after this time, for good.
LONGEST: Final = "kueue.x-k8s.io/max-exec-time-seconds"
#: How much later that is than the Job's own limit, which ends it as failed with a reason: at the
#: same moment, Kueue might come first and leave a Job that neither runs nor ends.
LATER: Final = 60
#: Volcano makes a gang of the pods of a Job that has this annotation.
GANG: Final = "scheduling.volcano.sh/group-min-member"
WORKERS: Final = "workers"
TASK: Final = "pod"
TASK_INDEX: Final = "volcano.sh/task-index"


def objects(args: JobsArgs, request: Request) -> list[Object]:
    """Return the objects of a job that has no problems, in the order in which they are made.

    The Secret of an MPI job is not among them: `ssh-privatekey` in NAME-ssh, made by who starts it.
    """
    if request.form == "JobSet":
        return [_jobset(args, request)]
    if request.form == "VolcanoGang" and "kueue" not in args.addons:
        return [_volcano_job(args, request)]
    found = []
    if request.pods > 1 or request.form in ("MPI", "torchrun"):
        found.append(_service(args, request))
    if request.form == "MPI":
        found.append(_scripts(args, request))
    return [*found, _job(args, request)]


def by_volcano(args: JobsArgs, request: Request) -> bool:
    """Tell whether Volcano places the pods of a job: as a gang, or since the quotas are its own."""
    known = args.addons
    if "volcano" not in known:
        return False
    gang = args.preset.placement.gang and request.pods > 1
    return request.form == "VolcanoGang" or gang or "kueue" not in known


def _metadata(args: JobsArgs, request: Request, name: str | None = None) -> Object:
    return {"name": name or request.name, "namespace": placing.namespace(args, request)}


def _queued(args: JobsArgs, request: Request) -> Object:
    """Return the metadata of what waits in the queue."""
    found = _metadata(args, request)
    if "kueue" in args.addons:
        labels = {QUEUE_LABEL: QUEUE}
        if request.seconds is not None:
            labels[LONGEST] = str(request.seconds + LATER)
        found["labels"] = labels
    return found


def _gang(args: JobsArgs, request: Request) -> Object:
    """Return the annotation of a Job whose pods start together, if they do."""
    if not by_volcano(args, request):
        return {}
    return {"annotations": {GANG: str(request.pods)}}


def _template(args: JobsArgs, request: Request, meeting: str) -> Object:
    """Return the pods of a Job, with the scheduler that places them."""
    found = pods.template(args, request, meeting)
    if by_volcano(args, request):
        found["spec"]["schedulerName"] = SCHEDULER
        if "kueue" not in args.addons:
            found["metadata"]["annotations"] = {QUEUE_NAME: request.team}
    return {key: value for key, value in found.items() if value}


def _spec(args: JobsArgs, request: Request, meeting: str) -> Object:
    """Return the specification of a Job. What a drain or the queue stops is no failure."""
    drained = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
    spec: Object = {
        "parallelism": request.pods,
        "completions": request.pods,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "podFailurePolicy": {"rules": [drained]},
    }
    if request.seconds is not None:
        spec["activeDeadlineSeconds"] = request.seconds
    return {**spec, "template": _template(args, request, meeting)}


def _job(args: JobsArgs, request: Request) -> Object:
    meeting = f"{request.name}-0.{request.name}"
    spec = _spec(args, request, meeting)
    if request.pods > 1 or request.form in ("MPI", "torchrun"):
        spec["template"]["spec"]["subdomain"] = request.name
    if request.form == "MPI":
        # The others wait for logins until the first is done.
        spec["successPolicy"] = {"rules": [{"succeededIndexes": "0"}]}
    metadata = {**_queued(args, request), **_gang(args, request)}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def _jobset(args: JobsArgs, request: Request) -> Object:
    meeting = f"{request.name}-{WORKERS}-0-0.{request.name}"
    gang = _gang(args, request)
    job = {**({"metadata": gang} if gang else {}), "spec": _spec(args, request, meeting)}
    return {
        "apiVersion": JOBSETS,
        "kind": "JobSet",
        "metadata": _queued(args, request),
        "spec": {
            "network": {
                "enableDNSHostnames": True,
                "subdomain": request.name,
                "publishNotReadyAddresses": True,
            },
            "failurePolicy": {"maxRestarts": 0},
            "replicatedJobs": [{"name": WORKERS, "replicas": 1, "template": job}],
        },
    }


def _volcano_job(args: JobsArgs, request: Request) -> Object:
    """Return a job of Volcano's, which has the team's queue where Kueue has none."""
    meeting = f"{request.name}-{TASK}-0.{request.name}"
    found = pods.template(args, request, meeting, index=TASK_INDEX)
    if request.seconds is not None:
        found["spec"]["activeDeadlineSeconds"] = request.seconds
    return {
        "apiVersion": VOLCANO_JOBS,
        "kind": "Job",
        "metadata": _metadata(args, request),
        "spec": {
            "schedulerName": SCHEDULER,
            "queue": request.team,
            "minAvailable": request.pods,
            "plugins": {"svc": []},
            "policies": [
                {"event": "PodFailed", "action": "AbortJob"},
                {"event": "PodEvicted", "action": "RestartJob"},
            ],
            "tasks": [
                {"name": TASK, "replicas": request.pods, "template": {"spec": found["spec"]}}
            ],
        },
    }


def _service(args: JobsArgs, request: Request) -> Object:
    """Return the names of the pods, which they have before they are ready."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(args, request),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"batch.kubernetes.io/job-name": request.name},
        },
    }


def _scripts(args: JobsArgs, request: Request) -> Object:
    """Return what each pod of an MPI job starts with, and the user that it runs as."""
    user = f"job:x:{pods.USER}:{pods.USER}::{pods.HOME}:/bin/sh\n"
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(args, request),
        "data": {
            "mpi.sh": (shipped.templates("jobs") / "mpi.sh").read_text(),
            "passwd": f"root:x:0:0:root:/root:/bin/sh\n{user}",
        },
    }
