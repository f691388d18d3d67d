"""`bedplate frameworks SITE`: the builds that the lock chose, and what their images are made of."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from bedplate.catalogue import catalogue_of
from bedplate.common import terminal
from bedplate.common.errors import BedplateError, Problem
from bedplate.lock.file import write_text
from bedplate.planning.containerfiles import course
from bedplate.planning.containerfiles.render import Build, builds_of, files_of
from bedplate.resolver.plan import checked_lock

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from bedplate.lock.model import Sources

DIGEST: Final = re.compile(r"[^\s@]+@sha256:[0-9a-f]{64}")


def run(options: Namespace) -> int:
    """List the builds, or write a folder for each, and one for a course's requirements.

    Raises:
        BedplateError: the lock is missing or stale, the base has no digest, the requirements do not
            go with the build, or a folder cannot be written.
    """
    base: str | None = options.base
    if base is not None and not DIGEST.fullmatch(base):
        raise BedplateError(
            [
                Problem(
                    "base image has no digest",
                    key="--base",
                    got=base,
                    allowed="IMAGE@sha256:DIGEST",
                    fix="read it: skopeo inspect --format '{{.Digest}}' docker://IMAGE",
                    rule="containerfiles",
                )
            ]
        )
    lock, catalogue = checked_lock(options.site), catalogue_of(options.site)
    builds = builds_of(lock, catalogue)
    done = list(_written(options, builds, lock.sources)) if builds else []
    if options.form != "table":
        terminal.document([_content(build) for build in builds], options.form)
    elif builds:
        terminal.show(terminal.table(None, map(row, builds)))
    else:
        print("No pool has a framework: bedplate_frameworks of the site names none.")
    terminal.show(*done, error=options.form != "table")
    return 0


def _written(options: Namespace, builds: Sequence[Build], sources: Sources) -> Iterator[str]:
    """Write what is asked for, and yield what was written."""
    output: Path | None = options.output
    if output is None:
        return
    asked: tuple[str, Path] | None = options.requirements
    more = course.added(chosen := _on(builds, options.on), asked[1]) if asked else None
    for build in builds:
        for name, text in files_of(build, sources, options.base).items():
            _write(output / build.name / name, text)
    yield f"\nWrote {len(builds)} folders in {output}; each Containerfile says how to build."
    if asked is None or more is None:
        return
    name = asked[0]
    for file, text in course.files_of(chosen, sources, name, more.lines).items():
        _write(output / name / file, text)
    many = "1 requirement" if len(more.lines) == 1 else f"{len(more.lines)} requirements"
    yield f"Wrote {output / name}: {many} on {chosen.name}."
    if more.there:
        left = ", ".join(more.there)
        yield f"Left out, because the notebook has it or Linux does not need it: {left}."


def _on(builds: Sequence[Build], on: str | None) -> Build:
    found = [build for build in builds if on in {None, build.name}]
    if len(found) != 1:
        problem = Problem(
            "build is not one of the lock's" if on else "requirements are for one build",
            key="--on",
            got=on or f"{len(builds)} builds",
            allowed=", ".join(build.name for build in builds),
            fix="name one of these",
            rule=course.RULE,
        )
        raise BedplateError([problem])
    return found[0]


def row(build: Build) -> tuple[str, str, str, str]:
    """Return a build's cells: its name, CUDA, what it is built from, its pools."""
    cuda = f"CUDA {build.fact.cuda}" if build.fact.cuda else "no CUDA"
    return build.name, cuda, build.requirement, ", ".join(build.pools)


def _content(build: Build) -> dict[str, Any]:
    return {
        "name": build.name,
        "cuda": build.fact.cuda,
        "requirement": build.requirement,
        "pools": list(build.pools),
    }


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
    except OSError as error:
        problem = Problem(
            "folder cannot be written",
            key="--output",
            got=f"{path}: {error.strerror}",
            allowed="a folder that may be written",
            fix="choose another folder",
            rule="containerfiles",
        )
        raise BedplateError([problem]) from error
