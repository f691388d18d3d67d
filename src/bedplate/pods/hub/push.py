"""Who writes to a course's registry, and how much of its size is used. Standard library only.

nginx asks before each write, and gives the reason of a refusal to the client in the registry's own
form. A push is refused where an upload begins: clients drop the reason of any later refusal.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from bedplate.pods.hub.courses import Settings

#: The service's part of the hub's address that nginx asks; no course has such a name.
ADDRESS: Final = ".push"
#: Headers: of a write that nginx asks about, its method and path; and why it is refused, as JSON.
OF_WRITE: Final = ("X-Original-Method", "X-Original-URI")
REASON: Final = "X-Reason"
#: What `podman login` asks for, to see whether the token is one.
LOGIN: Final = "/v2/"
#: Where the hub sees what the registry keeps.
DATA: Final = Path("/srv/registry")
#: The hour of the night in which what was deleted is freed, in the hub's time zone.
NIGHT: Final = 3
#: Paths as clients send them, without what a server could read in another way: no `..`, no `%`.
PATH: Final = re.compile(r"/v2/(?P<course>[a-z0-9-]+)/\w[\w.:-]*(?:/\w[\w.:-]*)*/?", re.ASCII)
#: A chunk counts too: one upload may have any number of them.
GROWS: Final = frozenset({"POST", "PATCH"})
#: Seconds after which an upload to which nobody writes is over; clients begin anew.
OVER: Final = 600
MEBIBYTE: Final = 2**20


def refusal(
    known: Settings, user: str, groups: frozenset[str], method: str, uri: str, data: Path = DATA
) -> str:
    """Return why a user may not make a write; empty where they may. `uri` is as it was sent."""
    path = uri.partition("?")[0]
    if path == LOGIN:
        return ""
    found = PATH.fullmatch(path)
    if found is None:
        return "images are pushed as COURSE/IMAGE: write the course first"
    name = found["course"]
    course = known.courses.get(name)
    if course is None:
        return f"there is no course {name}: push to COURSE/IMAGE"
    if not course.taught_by(user, groups):
        return f"{user} is no teacher of course {name}: only its teachers push to {name}/*"
    if not course.registry_mib:
        return f"course {name} has no registry: ask an administrator for one"
    uses = used(data, name) if method in GROWS else 0
    if uses > course.registry_mib * MEBIBYTE:
        return (
            f"course {name} has {uses // MEBIBYTE} MiB of its {course.registry_mib} MiB: delete "
            f"images of {name}/ and push again after {NIGHT:02}:00, when their space is freed"
        )
    return ""


def used(data: Path, course: str) -> int:
    """Return the bytes that a course has: each blob once that it links to, and its open uploads.

    Uploads that were given up are removed: Distribution keeps them for a week.
    """
    store = data / "docker/registry/v2"
    blobs, uploads = set(), 0
    # Folders of uploads go while this walks: os.walk passes over what is not there any more.
    for folder, _, files in os.walk(store / "repositories" / course):
        *_, algorithm, digest = Path(folder).parts
        if "link" in files and ("/_layers/" in folder or "/_manifests/revisions/" in folder):
            blobs.add(store / "blobs" / algorithm / digest[:2] / digest / "data")
        elif "data" in files and "/_uploads/" in folder:
            size, written = _of(Path(folder) / "data")
            if time.time() - written > OVER:
                shutil.rmtree(folder, ignore_errors=True)
            else:
                uploads += size
    return uploads + sum(_of(one)[0] for one in blobs)


def _of(file: Path) -> tuple[int, float]:
    """Return size and time of a file, which may be gone by now."""
    try:
        found = file.stat()
    except FileNotFoundError:
        return 0, time.time()
    return found.st_size, found.st_mtime
