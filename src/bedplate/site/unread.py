"""Files of variables that Ansible passes over, though it reads others beside them.

For a group or host it takes the first of `NAME`, `NAME.yml`, `NAME.yaml` and `NAME.json` that is
there, a folder as well as a file, and only from `group_vars` and `host_vars` of the site itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible import constants

from bedplate.common.errors import Problem
from bedplate.site.files import VARIABLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from bedplate.site.positions import Positions

#: The endings of such a file, in the order in which Ansible looks for them.
ENDINGS = ("", *constants.YAML_FILENAME_EXTENSIONS)


def problems(
    site: Path, found: Iterable[tuple[Path, str]], positions: Positions
) -> Iterator[Problem]:
    """Yield the files that are not read, of some with a variable of each that is wanted."""
    for path, variable in found:
        first, *rest = path.relative_to(site).parts
        if first not in VARIABLES:
            place, name = path.parent, next(part for part in rest if part in VARIABLES)
            got = f"{place.relative_to(site)} below the site"
            fix = f"move it to {name} of the site itself"
            yield _problem(path, variable, positions, got, f"{name} of the site itself", fix)
        elif (other := _before(site / first, rest[0])) is not None:
            shadow = f"{other.name}{'/' if other.is_dir() else ''}"
            got = f"{path.name} next to {shadow}"
            empty = other.is_dir() and not any(other.iterdir())
            fix = f"move it into {shadow}" if other.is_dir() else f"put its content into {shadow}"
            fix = f"remove {shadow}, which is empty" if empty else fix
            yield _problem(path, variable, positions, got, f"{shadow} alone, which is read", fix)


def _before(folder: Path, entry: str) -> Path | None:
    """Return what Ansible reads in place of an entry of a folder of variables."""
    ending = next((one for one in ENDINGS[1:] if entry.endswith(one)), "")
    stem = entry.removesuffix(ending)
    for earlier in ENDINGS[: ENDINGS.index(ending)]:
        if (folder / f"{stem}{earlier}").exists():
            return folder / f"{stem}{earlier}"
    return None


def _problem(
    path: Path, variable: str, positions: Positions, got: str, allowed: str, fix: str
) -> Problem:
    place = positions.place(variable, variable)
    line, column = (place.line, place.column) if place else (1, 1)
    what, rule = "Ansible does not read this file", "files-read"
    return Problem(what, str(path), line, column, str(variable), got, allowed, fix, rule)
