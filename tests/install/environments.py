"""Python environments that hold what a user has installed, and nothing of this checkout.

What comes from the package index is the very distributions of this environment, as links: nothing
is fetched, and an environment of three hundred thousand files is there in a second. The wheel
itself is installed by pip.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).parents[2]
#: Folders that several distributions put something into: what is in them is linked.
SHARED = {"ansible_collections", "google"}


def wheel(folder: Path, root: Path = ROOT) -> Path:
    """Build the wheel of a checkout, by default this one, into *folder*."""
    _hatch(folder, root, "wheel")
    (built,) = folder.glob("*.whl")
    return built


def sdist(folder: Path, root: Path = ROOT) -> Path:
    """Build the source distribution of a checkout, by default this one, into *folder*."""
    _hatch(folder, root, "sdist")
    (built,) = folder.glob("bedplate-[0-9]*.tar.gz")
    return built


def collection(folder: Path, root: Path = ROOT) -> Path:
    """Build the collection's archive of a checkout, by default this one, into *folder*."""
    galaxy = str(Path(sys.executable).with_name("ansible-galaxy"))
    command = [galaxy, "collection", "build", str(root), "--output-path", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    (built,) = folder.glob("bedplate-gpu-*.tar.gz")
    return built


def environment(folder: Path, names: Iterable[str]) -> Path:
    """Make an environment with distributions and what they need; return its folder of programs."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin/python"
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    said = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True)
    packages = Path(said.stdout.strip())
    for name in _closure(names):
        _link(name, packages, python)
    return folder / "bin"


def install(python: Path, built: Path) -> None:
    """Install a wheel without what it needs, and check that it is all there."""
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    words = ["install", "--quiet", "--no-deps", "--no-index", str(built)]
    subprocess.run([*pip, *words], check=True)
    subprocess.run([*pip, "check"], check=True, capture_output=True)


def requirements(built: Path) -> list[str]:
    """Return the names of the distributions that a wheel asks for."""
    import zipfile
    from email.parser import Parser

    with zipfile.ZipFile(built) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
    return [Requirement(line).name for line in metadata.get_all("Requires-Dist") or []]


def _hatch(folder: Path, root: Path, kind: str) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    subprocess.run(command, cwd=root, check=True, capture_output=True)


def _closure(names: Iterable[str]) -> list[str]:
    found: dict[str, None] = {}
    waiting = [canonicalize_name(name) for name in names]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found[name] = None
        for line in distribution(name).requires or []:
            needed = Requirement(line)
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                waiting.append(canonicalize_name(needed.name))
    return list(found)


def _link(name: str, packages: Path, python: Path) -> None:
    its = distribution(name)
    if its.files is None:
        raise PackageNotFoundError(name)
    source = Path(str(its.locate_file(""))).resolve()
    for file in its.files:
        if file.parts[0] == "..":
            _program(Path(str(file.locate())).resolve(), python)
            continue
        parts = file.parts[: 2 if file.parts[0] in SHARED else 1]
        link = packages.joinpath(*parts)
        if parts[0] != "__pycache__" and not link.is_symlink():
            link.parent.mkdir(exist_ok=True)
            link.symlink_to(source.joinpath(*parts))


def _program(path: Path, python: Path) -> None:
    """Copy a program of ours with the interpreter that is to run it."""
    if path.parent.name != "bin" or not path.is_file():
        return
    first, _, rest = path.read_bytes().partition(b"\n")
    if first.startswith(b"#!") and b"python" in first:
        copy = python.parent / path.name
        copy.write_bytes(f"#!{python}\n".encode() + rest)
        copy.chmod(0o755)
