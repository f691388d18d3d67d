"""Hosts as systemd containers: the commands that make, start, restart and remove them.

Every container, volume and network carries a label, and only what carries it is ever removed.
"""

from __future__ import annotations

import hashlib
import io
import json
import resource
import tarfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.substrate.hosts.shell import run, succeeds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.substrate.hosts.description import Description, Host

LABEL = "io.bedplate.substrate"
SPEC = "io.bedplate.spec"
NOFILE = 1048576
NPROC = 32768
#: A host's share of the processors, by the kernel's weights; a group of programs has 1024.
#: A control plane that starves loses its leases, and what starts anew then takes yet more.
SHARES = {"control plane": 4 * 1024, "with GPUs": 1024}
PLACE = "{{.HostConfig.CgroupParent}} {{.HostConfig.CpuShares}}"
CGROUPS = Path("/sys/fs/cgroup")
MANAGER = ["podman", "info", "--format", "{{.Host.CgroupManager}}"]
NEVER_STARTED = ("configured", "created", "initialized")


@dataclass(frozen=True)
class Machine:
    """What matters about the machine below: cgroup version and the limits it can pass on.

    `flat`: hosts may have groups at the top of the tree of cgroups, each with a weight. In podman's
    own group all of them together have the weight of one. Not tried with cgroup v2 alone.
    """

    cgroup: int
    nofile: int
    nproc: int
    flat: bool = False

    @classmethod
    def here(cls) -> Machine:
        """Look at this machine."""
        unified = Path("/sys/fs/cgroup/cgroup.controllers").exists()
        return cls(
            cgroup=2 if unified else 1,
            nofile=_limit(resource.RLIMIT_NOFILE, NOFILE),
            nproc=_limit(resource.RLIMIT_NPROC, NPROC),
            flat=not unified and run(MANAGER).strip() == "cgroupfs",
        )


def _limit(which: int, wanted: int) -> int:
    hard = resource.getrlimit(which)[1]
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)


def create_command(
    description: Description,
    host: Host,
    image: str,
    machine: Machine,
    cgroup_v1_environment: Mapping[str, str],
) -> list[str]:
    """Return the podman command that creates a host's container.

    ``--systemd=false`` with a private cgroup namespace is right for both cgroup versions: podman's
    own systemd mode would put every host on cgroup v1 into the machine's one systemd hierarchy,
    and on v2 a privileged container has its namespace's tree mounted writable without it.
    """
    name = description.container(host)
    command = ["podman", "create", "--name", name, "--hostname", host.name]
    command += ["--label", f"{LABEL}={description.network}"]
    command += ["--label", f"{SPEC}={spec_digest(description, host)}"]
    command += ["--network", description.network, "--ip", host.address, "--no-hosts"]
    command += ["--runtime", "runc", "--privileged", "--cgroupns=private", "--systemd=false"]
    if machine.flat:
        shares = SHARES["with GPUs" if host.gpus else "control plane"]
        command += ["--cgroup-parent", group(name), "--cpu-shares", str(shares)]
    command += ["--stop-signal", "SIGRTMIN+3", "--stop-timeout", "15", "--restart=always"]
    command += ["--env", "container=podman"]
    if machine.cgroup == 1:
        for key, value in cgroup_v1_environment.items():
            command += ["--env", f"{key}={value}"]
    command += ["--tmpfs", "/run:rw,mode=755", "--tmpfs", "/run/lock", "--tmpfs", "/tmp"]
    # Without limits of its own, runc inside the host fails to set those of a pod.
    command += ["--ulimit", f"nofile={machine.nofile}:{machine.nofile}"]
    command += ["--ulimit", f"nproc={machine.nproc}:{machine.nproc}", "--pids-limit", "-1"]
    # A container runtime in the host keeps its overlays under /var: that needs a real file system.
    command += ["--volume", f"{volume(name)}:/var"]
    return [*command, "--log-driver", "k8s-file", image, "/usr/lib/substrate/init"]


