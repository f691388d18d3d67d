"""Limits of memory in containers: containerd, runc and the CDI specification of NVIDIA's toolkit.

The programs are the real ones, and so is each container's control group, of version 2. The GPUs and
the driver's library are simulated: that a GPU then holds a program to its limit is not shown.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
import yaml

from bedplate.components.schedulers.dra import LIMIT
from tests.schedulers.control_plane import tool
from tests.schedulers.processes import Process
from tests.sharing.test_memory_limits import MIB, SEEN, WITH, WITHOUT, driver, kept, unified
from tests.unit import test_gpu_simulation as simulated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

host = simulated.host
HOOK = "apply-cuda-memory-limits"
#: Of containerd, and the control group above its containers'.
NAMESPACE = f"bedplate-{os.getpid()}"
#: Prints its control group and its limit as it finds them itself.
PROGRAM = f"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(void) {{
    char line[4096];
    const char *limit = getenv("{LIMIT}");
    FILE *groups = fopen("/proc/self/cgroup", "r");
    while (groups && fgets(line, sizeof line, groups))
        if (strncmp(line, "0::", 3) == 0)
            printf("%s", line + 3);
    puts(limit ? limit : "none");
    return 0;
}}
"""
#: The runtime sees two of the machine's file systems differently: control groups of version 2
#: alone, and a /run of its own with the specification.
START = (
    "mount --bind {unified} {seen} && mount -t tmpfs none /run && mkdir /run/cdi &&"
    " cp {specification} /run/cdi && exec {containerd} --config {configuration}"
)


@dataclass(frozen=True)
class Runtime:
    """A containerd of its own on a host with GPUs."""

    folder: Path
    root: Path
    process: Process

    def ctr(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        """Ask containerd as its own client."""
        client = tool("containerd") / "ctr"
        inside = ["nsenter", f"--target={self.process.pid}", "--mount"]
        options = [f"--address={self.folder / 'socket'}", f"--namespace={NAMESPACE}"]
        return subprocess.run(
            [*inside, client, *options, *words],
            capture_output=True,
            text=True,
            check=False,
        )

    def run(self, name: str, device: str, **environment: str) -> tuple[list[str], str]:
        """Run a container with a GPU; return what its program printed, or why it did not start."""
        words = ["run", "--rm", "--rootfs", "--cpu-shares=0", f"--device={device}"]
        words += [f"--env={key}={value}" for key, value in environment.items()]
        done = self.ctr(*words, self.folder / "image", name, "/program")
        return done.stdout.split(), "" if done.returncode == 0 else done.stderr


def specification(root: Path) -> str:
    """Return what the toolkit says to runtimes of a host's GPUs."""
    toolkit = tool("nvidia-container-toolkit")
    command = [toolkit / "nvidia-ctk", "--quiet", "cdi", "generate", "--driver-root", root]
    command += ["--dev-root", root, "--nvidia-cdi-hook-path", toolkit / "nvidia-cdi-hook"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    said = yaml.safe_load(done.stdout)
    for device in said["devices"]:
        for hook in device["containerEdits"]["hooks"]:
            assert HOOK in hook["args"]
            # A hook has its own environment alone, and the simulation asks there for its host.
            hook["env"].append(f"SIMULATED_GPU_ROOT={root}")
    return yaml.safe_dump(said)


@pytest.fixture
def started(
    host: Callable[[str, int], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], tuple[Runtime, str]]]:
    """Start the runtime of a host with a driver; return it, and the UUID of the second GPU."""
    root, folder = host("t4-16gb", 2), tmp_path_factory.mktemp("runtime")
    processes: list[Process] = []

    def start(version: str) -> tuple[Runtime, str]:
        uuid = driver(root, version)
        said, configured = folder / "gpus.yaml", folder / "containerd.toml"
        said.write_text(specification(root))
        configured.write_text(
            "version = 3\n"
            f"root = '{folder}/root'\nstate = '{folder}/state'\n"
            "disabled_plugins = ['io.containerd.cri.v1.images', 'io.containerd.cri.v1.runtime',"
            " 'io.containerd.grpc.v1.cri']\n"
            f"[grpc]\naddress = '{folder}/socket'\n[ttrpc]\naddress = '{folder}/ttrpc'\n"
        )
        for directory in ("etc", "proc", "sys", "dev"):
            (folder / "image" / directory).mkdir(parents=True)
        compiler = ["gcc", "-static", "-x", "c", "-o", folder / "image/program", "-"]
        subprocess.run(compiler, input=PROGRAM, text=True, check=True)
        script = START.format(
            unified=unified(),
            seen=SEEN,
            specification=said,
            containerd=tool("containerd") / "containerd",
            configuration=configured,
        )
        path = ":".join(map(str, (tool("runc"), tool("containerd"), os.environ["PATH"])))
        process = Process(
            ["unshare", "--mount", "sh", "-c", script],
            folder / "containerd.log",
            {**os.environ, "PATH": path},
        )
        processes.append(process)
        process.start()
        runtime = Runtime(folder, root, process)
        process.until(lambda: runtime.ctr("version").returncode == 0)
        return runtime, uuid

    yield start
    for process in processes:
        process.stop()
    if (group := unified() / NAMESPACE).exists():
        group.rmdir()


def test_each_container_has_its_own_limit(
    started: Callable[[str], tuple[Runtime, str]],
) -> None:
    """Shares of two sizes on one GPU, and a container without a limit that nothing is set for."""
    runtime, uuid = started(WITH)
    sizes = {"small": 2048, "large": 8192}
    groups = {}
    for name, size in sizes.items():
        printed, why = runtime.run(name, f"nvidia.com/gpu={uuid}", **{LIMIT: str(size)})
        assert why == ""
        groups[name], found = printed
        assert found == str(size)
    assert len(set(groups.values())) == 2
    expected = [
        ["1", str(size * MIB), str(size * MIB), f"{SEEN}{groups[name]}"]
        for name, size in sizes.items()
    ]
    assert kept(runtime.root) == expected
    printed, why = runtime.run("whole", "nvidia.com/gpu=0")
    assert (printed[1], why) == ("none", "")
    assert kept(runtime.root) == expected


def test_a_container_whose_limit_cannot_be_set_does_not_start(
    started: Callable[[str], tuple[Runtime, str]],
) -> None:
    runtime, uuid = started(WITHOUT)
    printed, why = runtime.run("share", f"nvidia.com/gpu={uuid}", **{LIMIT: "8192"})
    assert printed == []
    assert "failed to set memory limits" in why
    assert kept(runtime.root) == []
    printed, why = runtime.run("whole", f"nvidia.com/gpu={uuid}")
    assert (printed[1:], why) == (["none"], "")
