"""The files of a release, from the commit that is checked out: `make release`.

They lie in `dist/release/VERSION`. The same commit gives the same bytes: what is built is Git's
own copy of it, so no ignored file comes in, and all dates are the commit's. Nothing is tagged,
pushed or published.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import yaml

from bedplate.common.errors import BedplateError, Problem
from tests.install import environments, sbom

ROOT = environments.ROOT
ENTRY = re.compile(r"^## (?P<version>\S+)(?P<more>.*)\n(?P<text>(?:(?!## ).*\n?)*)", re.MULTILINE)
SHOWN = 5


def refusals(version: str, galaxy: str, entry: re.Match[str] | None, changed: str) -> list[Problem]:
    """Return all that stands against a release.

    Args:
        version: that of `pyproject.toml`, which all others have to be.
        galaxy: that of `galaxy.yml`.
        entry: the newest of `CHANGELOG.md`.
        changed: what `git status --porcelain` prints.
    """
    found = []
    if lines := changed.splitlines():
        more = f" and {len(lines) - SHOWN} more" if len(lines) > SHOWN else ""
        got = ", ".join(line[3:] for line in lines[:SHOWN]) + more
        fix = "commit or remove them: a release is what a commit has"
        found.append(Problem("files are changed or untracked", got=got, allowed="none", fix=fix))
    if galaxy != version:
        found.append(
            Problem(
                "versions differ",
                "galaxy.yml",
                key="version",
                got=galaxy,
                allowed=f"{version}, as in pyproject.toml",
                fix="write the same version into both",
            )
        )
    if entry is None or entry["version"] != version or not entry["text"].strip():
        got = "none" if entry is None else entry["version"]
        got += " without text" if got == version else ""
        fix = f"write '## {version} (DATE)' at the top, and what users notice below it"
        what = "newest entry is not of this version"
        found.append(Problem(what, "CHANGELOG.md", got=got, allowed=version, fix=fix))
    return found


def normalise(archive: Path, when: int) -> None:
    """Write a collection's archive again: sorted by name, and dated.

    ansible-galaxy takes files in the order of their folder's entries, with their own times, and
    dates its lists by the clock. The list of files is in that order too, and its digest in the
    manifest.
    """
    with tarfile.open(archive) as opened:
        members = sorted(opened, key=lambda one: one.name)
        data = {one.name: opened.extractfile(one).read() for one in members if one.isreg()}
    listed, manifest = json.loads(data["FILES.json"]), json.loads(data["MANIFEST.json"])
    listed["files"].sort(key=lambda one: one["name"])
    data["FILES.json"] = json.dumps(listed, indent=1).encode()
    digest = hashlib.sha256(data["FILES.json"]).hexdigest()
    manifest["file_manifest_file"]["chksum_sha256"] = digest
    data["MANIFEST.json"] = json.dumps(manifest, indent=1).encode()
    with (
        archive.open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=when) as packed,
        tarfile.open(fileobj=packed, mode="w") as written,
    ):
        for member in members:
            content = data.get(member.name, b"")
            member.mtime, member.size = when, len(content)
            written.addfile(member, io.BytesIO(content))


def build(folder: Path, version: str, text: str) -> None:
    """Make all files of a release of the commit that is checked out in *folder*."""
    when, commit = int(_git("log", "-1", "--format=%ct")), _git("rev-parse", "HEAD")
    os.environ["SOURCE_DATE_EPOCH"] = str(when)  # hatchling's dates
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary) / "bedplate"
        command = ["git", "archive", "--format=tar", commit]
        packed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
        with tarfile.open(fileobj=io.BytesIO(packed)) as opened:
            opened.extractall(copy, filter="data")
        wheel = environments.wheel(folder, copy)
        environments.sdist(folder, copy)
        normalise(environments.collection(folder, copy), when)
        lock = (copy / "requirements.lock").read_text(encoding="utf-8")
    listed = sbom.document(_project(), _digest(wheel), lock, commit, when)
    content = json.dumps(listed, indent=2) + "\n"
    (folder / f"bedplate-{version}.cdx.json").write_text(content, encoding="utf-8")
    (folder / "RELEASE.md").write_text(f"# Bedplate {version}\n\n{text}\n", encoding="utf-8")
    sums = [f"{_digest(path)}  {path.name}\n" for path in sorted(folder.iterdir())]
    (folder / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")


def main() -> int:
    """Build a release, and print its checksums and the command that tags it.

    Returns:
        1 where something stands against it; all of that is printed at once.
    """
    version = _project()["version"]
    galaxy = str(yaml.safe_load((ROOT / "galaxy.yml").read_text())["version"])
    entry = ENTRY.search((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    try:
        problems = refusals(version, galaxy, entry, _git("status", "--porcelain"))
    except BedplateError as error:
        problems = error.problems
    if problems:
        print(BedplateError(problems), file=sys.stderr)
        return 1
    assert entry is not None
    place = ROOT / "dist" / "release" / version
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as temporary:
        built = Path(temporary) / version
        built.mkdir()
        build(built, version, entry["text"].strip())
        shutil.rmtree(place, ignore_errors=True)
        built.rename(place)
    print((place / "SHA256SUMS").read_text(), end="")
    print(f"Wrote dist/release/{version}. Nothing was tagged or pushed.")
    if "unreleased" in entry["more"]:
        print(f"CHANGELOG.md says that {version} is unreleased: write the date, commit, run again.")
    print(f"To tag it: git tag -a v{version} -m 'Bedplate {version}' {_git('rev-parse', 'HEAD')}")
    return 0


def _project() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        fix = "run it in a clone that has a commit"
        got = done.stderr.strip()
        raise BedplateError([Problem(f"git {words[0]} failed", str(ROOT), got=got, fix=fix)])
    return done.stdout.rstrip()


if __name__ == "__main__":
    raise SystemExit(main())
