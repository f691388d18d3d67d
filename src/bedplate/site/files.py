"""The files of a site before Ansible reads them: what no inventory can be is named, cheaply."""

from __future__ import annotations

import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bedplate.common import walking
from bedplate.common.errors import Problem
from bedplate.common.lock_place import FACTS
from bedplate.site.aliases import unfolds

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Directories beside the inventory's own files.
VARIABLES = {"group_vars", "host_vars"}
YAML = {".yml", ".yaml", ".json"}
MARKER = re.compile(r"^<<<<<<< .{0,12}", re.MULTILINE)
LARGEST = 10 * 1024 * 1024
IGNORED = re.compile(r"^\.|~$|\.(orig|bak|ini|cfg|retry|pyc|pyo)$")


@dataclass(frozen=True)
class SiteFile:
    """A file that Ansible would read: the text, and whether it is of variables or an inventory.

    `of` is `group_vars` or `host_vars` with the name of the group or host.
    """

    path: Path
    text: str
    variables: bool
    of: tuple[str, str] = ("", "")


def files_of(site: Path) -> Iterator[Path]:
    """Yield the files that Ansible would read, by name; dot files are never inventory."""
    yield from walking.files_of(site, IGNORED.search)


def check(site: Path) -> tuple[list[SiteFile], list[Problem]]:
    """Return the YAML files that can be read, and what is wrong with the others."""
    found: list[SiteFile] = []
    problems: list[Problem] = []
    for path in files_of(site):
        folders = path.relative_to(site).parts
        if folders[0] == FACTS and len(folders) > 1:
            continue
        variables = bool(VARIABLES & set(folders[:-1]))
        if _passed_over(path, variables=variables):
            continue
        outcome = read(path, variables=variables)
        if isinstance(outcome, Problem):
            problems.append(outcome)
        # Elsewhere, a file without a suffix may be an inventory in the INI format.
        elif outcome is not None and (path.suffix in YAML or (variables and not path.suffix)):
            found.append(SiteFile(path, outcome, variables, _owner(folders)))
    return found, problems


def _passed_over(path: Path, *, variables: bool) -> bool:
    """Tell whether Ansible reads nothing from a file of that name, whatever is in it.

    Of variables it takes YAML and JSON, and names without an ending. An inventory it takes from any
    name but those of its settings `ignore_extensions` and `ignore_patterns`: notes, packages.
    """
    if variables:
        return bool(path.suffix) and path.suffix not in YAML
    from ansible.inventory.manager import IGNORED as NO_INVENTORY

    return NO_INVENTORY.search(path.name.encode()) is not None


def _owner(parts: tuple[str, ...]) -> tuple[str, str]:
    """Return for `group_vars/pool_x/gpu.yml` that it is of `pool_x` in `group_vars`."""
    at = next((number for number, part in enumerate(parts[:-1]) if part in VARIABLES), None)
    if at is None:
        return "", ""
    name = parts[at + 1]
    suffix = Path(name).suffix
    return parts[at], name.removesuffix(suffix) if suffix in YAML else name


def read(path: Path, *, variables: bool) -> str | Problem | None:
    """Return the text of a file, None where it is a program, or what is wrong."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            got, fix = "a pipe, socket or device", "remove it from the site"
            return _problem("no plain file", path, got=got, allowed="a file", fix=fix)
        if status.st_mode & 0o111 and path.suffix not in YAML and not variables:
            return None  # a dynamic inventory: a program in whatever language
        if status.st_size > LARGEST:
            got, fix = f"{status.st_size} bytes", "keep data that is no inventory out of the site"
            what = "file is too large for an inventory"
            return _problem(what, path, got=got, allowed=f"{LARGEST} bytes", fix=fix)
        content = path.read_bytes()
    except OSError as error:
        fix = "correct it, or remove it from the site"
        return _problem("file cannot be read", path, got=str(error.strerror), fix=fix)
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        got, fix = f"byte 0x{content[error.start]:02x}", "save it as UTF-8, or remove it"
        return _problem(
            "file is not UTF-8 text",
            path,
            line,
            got=got,
            allowed="UTF-8",
            fix=f"{fix} from the site",
        )
    if "\0" in text:
        return _problem("file is binary", path, allowed="YAML", fix="remove it from the site")
    if path.suffix in YAML or not path.suffix:
        if marker := MARKER.search(text):
            line = text.count("\n", 0, marker.start()) + 1
            what, fix = "file has conflict markers", "finish the merge"
            return _problem(what, path, line, got=marker.group(), allowed="YAML", fix=fix)
        if found := unfolds(text):
            at, got, allowed = found
            fix = "write out what is meant"
            return _problem("YAML unfolds too far", path, at, got=got, allowed=allowed, fix=fix)
    return text


def _problem(
    what: str,
    path: Path,
    line: int | None = None,
    *,
    got: str | None = None,
    allowed: str | None = None,
    fix: str,
) -> Problem:
    return Problem(what, str(path), line, got=got, allowed=allowed, fix=fix, rule="readable")
