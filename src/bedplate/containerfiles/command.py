"""`bedplate frameworks SITE`: the builds that the lock chose, and what their images are made of."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from bedplate.catalogue import catalogue_of
from bedplate.containerfiles import course
from bedplate.containerfiles.render import Build, builds_of, files_of
from bedplate.errors import BedplateError, Problem
from bedplate.lock.file import write_text
from bedplate.locked_site import checked_lock

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

DIGEST: Final = re.compile(r"[^\s@]+@sha256:[0-9a-f]{64}")


def run(
    site: Path,
    output: Path | None,
    base: str | None = None,
    requirements: tuple[str, Path] | None = None,
    on: str | None = None,
) -> int:
    """List the builds, or write a folder for each, and one for a course's requirements.

    Args:
        site: its lock is read.
        output: the folder to write in; None to list.
        base: the image to build on; None for the catalogue's.
        requirements: the name of an own image of courses, and the file of what it adds.
        on: the build whose notebook it is built on; None where there is one.

    Raises:
        BedplateError: the lock is missing or stale, the base has no digest, the requirements do not
            go with the build, or a folder cannot be written.
    """
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
    lock, catalogue = checked_lock(site), catalogue_of(site)
    builds = builds_of(lock, catalogue)
    if not builds:
        print("No pool has a framework: bedplate_frameworks of the site names none.")
        return 0
    more = course.added(chosen := _on(builds, on), requirements[1]) if requirements else None
    for build in builds:
        print(line(build))
        if output is not None:
            for name, text in files_of(build, lock.sources, base).items():
                _write(output / build.name / name, text)
    if output is not None:
        print(f"\nWrote {len(builds)} folders in {output}; each Containerfile says how to build.")
    if output is not None and requirements is not None and more is not None:
        name = requirements[0]
        for file, text in course.files_of(chosen, lock.sources, name, more.lines).items():
            _write(output / name / file, text)
        many = "1 requirement" if len(more.lines) == 1 else f"{len(more.lines)} requirements"
        print(f"Wrote {output / name}: {many} on {chosen.name}.")
        if more.there:
            left = ", ".join(more.there)
            print(f"Left out, because the notebook has it or Linux does not need it: {left}.")
    return 0


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


def line(build: Build) -> str:
    """Return a build in one line."""
    fact = build.fact
    cuda = f"CUDA {fact.cuda}" if fact.cuda else "no CUDA"
    return f"{build.name:32} {cuda:11} {build.requirement:36} {', '.join(build.pools)}"


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
