"""The files of a course's own image: what its requirements add to the notebook of a build."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from bedplate.common import reading
from bedplate.common.errors import BedplateError, Problem
from bedplate.lock.builds import notebook_of
from bedplate.planning.containerfiles.render import index_words, rendered

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bedplate.lock.model import Sources
    from bedplate.planning.containerfiles.render import Build

OPTION: Final = "--requirements"
COMMENT: Final = re.compile(r"(^|\s)#.*$")
#: Where notebooks run: what is for other systems is not asked for.
LINUX: Final = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"}
RULE: Final = "requirements"


@dataclass(frozen=True)
class Added:
    """What a course adds: lines of requirements, and the packages that the notebook has already."""

    lines: tuple[str, ...]
    there: tuple[str, ...]


def added(build: Build, path: Path) -> Added:
    """Return what a file of requirements adds to the notebook of a build.

    The file is one that was written by hand, or that `pip freeze` has written in a notebook.

    Raises:
        BedplateError: it cannot be read, a line is no package of an index, or it names another
            version of the framework or of JupyterHub than that of the notebook.
    """
    lines, there, problems = [], [], []
    for number, text in _lines(path):
        found = _checked(build, path, number, text)
        if isinstance(found, Problem):
            problems.append(found)
        elif found is None:
            there.append(text)
        else:
            lines.append(found)
    if not lines and not problems:
        got = ", ".join(there) or "no package"
        allowed, fix = "a package that the notebook lacks", "name the framework alone in the course"
        problems.append(_problem("requirements add nothing", path, None, got, allowed, fix))
    if problems:
        raise BedplateError(problems)
    return Added(tuple(lines), tuple(there))


def files_of(build: Build, sources: Sources, name: str, lines: tuple[str, ...]) -> dict[str, str]:
    """Return the files of the folder of an own image, by name.

    Args:
        build: its notebook is built on; the folder of its own files lies next to this one.
        sources: of the lock: the site's package mirrors, where it has them.
        name: the image's, in `bedplate_images`.
        lines: of `added`.
    """
    values = {
        "name": name,
        "build": build,
        "notebook": notebook_of(build.fact.framework, build.fact.version, build.fact.variant),
        "sources": sources,
        "index": build.fact.index,
        # The notebook's own index stays the first one: here its maker's is a further one.
        "indexes": index_words(build, sources).replace(" --index-url", " --extra-index-url"),
        "lines": lines,
    }
    names = {"Containerfile": "course", "requirements.in": "course.in"}
    return {file: rendered(template, values) for file, template in names.items()}


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield each requirement of a file with the number of its line; lines that go on are one."""
    try:
        text = reading.content(path).decode("utf-8-sig")
    except OSError as error:
        got, fix = reading.why(error), "name a file that can be read"
        problem = _problem("requirements cannot be read", path, None, got, "a text file", fix)
        raise BedplateError([problem]) from error
    except UnicodeDecodeError as error:
        fix = "save it as UTF-8; PowerShell: pip freeze | Out-File -Encoding utf8 FILE"
        got = "bytes that are not UTF-8"
        problem = _problem("requirements cannot be read", path, None, got, "UTF-8", fix)
        raise BedplateError([problem]) from error
    begun, first = "", 0
    for number, line in enumerate(text.splitlines(), start=1):
        first = first if begun else number
        begun += COMMENT.sub("", line).strip()
        if begun.endswith("\\"):
            begun = f"{begun[:-1].rstrip()} "
            continue
        if begun.strip():
            yield first, begun.strip()
        begun = ""
    if begun.strip():
        yield first, begun.strip()


def _checked(build: Build, path: Path, number: int, text: str) -> str | Problem | None:
    """Return a line as it is asked for, None where the notebook has it, or what is wrong."""
    asked = re.split(r"\s--hash[= ]", text)[0].strip()
    allowed = "NAME, or NAME with a version, of a package index"
    if text.startswith("-"):
        fix = "write the packages themselves; bedplate_sources.pip of the site names the index"
        return _problem("line is an option of pip", path, number, text, allowed, fix)
    try:
        requirement = Requirement(asked)
    except InvalidRequirement:
        fix = "write NAME==VERSION; pip list --format freeze prints lines of this form"
        return _problem("line names no package", path, number, text, allowed, fix)
    if requirement.url is not None:
        fix = f"write {requirement.name}==VERSION, and publish it in the site's index if it is own"
        what = "package is not from an index"
        return _problem(what, path, number, requirement.url, allowed, fix)
    if requirement.marker is not None and not requirement.marker.evaluate(
        {**LINUX, "python_version": build.package.python}
    ):
        return None
    versions = _decided(build).get(canonicalize_name(requirement.name))
    if versions is None:
        return text
    if any(requirement.specifier.contains(one, prereleases=True) for one in versions):
        return None
    fix = "leave the line out; or name this version in the course's frameworks, and plan again"
    if requirement.name.lower() == "jupyterhub":
        fix = "leave the line out: notebooks have the hub's version"
    allowed = f"{requirement.name}=={versions[0]}, which the notebook has"
    return _problem("version is not the decided one", path, number, asked, allowed, fix)


def _decided(build: Build) -> dict[str, tuple[str, ...]]:
    """Return the decided versions by package; a maker's own index adds the variant to them."""
    version, variant = build.fact.version, build.fact.variant
    framework = canonicalize_name(Requirement(build.requirement).name)
    return {framework: (version, f"{version}+{variant}"), "jupyterhub": (build.jupyterhub,)}


def _problem(what: str, path: Path, line: int | None, got: str, allowed: str, fix: str) -> Problem:
    column = None if line is None else 1
    return Problem(
        what, str(path), line, column, OPTION, got=got, allowed=allowed, fix=fix, rule=RULE
    )
