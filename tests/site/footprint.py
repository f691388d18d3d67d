"""What a site's hosts are on the machine that carries them, and what they must leave as it was."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bedplate.mirror.service import run_directory
from tests.substrate.hosts import containers
from tests.substrate.hosts.shell import run

if TYPE_CHECKING:
    from collections.abc import Collection

PROC = Path("/proc")
SHADOWS = Path(containers.__file__).parent / "files/usr/lib/substrate/sysctl-shadows"
#: What every kubelet writes for the whole machine, if nothing keeps it from that.
KUBELETS = {
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
}
KINDS = {"containers", "volumes", "networks", "processes", "mounts", "files"}
#: podman ends a removed host's monitor after it has answered. A kept connection that missed the
#: host's end lasts as long as ansible.cfg has SSH keep it, 60 s.
SECONDS = 75.0


def settings(proc: Path = PROC) -> dict[str, str]:
    """Return the machine's own values of the kernel settings that hosts have for themselves."""
    lines = [line.split() for line in SHADOWS.read_text().splitlines()]
    shadowed = {words[0] for words in lines if words and not words[0].startswith("#")}
    paths = {key: proc / "sys" / key for key in shadowed | KUBELETS}
    return {key: path.read_text() for key, path in sorted(paths.items()) if path.exists()}


def marks_of(name: str) -> list[str]:
    """Return what marks a substrate's processes and mounts: ids and folders of its hosts."""
    ids = run(["podman", "ps", "--all", "--quiet", "--no-trunc", *_of(name)]).split()
    hosts = json.loads(run(["podman", "inspect", *ids])) if ids else []
    found = [str(run_directory(name)), *ids]
    for host in hosts:
        found.append(host["NetworkSettings"]["SandboxKey"])
        if upper := host["GraphDriver"]["Data"].get("UpperDir"):
            found.append(str(Path(upper).parent))
    return [mark for mark in found if mark]


def processes(marks: Collection[str], proc: Path = PROC) -> list[str]:
    """Return the command lines of processes that bear a mark, or run in a host that does."""
    found = []
    for process in proc.glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_text(errors="replace").replace("\0", " ").strip()
            group = (process / "cgroup").read_text()
        except OSError:
            continue  # it has ended while we looked
        if line and any(mark in line or mark in group for mark in marks):
            found.append(line)
    return found


def mounts(marks: Collection[str], proc: Path = PROC) -> list[str]:
    """Return the mount points that bear a mark."""
    points = [line.split()[4] for line in (proc / "self" / "mountinfo").read_text().splitlines()]
    return [point for point in points if any(mark in point for mark in marks)]


def connections(subnet: str) -> list[str]:
    """Return who on this machine still holds a connection to a host: Ansible's kept ones, say."""
    return run(["ss", "-Htnp", "state", "established", "dst", subnet]).splitlines()


def left(name: str, marks: list[str]) -> dict[str, list[str]]:
    """Return what is there of a substrate, by kind; empty if there is nothing."""
    listed = {
        "containers": ["podman", "ps", "--all", *_of(name), "--format", "{{.Names}}"],
        "volumes": ["podman", "volume", "ls", *_of(name), "--format", "{{.Name}}"],
        "networks": ["podman", "network", "ls", *_of(name), "--format", "{{.Name}}"],
    }
    found = {kind: run(command).split() for kind, command in listed.items()}
    found |= {
        "processes": processes(marks),
        "mounts": mounts(marks),
        "files": [str(path) for path in run_directory(name).glob("*")],
    }
    return {kind: things for kind, things in found.items() if things}


def assert_gone(name: str, subnet: str, marks: list[str]) -> None:
    """Fail, with what is still there, unless nothing of a substrate is and nobody speaks to it."""
    deadline = time.monotonic() + SECONDS
    while found := left(name, marks) or connections(subnet):
        assert time.monotonic() < deadline, f"left behind: {found}"
        time.sleep(0.5)


def _of(name: str) -> list[str]:
    return ["--filter", f"label={containers.LABEL}={name}"]
