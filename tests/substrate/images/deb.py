"""A built tool as a Debian package of its maker's name, by dpkg-deb; equal bytes each time."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.substrate.hosts.shell import run

if TYPE_CHECKING:
    from collections.abc import Iterable


def pack(target: Path, name: str, version: str, programs: Iterable[tuple[str, Path]]) -> None:
    """Write a package of programs, each with its path in the package.

    Compressed with xz, as the releases for old systems are; fast, because it is read here only.
    """
    control = {
        "Package": name,
        "Version": version,
        "Architecture": "amd64",
        "Maintainer": "Bedplate <assembled@example.invalid>",
        "Description": "assembled from a source build, not the vendor's package",
    }
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        root = Path(folder)
        root.chmod(0o755)
        (root / "DEBIAN").mkdir()
        text = "".join(f"{key}: {value}\n" for key, value in control.items())
        (root / "DEBIAN/control").write_text(text)
        for path, program in programs:
            place = root / path
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(program, place)
            place.chmod(0o755)
        # The date clamps those of all files.
        command = ["env", "SOURCE_DATE_EPOCH=0", "dpkg-deb", "--root-owner-group", "-Zxz", "-z1"]
        run([*command, "--build", str(root), str(target)], fix="install dpkg")
