"""Before a lesson each student's environment is prepared: the home is there, with the material.

A pod without a GPU does it, one for each student, by the image that the student starts. That it has
ended is all that is known of it: a hub that starts again reads it from the pods. Standard library.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from bedplate.pods.hub import notebook

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bedplate.pods.hub.courses import Course

BEFORE: Final = timedelta(minutes=30)
#: So many of a course at once: the source of the material and the nodes have other work.
AT_ONCE: Final = 5
WITHIN: Final = 600
LABEL: Final = "bedplate.io/prepares"
USER: Final = "hub.jupyter.org/username"
HOMES: Final = "homes"
ENDED: Final = frozenset({"Succeeded", "Failed"})
#: What a notebook does at its start. It starts without its material, too.
AT_START: Final = 'timeout 60 "$@" >/dev/null 2>&1 || true'


def due(course: Course, now: datetime) -> bool:
    """Tell whether a course's environments are prepared now: shortly before a lesson begins.

    The homes of a size are its course's.
    """
    begin = course.next(now)
    homes = any(one["name"] == HOMES for one in course.volumes)
    homes = homes and not course.of and bool(course.profiles)
    return homes and begin is not None and not course.open(now) and begin - now <= BEFORE


def at_start(course: Course) -> dict[str, Any]:
    """Return the hooks of a student's container: it fetches what is new of the material."""
    if not course.material:
        return {}
    command = ["sh", "-c", AT_START, "material", *course.material]
    return {"postStart": {"exec": {"command": command}}}


def missing(
    course: Course, users: Mapping[str, frozenset[str]], pods: Iterable[Mapping[str, Any]]
) -> list[str]:
    """Name the students to prepare for now: of those without a pod as many as may run at once."""
    pods = list(pods)
    known = {one["metadata"].get("annotations", {}).get(USER) for one in pods}
    running = sum(one["status"].get("phase") not in ENDED for one in pods)
    found = {name for name, groups in users.items() if course.admits(name, groups)}
    found |= {name for name in (*course.members, *course.teachers) if ":" not in name}
    return sorted(found - known)[: max(0, AT_ONCE - running)]


def pod(course: Course, user: str, slug: str) -> dict[str, Any]:
    """Return the pod that prepares a student's home; `slug` is the user's name in names of pods."""
    homes = [one for one in course.volumes if one["name"] == HOMES]
    mounts = [one for one in notebook.mounts(course, slug) if one["name"] == HOMES]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"prepare-{slug}",
            "labels": {LABEL: course.name, "app.kubernetes.io/managed-by": "bedplate-hub"},
            "annotations": {USER: user},
        },
        "spec": {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": WITHIN,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": notebook.security(),
            "volumes": homes,
            "containers": [
                {
                    "name": "prepare",
                    "image": course.profiles[0].image,
                    "command": course.material or ["true"],
                    "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}},
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                    },
                    "volumeMounts": mounts,
                }
            ],
        },
    }
