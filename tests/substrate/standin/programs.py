"""Debian's own user-space programs, which work with simulated cards whatever driver stands in."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.catalogue.debian import unpack as download

RELEASE = "bookworm"
PACKAGES = {"nvidia-smi": "non-free", "nvidia-persistenced": "contrib"}
#: Below the cache: the programs are the same in every run.
CACHE = "standin/programs"


def cache() -> Path:
    """Return the directory outside the tree that keeps what is costly to get."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bedplate"
    return Path(os.environ.get("BEDPLATE_CACHE") or default) / CACHE


def unpack(work: Path) -> dict[str, Path]:
    """Return the programs by name, fetching them where they are not kept yet."""
    found = {name: cache() / name for name in PACKAGES}
    if not all(path.is_file() for path in found.values()):
        root = download(work / "debian", RELEASE, PACKAGES)
        cache().mkdir(parents=True, exist_ok=True)
        for name, path in found.items():
            inside = next(p for p in root.rglob(name) if _is_program(p))
            # Another run may be putting the same program there.
            fresh = path.with_name(f".{name}-{os.getpid()}")
            shutil.copy(inside, fresh)
            fresh.rename(path)
    return found


def _is_program(path: Path) -> bool:
    """Whether it is one, and not the script of the same name for systems without systemd."""
    return path.is_file() and path.read_bytes().startswith(b"\x7fELF")
