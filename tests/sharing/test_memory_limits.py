"""Limits of memory for a container's share, by NVIDIA's own hook on simulated GPUs.

Admission writes the limit into a container's environment (`tests/schedulers/test_dra.py`); the
container toolkit's hook reads it there before the container starts, and sets it for its control
group by the driver's library. Here the hook is the real one, the control group is of version 2 and
real, and the library is simulated: that a GPU then holds the program to it is not shown.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bedplate.components.schedulers.dra import LIMIT, SOFT_LIMIT
from tests.substrate.images.recipes import known_tools
from tests.unit import test_gpu_simulation as simulated
from tests.unit.test_gpu_simulation import LIBRARIES, Nvml, install_driver, modprobe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

host = simulated.host
MIB = 2**20
#: The first branch that has the call, and one that has not.
WITH, WITHOUT = "615.10.01", "580.95.05"
SEEN = Path("/sys/fs/cgroup")
#: Runs the hook where control groups are of version 2 as on a host that has no other, or of 1.
VERSIONS = {
    2: "mount --bind {unified} {seen} && exec {hook}",
    1: "mount -t tmpfs none {seen} && exec {hook}",
}


def unified() -> Path:
    """Return where this machine has its control groups of version 2."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    return Path(next(words[1] for words in mounts if words[2] == "cgroup2"))


def kept(root: Path) -> list[list[str]]:
    """Return the limits that a host's simulated driver was given, the last for each group."""
    path = root / "run/substrate/gpu/memory-limits"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


@dataclass(frozen=True)
class Container:
    """A process in a control group of its own, where a container runtime asks for the hook."""

    bundle: Path
    group: str
    pid: int
    root: Path

    def hook(self, uuid: str, version: int = 2, **environment: str) -> str:
        """Run the hook as before a container's start; return why it fails, or nothing."""
        process = {"env": [f"{name}={value}" for name, value in environment.items()]}
        spec = {"ociVersion": "1.2.0", "process": process}
        (self.bundle / "config.json").write_text(json.dumps(spec))
        state = {"ociVersion": "1.2.0", "id": "c", "status": "creating", "pid": self.pid}
        program = known_tools()["nvidia-container-toolkit"].program("nvidia-cdi-hook")
        words = (program, "apply-cuda-memory-limits", "--driver-root", self.root, "--gpu-id", uuid)
        hook = " ".join(map(str, words))
        script = VERSIONS[version].format(unified=unified(), seen=SEEN, hook=hook)
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", script],
            input=json.dumps({**state, "bundle": str(self.bundle)}),
            capture_output=True,
            text=True,
            check=False,
        )
        return "" if done.returncode == 0 else done.stderr

    def limits(self) -> list[list[str]]:
        """Return what was set, the last for each: of which card, soft and hard, of which group."""
        return kept(self.root)


@pytest.fixture
def container(host: Callable[[str, int], Path], tmp_path: Path) -> Iterator[Container]:
    root = host("t4-16gb", 2)
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    group = unified() / f"bedplate-{tmp_path.name}"
    group.mkdir()
    with subprocess.Popen(["sleep", "600"]) as sleeper:
        (group / "cgroup.procs").write_text(str(sleeper.pid))
        yield Container(bundle, str(SEEN / group.name), sleeper.pid, root)
        sleeper.kill()
    group.rmdir()


def driver(root: Path, version: str) -> str:
    """Load a driver; return the UUID of its second GPU."""
    install_driver(root, version)
    # As the loader of a host finds it.
    place = root / "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
    place.unlink(missing_ok=True)
    place.symlink_to(root / LIBRARIES / f"libnvidia-ml.so.{version}")
    assert modprobe.main(["nvidia"]) == 0
    nvml = Nvml(root, version)
    assert nvml("Init_v2") == 0
    return nvml.text("DeviceGetUUID", 1)


def test_the_hook_sets_what_admission_wrote_for_the_containers_group(container: Container) -> None:
    uuid = driver(container.root, WITH)
    assert container.hook(uuid, **{LIMIT: "8192"}) == ""
    size = str(8192 * MIB)
    assert container.limits() == [["1", size, size, container.group]]


def test_no_container_starts_without_what_a_limit_needs(container: Container) -> None:
    """A limit that cannot be set is never left out."""
    uuid = driver(container.root, WITH)
    said = container.hook(uuid, version=1, **{LIMIT: "8192"})
    assert "only supported in cgroup v2" in said
    assert "exceeds memory limit" in container.hook(uuid, **{LIMIT: "8192", SOFT_LIMIT: "8193"})
    assert container.hook(uuid) == ""
    assert container.limits() == []


def test_a_driver_without_the_call_lets_no_container_with_a_limit_start(
    container: Container,
) -> None:
    uuid = driver(container.root, WITHOUT)
    assert "failed to set memory limits" in container.hook(uuid, **{LIMIT: "8192"})
    assert container.hook(uuid) == ""
    assert container.limits() == []
