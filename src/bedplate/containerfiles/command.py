"""`bedplate frameworks SITE`: the builds that the lock chose, and what their images are made of."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from bedplate.catalogue import catalogue_of
from bedplate.containerfiles.render import Build, builds_of, files_of
from bedplate.errors import BedplateError, Problem
from bedplate.lock.file import write_text
from bedplate.locked_site import checked_lock

if TYPE_CHECKING:
    from pathlib import Path

DIGEST: Final = re.compile(r"[^\s@]+@sha256:[0-9a-f]{64}")


def run(site: Path, output: Path | None, base: str | None) -> int:
    """List the builds, or write a folder for each.

    Raises:
        BedplateError: the lock is missing or stale, the base has no digest, or a folder cannot be
            written.
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
    for build in builds:
        print(line(build))
        if output is not None:
            for name, text in files_of(build, lock.sources, base).items():
                _write(output / build.name / name, text)
    if output is not None:
        print(f"\nWrote {len(builds)} folders in {output}; each Containerfile says how to build.")
    return 0


def line(build: Build) -> str:
    """Return a build in one line."""
    fact = build.fact
    return f"{build.name:32} CUDA {fact.cuda:6} {build.requirement:36} {', '.join(build.pools)}"


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
