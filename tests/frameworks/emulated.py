"""A machine with a kernel of its own, emulated by QEMU: it runs one script and powers off.

QEMU, kernel and the script's programs are packages of one root, so this machine gets none of them.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.substrate.hosts import image
from tests.substrate.hosts.shell import run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PACKAGES = ["iproute2", "kmod", "qemu-system-x86"]
#: The smaller kernel, which lacks what only hardware has: RDMA for one.
CLOUD_KERNEL = "linux-image-cloud-amd64"
KERNEL = "linux-image-amd64"
DISK = "3G"
MEMORY = 1024
#: A start takes 13 s on an idle machine.
PATIENCE = 500
PROGRAM = "run-by-the-machine"
BEGIN = """#!/bin/sh
exec </dev/console >/dev/console 2>&1
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
ip link set lo up
try() {
  name=$1; shift
  if text=$("$@" 2>&1); then state=well; else state=badly; fi
  echo "@$name|$state|$(echo "$text" | tr '\\n' ' ')"
}
"""
END = """
echo '@end|well|'
sync
echo o > /proc/sysrq-trigger
sleep 60
"""
TRIED = re.compile(r"^@(\w+)\|(well|badly)\|(.*?)\s*$", re.MULTILINE)


class Tried:
    """What the script's lines `try NAME COMMAND…` printed, and which of them ended well."""

    def __init__(self, console: str) -> None:
        self.console = console
        found = TRIED.findall(console)
        self._ended = {name: state == "well" for name, state, _ in found}
        self.said: dict[str, str] = {name: said for name, _, said in found}

    def well(self, name: str) -> str:
        """Return what a command printed that ended well."""
        assert self._ended[name], f"{name}: {self.said[name]}"
        return self.said[name]

    def badly(self, name: str) -> str:
        """Return what a command printed that failed."""
        assert not self._ended[name], f"{name} ended well: {self.said[name]}"
        return self.said[name]


def ran(
    script: str,
    packages: Sequence[str],
    *,
    kernel: str = CLOUD_KERNEL,
    files: Mapping[str, bytes] | None = None,
) -> Tried:
    """Run a shell script as root and alone on such a machine, which has these packages too.

    `files` are programs and others by their path.
    """
    named = [*PACKAGES, kernel, *packages]
    recipe = image.Recipe("machine", "bookworm", ["main"], named, [], {})
    base = image.base_of(recipe)
    with tempfile.TemporaryDirectory(prefix="bedplate-machine-") as folder:
        root, disk = Path(folder, "root"), Path(folder, "disk")
        root.mkdir()
        run(["tar", "--extract", f"--file={base}", f"--directory={root}"])
        for place, content in (files or {}).items():
            path = root / place.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            path.chmod(0o755)
        (root / PROGRAM).write_text(BEGIN + script + END)
        (root / PROGRAM).chmod(0o755)
        run(["truncate", f"--size={DISK}", str(disk)])
        run(["mke2fs", "-q", "-t", "ext4", "-d", str(root), str(disk)])
        disk.rename(root / "disk")
        return Tried(_console(root))


def _console(root: Path) -> str:
    """Start the machine, and return what it has printed once it is off."""
    options = f"root=/dev/vda rw console=ttyS0 mitigations=off panic=-1 quiet init=/{PROGRAM}"
    (kernel,), (initrd,) = ((root / "boot").glob(f"{name}-*") for name in ("vmlinuz", "initrd.img"))
    qemu = ["/usr/bin/qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max"]
    qemu += ["-m", str(MEMORY), "-smp", "2", "-nodefaults", "-no-reboot", "-display", "none"]
    qemu += ["-kernel", f"/boot/{kernel.name}", "-initrd", f"/boot/{initrd.name}"]
    qemu += ["-append", options, "-serial", "stdio", "-device", "virtio-blk-pci,drive=disk"]
    qemu += ["-drive", "file=/disk,format=raw,if=none,id=disk,cache=unsafe"]
    done = subprocess.run(
        ["chroot", str(root), *qemu],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=PATIENCE,
        check=False,
    )
    print(done.stdout)
    assert "@end|well|" in done.stdout, f"the script did not end: {done.stderr}"
    return done.stdout
