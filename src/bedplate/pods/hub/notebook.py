"""What pods of a student have as the notebook has it: user, volumes, environment, directory.

A share that runs a cell or a script is a Job of the notebook's image with the student's files.
Standard library only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from bedplate.pods.hub import shares

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bedplate.pods.hub.courses import Course, Profile

#: Of the user and of the group that homes are written for.
UID: Final = 1000
GID: Final = 100
#: Runs a cell as a notebook does, `!` and `%` included. Its history would lock a file of the home.
CELL: Final = ("python3", "-m", "IPython", "--HistoryManager.enabled=False", "-c")
SCRIPT: Final = ("python3",)
#: In the shell: kubelet would make a directory that is not there, as root.
IN_DIRECTORY: Final = ("sh", "-c", 'cd -- "$0" && exec "$@"')
#: A cell runs without it too: a course without homes has the folders of the image alone.
IF_THERE: Final = ("sh", "-c", 'cd -- "$0" 2>/dev/null; exec "$@"')
#: Else Python keeps what it prints until the end.
STREAMS: Final = {"PYTHONUNBUFFERED": "1"}


def security() -> dict[str, Any]:
    """Return the security context of a student's pod."""
    return {
        "runAsUser": UID,
        "runAsGroup": GID,
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def mounts(course: Course, slug: str) -> list[dict[str, Any]]:
    """Return a course's mounts for a student by the name that KubeSpawner writes in paths."""
    return [
        {key: value.replace("{username}", slug) if key == "subPath" else value for key, value in m}
        for m in (one.items() for one in course.mounts)
    ]


def profile(course: Course, slug: str) -> Profile:
    """Return the profile of a notebook; the first one for who has none. Raises ShareError."""
    found = {one.slug: one for one in course.profiles}
    if slug and slug not in found:
        allowed, fix = ", ".join(found), "stop your notebook and start it again"
        raise shares.ShareError(f"no such profile of {course.name}", slug, allowed, fix)
    return found[slug] if slug else course.profiles[0]


def command(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what a share runs: a cell, a script, or nothing. Raises ShareError."""
    words: tuple[Any, ...] = ()
    if "code" in body:
        words = (*CELL, body["code"])
    elif "run" in body and isinstance(body["run"], list) and body["run"]:
        words = (*SCRIPT, *body["run"])
    elif "run" in body:
        fix = "write %share run SCRIPT"
        raise shares.ShareError("no script to run", str(body["run"]), "a file and arguments", fix)
    if words and "directory" in body:
        begins = IF_THERE if "code" in body else IN_DIRECTORY
        words = (*begins, body["directory"], *words)
    if not all(isinstance(one, str) and "\0" not in one for one in words):
        what, allowed = "no command for a share", "text without zero bytes"
        raise shares.ShareError(what, "something else", allowed, "write it as text")
    return words


def like_it(job: dict[str, Any], course: Course, slug: str) -> dict[str, Any]:
    """Return a share's Job with the user, the volumes and the mounts of the student's notebook.

    /dev/shm stays the share's own, whose size goes with the share.
    """
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    for where, key, of_course in (
        (pod, "volumes", course.volumes),
        (container, "volumeMounts", mounts(course, slug)),
    ):
        own = {one["name"] for one in where[key]}
        where[key] = [*(one for one in of_course if one["name"] not in own), *where[key]]
    pod["securityContext"] = security()
    return job
