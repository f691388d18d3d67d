"""Who submitted it, written by the API server itself: usage is counted to users by this alone.

Neither Jobs nor Workloads say who made them. A policy writes the name of who makes the request, and
keeps it at every change. What Kubernetes' own controllers make has the name of the template that it
was made from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bedplate.accounting.records import STUDENT, USER
from bedplate.components.schedulers import jobset
from bedplate.components.schedulers.kueue.admission import BOTH, Kinds, mutation
from bedplate.components.schedulers.kueue.objects import CONTROLLER, Object
from bedplate.pods.remote.objects import CONTROLLER as REMOTE

if TYPE_CHECKING:
    from bedplate.components.schedulers.kueue.args import QueuesArgs

#: The controllers of Jobs, ReplicaSets, CronJobs and others, each with an account here.
SYSTEM: Final = "system:serviceaccount:kube-system:"
TEMPLATE: Final = ("spec", "template")
JOB_TEMPLATE: Final = ("spec", "jobTemplate")
CRON_JOBS: Final = (("batch", "v1", ("cronjobs",)),)

#: Policies by name: where in the object the name goes, and of which kinds.
_KINDS: Final[tuple[tuple[str, tuple[str, ...], Kinds], ...]] = (
    (
        "bedplate-names-users",
        (),
        (
            ("batch", "v1", ("jobs",)),
            ("", "v1", ("pods",)),
            ("jobset.x-k8s.io", "*", ("jobsets",)),
        ),
    ),
    (
        "bedplate-names-users-of-templates",
        TEMPLATE,
        # Kueue copies a Job's template into the Workload: there the name outlives the Job.
        (("apps", "v1", ("deployments", "statefulsets")), ("batch", "v1", ("jobs",))),
    ),
    ("bedplate-names-users-of-cron-jobs", JOB_TEMPLATE, CRON_JOBS),
    ("bedplate-names-users-of-cron-jobs-pods", (*JOB_TEMPLATE, *TEMPLATE), CRON_JOBS),
)


def objects(args: QueuesArgs) -> list[Object]:
    """Return the policies; none where the API server has no such, and users stay unknown."""
    if (api := args.mutating_api) is None:
        return []
    return [one for name, path, kinds in _KINDS for one in _policy(api, name, path, kinds)]


def _policy(api: str, name: str, path: tuple[str, ...], kinds: Kinds) -> list[Object]:
    before = _annotations("oldObject", path)
    kept = f"{before}[?'{USER}'].orValue('')"
    user = f"oldObject == null ? request.userInfo.username : {kept}"
    users = [
        f"!request.userInfo.username.startsWith('{SYSTEM}')",
        # The last writes who asked for a claim into the engine's Job.
        f"!(request.userInfo.username in ['{CONTROLLER}', '{jobset.CONTROLLER}', '{REMOTE}'])",
    ]
    return mutation(
        name,
        "What is submitted carries the name of who did, for accounting.",
        kinds,
        BOTH,
        {
            "patchType": "ApplyConfiguration",
            "applyConfiguration": {"expression": _kept_student(path, user)},
        },
        {"by-users": " && ".join(users)},
        version=api,
    )


def _kept_student(path: tuple[str, ...], user: str) -> str:
    """CEL: the name of who submits; where the hub has named a student, that too as it was."""
    before = f"{_annotations('oldObject', path)}[?'{STUDENT}']"
    student = f", '{STUDENT}': {before}.value()"
    kept = f"oldObject != null && {before}.hasValue()"
    return f"{kept} ? {_patch(path, user, student)} : {_patch(path, user)}"


def _annotations(of: str, path: tuple[str, ...]) -> str:
    """CEL: the annotations where the name is, if they are there."""
    return ".".join([of, *(f"?{part}" for part in (*path, "metadata", "annotations"))])


def _patch(path: tuple[str, ...], user: str, more: str = "") -> str:
    """CEL: an object with nothing but the name, and more annotations."""
    place = "Object"
    opened = [place]
    for part in (*path, "metadata"):
        place = f"{place}.{part}"
        opened.append(f"{part}: {place}")
    inside = f"annotations: {{'{USER}': {user}{more}}}"
    return "{".join(opened) + "{" + inside + "}" * len(opened)
