"""Environments of their own, for programs that are no dependency of this package: made once."""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
import sys
from typing import TYPE_CHECKING

from bedplate.mirror.store import cache

if TYPE_CHECKING:
    from pathlib import Path


def python(requirements: Path) -> Path:
    """Return the Python that has what a file of pinned requirements with hashes names."""
    mark = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()[:16]
    folder = cache() / "environments" / f"{requirements.stem}-{mark}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
            pip = [str(folder / "bin/python"), "-m", "pip", "install", "--quiet"]
            pip += ["--disable-pip-version-check", "--require-hashes", "-r", str(requirements)]
            subprocess.run(pip, check=True)
            (folder / "ready").touch()
    return folder / "bin/python"
