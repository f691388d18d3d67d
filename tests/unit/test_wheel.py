"""The wheel carries everything that runs: the package and the whole collection."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
COLLECTION = "ansible_collections/bedplate/gpu/"


def tracked(*folders: str) -> set[str]:
    """Name the files that git tracks below some folders."""
    listing = subprocess.run(
        ["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(listing.stdout.split())


def test_wheel_has_package_and_collection(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    package = {name.removeprefix("src/") for name in tracked("src/bedplate")}
    assert package, "git lists no file of the package"
    assert package - names == set()
    portable = "plugins/module_utils/portable"
    parts = tracked("roles", "plugins", "playbooks", "meta", "galaxy.yml") - {portable}
    assert {f"{COLLECTION}{name}" for name in parts} - names == set()
    # The link to the package's portable part is a folder of its own in a wheel.
    source = "src/bedplate/portable"
    copies = {Path(name).relative_to(source) for name in tracked(source)}
    assert {f"{COLLECTION}{portable}/{name}" for name in copies} - names == set()
    assert [name for name in names if name.endswith(".pyc")] == []