def spec_digest(description: Description, host: Host) -> str:
    """Return a digest of what the description says of a host: it tells when that has changed."""
    name = description.container(host)
    parts = [description.network, description.subnet, group(name)]
    parts += map(str, (host.address, host.os, host.gpus))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def volume(container: str) -> str:
    """Return the name of the volume that is a host's /var."""
    return f"{container}-var"


def group(container: str) -> str:
    """Return the cgroup that a host's container lies in, at the top of the tree.

    The container is one below it: on a machine with both versions of cgroups, one at the top would
    see controllers of version 2, and crun refuses to run there.
    """
    return f"/bedplate-{container}"


@dataclass(frozen=True)
class State:
    """A container as podman sees it."""

    name: str
    running: bool
    image: str
    spec: str
    id: str = ""


def states(network: str) -> dict[str, State]:
    """Return the containers of a substrate by name.

    One that was never started is left out: what made it was interrupted, and `create` replaces it.
    """
    listed = run(
        ["podman", "ps", "--all", "--filter", f"label={LABEL}={network}", "--format", "json"]
    )
    return {
        entry["Names"][0]: State(
            entry["Names"][0],
            entry["State"] == "running",
            entry["Image"],
            entry["Labels"].get(SPEC, ""),
            entry["Id"],
        )
        for entry in json.loads(listed or "[]")
        if entry["State"] not in NEVER_STARTED
    }


def create(command: list[str], name: str, network: str, files: Mapping[str, bytes]) -> None:
    """Create a container with its volume, place files (paths relative to /) in it, and start it.

    What an interrupted call has left of it is removed first.
    """
    remove(name)
    run(["podman", "volume", "create", "--label", f"{LABEL}={network}", volume(name)])
    run(command)
    run(["podman", "cp", "-", f"{name}:/"], stdin=archive(files))
    start(name)


def archive(files: Mapping[str, bytes]) -> bytes:
    """Return a tar archive of files that root owns; only those under /root are private."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for folder in sorted({str(p) for f in files for p in Path(f).parents} - {"."}):
            entry = tarfile.TarInfo(folder)
            entry.type = tarfile.DIRTYPE
            entry.mode = 0o700 if folder.split("/")[0] == "root" else 0o755
            tar.addfile(entry)
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            entry.mode = 0o600 if name.startswith("root/") else 0o644
            tar.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def start(name: str) -> None:
    """Start a container that exists, with its group at the container's weight."""
    found = run(["podman", "container", "inspect", "--format", PLACE, name])
    parent, _, shares = found.strip().partition(" ")
    if parent == group(name):
        weighed = CGROUPS / "cpu" / parent[1:]
        weighed.mkdir(exist_ok=True)
        (weighed / "cpu.shares").write_text(shares)
    run(["podman", "start", name], fix=f"see 'podman logs {name}'")


def execute(name: str, *command: str, stdin: bytes | None = None) -> str:
    """Run a command in a host, behind SSH's back: for the substrate's own needs only."""
    flags = ["--interactive"] if stdin is not None else []
    return run(["podman", "exec", *flags, name, *command], stdin=stdin)


def remove(name: str) -> None:
    """Remove a container and its volume; fine if they are gone already."""
    if succeeds(["podman", "container", "exists", name]):
        # A host that goes for good need not shut down in order.
        run(["podman", "rm", "--force", "--time", "0", "--volumes", name])
    if succeeds(["podman", "volume", "exists", volume(name)]):
        run(["podman", "volume", "rm", volume(name)])
    # Podman leaves a group that it was given, and in it one of conmon, which ends a moment later.
    for _ in range(10):
        left = [*CGROUPS.glob(f"*{group(name)}/*/"), *CGROUPS.glob(f"*{group(name)}")]
        for folder in left:
            with suppress(OSError):
                folder.rmdir()
        if not any(folder.exists() for folder in left):
            return
        time.sleep(0.1)
