"""Files out of Debian packages of any release, without a change to this machine's own sources."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from tests.substrate.hosts import apt_sources

if TYPE_CHECKING:
    from pathlib import Path


def unpack(folder: Path, release: str, packages: dict[str, str]) -> Path:
    """Download packages of a Debian release into a folder and return where they are unpacked.

    ``packages`` maps a package's name to its archive component. apt works on lists of its own below
    the folder, fetched from the mirrors that this machine uses, and checks their signatures.
    """
    root = folder / "root"
    for part in ("lists/partial", "archives/partial", "root"):
        (folder / part).mkdir(parents=True)
    sources = folder / "debian.sources"
    files = [(path.name, path.read_text()) for path in apt_sources.machine_files()]
    components = sorted(set(packages.values()))
    sources.write_text(
        apt_sources.derive(files, apt_sources.machine_codename(), release, components)
    )
    options = {
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": folder / "lists",
        "Dir::Cache": folder,
        "Acquire::Languages": "none",
        "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
        # The folder may be closed to apt's own user.
        "APT::Sandbox::User": "root",
    }
    apt = ["apt-get", "-qq", *(f"-o{key}={value}" for key, value in options.items())]
    for command in (["update"], ["download", *packages]):
        subprocess.run([*apt, *command], check=True, cwd=folder, stdout=subprocess.DEVNULL)
    for archive in sorted(folder.glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", archive, root], check=True)
    return root
