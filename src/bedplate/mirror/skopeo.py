"""skopeo: copies of images between disk and registries."""

from __future__ import annotations

import shutil

from bedplate.common import programs
from bedplate.mirror.errors import MirrorError

SKOPEO = "skopeo"
#: For one image, in seconds.
SECONDS = 4 * 3600


def expect() -> None:
    """Refuse a machine without skopeo before anything is copied."""
    if shutil.which(SKOPEO) is None:
        raise MirrorError(
            "images cannot be copied",
            "PATH",
            f"no {SKOPEO}",
            "skopeo 1.9 or newer",
            "install the package skopeo",
        )


def run(words: list[str], what: str, fix: str) -> None:
    """Run it with these words; *what* and *fix* are for the message where it fails.

    Raises:
        MirrorError: it says no, or does not end.
    """
    try:
        done = programs.run([SKOPEO, *words], SECONDS, check=False)
    except programs.ProgramError as error:
        raise _refused(what, error.got, fix) from error
    if done.status:
        said = [line for line in done.errors.splitlines() if "level=fatal" in line]
        text = (said or [done.said])[-1]
        raise _refused(what, text.partition("msg=")[2].strip('"') or text, fix)


def _refused(what: str, got: str, fix: str) -> MirrorError:
    return MirrorError(what, SKOPEO, got, "a copy of the image", fix)
