"""Simulated GPU hardware for hosts that are containers.

`install` puts the simulation into an image's root; `plug` says which cards a host made from it
has. From then on nothing outside can tell: packages install, ``modprobe nvidia`` loads the version
that is installed, NVIDIA's own programs find the cards. The one thing that says otherwise is a line
``Simulated: bedplate`` at the end of /proc/driver/nvidia/version.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.substrate.gpu.library import build
from tests.substrate.gpu.models import SimulationError, slots

__all__ = ["SimulationError", "install", "plug"]

HOST_FILES = Path(__file__).parent / "host"
#: On the host, relative to its root.
HOME = "usr/lib/substrate/gpu"
SLOTS = f"{HOME}/slots"
KERNEL_PROGRAMS = ("insmod", "lsmod", "modinfo", "modprobe", "rmmod")
UNIT = "simulated-gpus.service"


def install(rootfs: Path) -> None:
    """Put the simulation into the root file system of an image (Debian's, with kmod and systemd).

    A host made from it has no cards until `plug`'s files are placed into it.

    Raises `SimulationError` when the library can't be built or the root lacks what is replaced.
    """
    libraries = build()
    shutil.copytree(
        HOST_FILES,
        rootfs,
        dirs_exist_ok=True,
        symlinks=True,
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    for library in libraries.values():
        shutil.copy(library, rootfs / HOME / library.name)
    (rootfs / SLOTS).touch()
    wants = rootfs / "etc/systemd/system/sysinit.target.wants"
    wants.mkdir(parents=True, exist_ok=True)
    unit = wants / UNIT
    if not unit.is_symlink():
        unit.symlink_to(f"/usr/lib/systemd/system/{UNIT}")
    _divert(rootfs)


def plug(model: str, count: int) -> dict[str, bytes]:
    """Return the files, relative to a host's root, that give it ``count`` cards of ``model``.

    They count from the host's next boot on; see `tests.substrate.gpu.replug` for a running host.

    Raises `SimulationError` for an unknown model or more cards than a host has slots.
    """
    return {SLOTS: slots(model, count).encode()}


def _divert(rootfs: Path) -> None:
    """Replace kmod's programs so that an upgrade of kmod leaves the replacements alone."""
    listed = rootfs / "var/lib/dpkg/info/kmod.list"
    if not listed.is_file():
        raise SimulationError(
            f"the simulated kernel has nothing to replace — {rootfs} — got no package kmod / "
            "allowed a Debian root with kmod — add kmod to the image's packages"
        )
    for path in listed.read_text(encoding="utf-8").split():
        program = Path(path)
        if program.name in KERNEL_PROGRAMS and program.parent.name in ("bin", "sbin"):
            subprocess.run(
                [
                    "dpkg-divert",
                    "--root",
                    str(rootfs),
                    "--quiet",
                    "--local",
                    "--rename",
                    "--divert",
                    f"{path}.kmod",
                    "--add",
                    path,
                ],
                check=True,
            )
            (rootfs / path.lstrip("/")).unlink(missing_ok=True)
            (rootfs / path.lstrip("/")).symlink_to(f"/{HOME}/kmod")
