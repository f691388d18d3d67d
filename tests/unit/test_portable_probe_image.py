"""The image by which Docker is asked for GPUs: the host's C library, and no file of NVIDIA's."""

from __future__ import annotations

import subprocess
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.portable.evidence import container
from bedplate.portable.evidence.area import Collected, Wishes
from bedplate.portable.host import Host, Result
from bedplate.portable.runtime import probe_image
from bedplate.portable.runtime.containers import WORK, ContainerError, Docker

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

LIBRARIES = "/lib/x86_64-linux-gnu"
SLEEP = f"""\
\tlinux-vdso.so.1 (0x00007ffd3b1f2000)
\tlibc.so.6 => {LIBRARIES}/libc.so.6 (0x00007f6a5c000000)
\t/lib64/ld-linux-x86-64.so.2 (0x00007f6a5c2f9000)
"""
SMI = SLEEP + f"\tlibm.so.6 => {LIBRARIES}/libm.so.6 (0x00007f6a5be00000)\n"


class Machine:
    """A host with merged folders and Docker, as its command shows it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.asked: list[list[str]] = []
        self.imported: dict[str, Any] = {}
        for link in ("bin", "lib", "lib64"):
            (root / "usr" / link).mkdir(parents=True)
            (root / link).symlink_to(f"usr/{link}")
        (root / "usr/lib/x86_64-linux-gnu").mkdir()
        for name in ("libc.so.6", "libm.so.6"):
            self.file(f"usr/lib/x86_64-linux-gnu/{name}")
        for name in ("usr/lib64/ld-linux-x86-64.so.2", "usr/bin/sleep", "usr/lib/nvidia-smi"):
            self.file(name)
        (root / "usr/bin/nvidia-smi").symlink_to("../lib/nvidia-smi")
        self.host = Host(str(root), self.run)

    def file(self, name: str) -> None:
        (self.root / name).write_text(name)

    def run(self, argv: Sequence[str], *_: object) -> Result:
        self.asked.append(list(argv))
        if argv[0] == "ldd":
            return Result(0, SLEEP if argv[1].endswith("sleep") else SMI, "")
        if argv[1] == "import":
            with tarfile.open(argv[2]) as archive:
                self.imported = {one.name: one for one in archive.getmembers()}
        return Result(0, "", "")


def test_the_image_is_of_the_hosts_own_files_and_goes_afterwards(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    docker = Docker(machine.host, probe_image.NAME, ["sleep", "600"])
    docker.prepare()
    files = {name: one.size for name, one in machine.imported.items() if one.isfile()}
    assert files == {
        "usr/bin/sleep": len("usr/bin/sleep"),
        "usr/lib/x86_64-linux-gnu/libc.so.6": 34,
        "usr/lib/x86_64-linux-gnu/libm.so.6": 34,
        "usr/lib64/ld-linux-x86-64.so.2": 30,
    }
    links = {name: one.linkname for name, one in machine.imported.items() if one.issym()}
    assert links == {"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64"}
    assert not (tmp_path / WORK.lstrip("/")).exists()
    docker.clear()
    assert machine.asked[-1] == ["docker", "image", "rm", "--force", probe_image.NAME]
    assert not [argv for argv in machine.asked if argv[1:2] == ["pull"]]


def test_a_host_without_the_drivers_program_says_so(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    (tmp_path / "usr/bin/nvidia-smi").unlink()
    with pytest.raises(ContainerError, match="the host has no sleep or nvidia-smi"):
        Docker(machine.host, probe_image.NAME, ["sleep", "600"]).prepare()


def test_a_program_runs_from_nothing_but_the_image(tmp_path: Path) -> None:
    """As on this machine, whose ldd and C library are real; `true` stands for nvidia-smi."""

    def run(argv: Sequence[str], *_: object) -> Result:
        known = ["ldd", "/usr/bin/true"] if argv[-1].endswith(probe_image.ASKS) else list(argv)
        done = subprocess.run(known, capture_output=True, text=True, check=False)
        return Result(done.returncode, done.stdout, done.stderr)

    class WithDriver(Host):
        def exists(self, name: str) -> bool:
            return name.endswith(probe_image.ASKS) or super().exists(name)

    image = tmp_path / "image.tar"
    assert probe_image.write(WithDriver("/", run), str(image))
    with tarfile.open(image) as archive:
        archive.extractall(tmp_path / "root", filter="tar")
    done = subprocess.run(
        ["chroot", tmp_path / "root", "/usr/bin/sleep", "0"], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_docker_is_asked_itself_and_not_said_to_have_no_tool(tmp_path: Path) -> None:
    to = Collected([], {}, {})
    machine = Machine(tmp_path)
    containers = {"runtime": "docker", "default": "nvidia", "image": probe_image.NAME}
    wish = Wishes(containers={**containers, "command": ["sleep", "600"], "cases": "core"})
    container.collect(machine.host, wish, to)
    assert [check["id"] for check in to.checks] == ["container.isolation"]
    assert to.checks[0]["reason"] == "the host itself sees no GPU"
