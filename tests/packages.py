"""Packages of Debian releases, fetched with the machine's own sources and unpacked alone."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from tests.substrate.hosts import apt_sources

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def unpacked(
    packages: Sequence[str],
    folder: Path,
    release: str | None = None,
    components: Sequence[str] = ("main",),
) -> Path:
    """Fetch and unpack a release's packages, by default the machine's; return the root folder."""
    files = [(path.name, path.read_text()) for path in apt_sources.machine_files()]
    machine = apt_sources.machine_codename()
    sources = apt_sources.derive(files, machine, release or machine, list(components))
    for name in ("state/lists/partial", "cache/archives/partial", "root"):
        (folder / name).mkdir(parents=True)
    (folder / "debian.sources").write_text(sources)
    options = [
        f"Dir::Etc::SourceList={folder / 'debian.sources'}",
        "Dir::Etc::SourceParts=/dev/null",
        f"Dir::State={folder / 'state'}",
        "Dir::State::status=/dev/null",
        f"Dir::Cache={folder / 'cache'}",
        "APT::Sandbox::User=root",
        "Acquire::Languages=none",
    ]
    apt = ["apt-get", "--quiet=2", *(word for one in options for word in ("-o", one))]
    for words in (["update"], ["download", *packages]):
        done = subprocess.run(
            [*apt, *words], cwd=folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    for package in packages:
        (file,) = folder.glob(f"{package}_*.deb")
        subprocess.run(["dpkg-deb", "--extract", file, folder / "root"], check=True)
    return folder / "root"
