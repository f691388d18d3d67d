"""Stand-ins as Debian packages, in a signed repository of the flat form that the vendor uses."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from pathlib import Path
from typing import TYPE_CHECKING

from tests.substrate.standin.packages import ORIGIN, StandIn
from tests.substrate.standin.signing import PUBLIC, Key

if TYPE_CHECKING:
    from collections.abc import Iterable


def control(package: StandIn) -> str:
    """Return a package's control data."""
    needs = [f"{name} ({version})" if version else name for name, version in package.relations()]
    fields = {
        "Package": package.name,
        "Version": package.version,
        "Architecture": "amd64",
        "Maintainer": f"{ORIGIN} <standin@example.invalid>",
        "Section": "misc",
        "Priority": "optional",
        "Origin": ORIGIN,
        "Depends": ", ".join(needs),
        "Provides": package.one_of,
        "Conflicts": ", ".join(filter(None, [package.one_of, *package.replaces])),
        "Replaces": ", ".join(filter(None, [package.one_of, *package.replaces])),
        "Description": "stand-in without the vendor's content, for tests",
    }
    return "".join(f"{key}: {value}\n" for key, value in fields.items() if value)


def build(package: StandIn, folder: Path) -> Path:
    """Build a package into a folder and return its file."""
    with tempfile.TemporaryDirectory() as work:
        root = Path(work)
        root.chmod(0o755)
        (root / "DEBIAN").mkdir()
        (root / "DEBIAN/control").write_text(control(package))
        (root / "DEBIAN/conffiles").write_text("".join(f"{n}\n" for n in package.configuration))
        fill(package, root)
        file = folder / f"{package.name}_{package.version.replace(':', '%3a')}_amd64.deb"
        command = ["dpkg-deb", "--root-owner-group", "-Znone", "--build", work, str(file)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return file


def fill(package: StandIn, root: Path) -> None:
    """Write a package's files below a folder, and a document that says what it is."""
    notice = f"A stand-in of {package.name} {package.version}: nothing of the vendor's is in it.\n"
    texts = {f"/usr/share/doc/{package.name}/STAND-IN": notice}
    for name, text in {**texts, **package.files, **package.configuration}.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name, source in package.programs.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, path)
        path.chmod(0o755)
    for name, to in package.links.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(to)


def repository(packages: Iterable[StandIn], folder: Path, key: Key, origin: str = ORIGIN) -> None:
    """Build packages into a folder with a signed index and the public key beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(max_workers=2) as pool:
        built = list(pool.map(lambda package: (package, build(package, folder)), packages))
    stanzas = [
        f"{control(package)}Filename: ./{file.name}\nSize: {file.stat().st_size}\n"
        f"SHA256: {hashlib.sha256(file.read_bytes()).hexdigest()}\n"
        for package, file in sorted(built, key=lambda pair: pair[1].name)
    ]
    index = "\n".join(stanzas).encode()
    (folder / "Packages").write_bytes(index)
    release = (
        f"Origin: {origin}\nLabel: {origin}\nArchitectures: amd64\n"
        f"Date: {formatdate(usegmt=True)}\n"
        f"SHA256:\n {hashlib.sha256(index).hexdigest()} {len(index)} Packages\n"
    )
    (folder / "InRelease").write_bytes(key.clear_signed(release.encode()))
    (folder / PUBLIC).write_bytes(key.public)
