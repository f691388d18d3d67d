"""The provider and the language host under the real engine, hosts played by the test world."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from bedplate.lock.file import write_lock
from tests.stacks.locks import of_control_planes
from tests.stacks.world import ENVIRONMENT, World
from tests.substrate.pulumi import LANGUAGE_HOST, environment, official

PROGRAM = Path(__file__).with_name("program")
SECONDS = 600


class Stack:
    """A stack of the test program, in a world and a site of its own."""

    def __init__(self, tmp_path: Path, world: World, site: Path) -> None:
        self.world, self.site = world, site
        self.planes, self.workers = "cp1", ""
        self.forgotten = ""
        self.kubernetes = "1.36.3"
        # A copy of the program's configuration beside nothing of other tests.
        self.project = tmp_path / "stacks" / "program"
        shutil.copytree(PROGRAM, self.project)
        definition = (PROGRAM / "Pulumi.yaml").read_text()
        definition = definition.replace("../../../.venv", str(PROGRAM.parents[2] / ".venv"))
        definition = definition.replace("../plugin", str(PROGRAM.with_name("plugin")))
        (self.project / "Pulumi.yaml").write_text(definition)
        self._environment = {
            **os.environ,
            **environment(site),
            ENVIRONMENT: str(world.directory),
            "SITE": os.path.relpath(site, self.project),
            "PULUMI_STACK": "world",
            # Not the user's own backend, if there is one.
            "PULUMI_BACKEND_URL": f"file://{self._state(tmp_path)}",
        }
        self.run("stack", "init", "world")

    @staticmethod
    def _state(folder: Path) -> Path:
        state = folder / "state"
        state.mkdir()
        return state

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command of Pulumi."""
        return subprocess.Popen(
            ["pulumi", *arguments],
            cwd=self.project,
            env={
                **self._environment,
                "PLANES": self.planes,
                "WORKERS": self.workers,
                "FORGOTTEN": self.forgotten,
                "KUBERNETES": self.kubernetes,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str, status: int = 0) -> str:
        """Run a command of Pulumi and return its output."""
        process = self.start(*arguments)
        output, _ = process.communicate(timeout=SECONDS)
        assert (process.returncode != 0) == (status != 0), output
        return output

    def up(self, *arguments: str, status: int = 0) -> str:
        """Bring the stack up."""
        return self.run("up", "--yes", "--skip-preview", *arguments, status=status)


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    """A stack with a control plane and three hosts at hand."""
    world = World(tmp_path / "world")
    world.add("cp1")
    for name in ("w1", "w2", "w3"):
        world.add(name, gpus=4)
    site = tmp_path / "site"
    site.mkdir()
    return Stack(tmp_path, world, site)


def test_a_cluster_comes_changes_and_goes(stack: Stack) -> None:
    stack.workers = "w1 w2 w3"
    assert "+ 9 to create" in stack.run("preview")
    assert stack.world.journal() == [], "a preview contacts nothing"
    assert "+ 9 created" in stack.up()
    stack.run("preview", "--expect-no-changes")
    assert "Geheimnis" not in stack.run("stack", "export")
    assert "Geheimnis" in stack.run("stack", "output", "--show-secrets", "kubeconfig")

    stack.workers = "w1 w2"
    assert "- 2 deleted" in stack.up()
    assert [line.split(" drain ")[1].split()[0] for line in stack.world.journal(" drain ")] == [
        "w3"
    ]
    assert stack.world.api["nodes"].keys() == {"cp1", "w1", "w2"}

    stack.run("destroy", "--yes", "--skip-preview")
    assert not any(
        (stack.world.root(name) / "etc/kubernetes").exists() for name in ("cp1", "w1", "w2", "w3")
    )


def test_another_kubernetes_is_refused_in_the_preview(stack: Stack) -> None:
    stack.workers = "w1"
    stack.up()
    stack.kubernetes = "1.37.0"
    words = (
        "the host does not run the lock's Kubernetes — ControlPlane cp1 — got 1.36.3 / allowed "
        "1.37.0 — run ansible-playbook bedplate.gpu.upgrade, then pulumi up again"
    )
    assert words in " ".join(stack.run("preview", status=1).split())
    assert words in " ".join(stack.up(status=1).split())
    stack.kubernetes = "1.36.3"
    stack.run("preview", "--expect-no-changes")
    stack.kubernetes = "1.37.0"
    for name in ("cp1", "w1"):
        stack.world.set(name, runs="1.37.0")
    assert "~ 2 updated" in stack.up()
    stack.run("preview", "--expect-no-changes")


def test_a_worker_joins_while_the_first_control_plane_is_away(stack: Stack) -> None:
    """Another one of the lock's is asked, and the user is told once."""
    write_lock(stack.site, of_control_planes(["cp1", "cp2"], "192.0.2.1:6443"))
    stack.workers = "w1"
    stack.world.add("cp2")
    stack.up()
    shutil.rmtree(stack.world.root("cp2"))
    stack.world.root("cp1").rename(stack.world.root("cp2"))
    stack.workers = "w1 w2 w3"
    output = stack.up()
    assert "+ 4 created" in output
    _, _, told = output.partition("Diagnostics:")
    assert told.count("cp1 cannot be reached; cp2 is asked in its place") == 1
    assert {"w2", "w3"} < stack.world.api["nodes"].keys()


def test_the_first_control_plane_is_replaced_and_leaves_as_any_other(stack: Stack) -> None:
    names = ["cp1", "cp2", "cp3"]
    write_lock(stack.site, of_control_planes(names, "192.0.2.1:6443"))
    for name in names[1:]:
        stack.world.add(name)
    stack.planes, stack.workers = " ".join(names), "w1"
    stack.up()
    stack.world.root("cp1").rename(stack.world.directory / "gone")
    stack.world.write_api({**stack.world.api, "gone": ["cp1"]})
    stack.world.add("cp1")
    stack.run("refresh", "--yes", "--skip-preview")
    assert "+ 1 to create" in stack.run("preview")
    assert "+ 1 created" in stack.up()
    stack.run("preview", "--expect-no-changes")
    assert stack.world.members == names

    stack.planes = "cp2 cp3"
    write_lock(stack.site, of_control_planes(names[1:], "192.0.2.1:6443"))
    said = stack.up()
    assert "- 1 deleted" in said
    assert "created" not in said.rpartition("Resources:")[2]
    stack.run("preview", "--expect-no-changes")
    assert stack.world.members == ["cp2", "cp3"]
    assert set(stack.world.api["nodes"]) == {"cp2", "cp3", "w1"}
    assert len(stack.world.journal("kubeadm init --config")) == 1
    stack.planes = "cp0 cp2 cp3"
    stack.world.add("cp0")
    write_lock(stack.site, of_control_planes(["cp0", *names[1:]], "192.0.2.1:6443"))
    assert "+ 1 created" in stack.up()
    assert stack.world.members == ["cp0", "cp2", "cp3"]
    assert len(stack.world.journal("kubeadm init --config")) == 1
    # What a state still says of the one that has left is nobody's way.
    stack.run("destroy", "--yes", "--skip-preview")
    assert stack.world.members == ["cp0"]  # the last one's data goes with its host's reset
    hosts = [stack.world.root(name) for name in ("cp0", "cp2", "cp3", "w1")]
    assert not [host for host in hosts if (host / "etc/kubernetes").exists()]


def test_a_resource_that_forgot_its_provider_fails(stack: Stack) -> None:
    assert "+ 3 to create" in stack.run("preview")
    stack.forgotten = "lost-gpus"
    output = stack.run("preview", status=1)
    assert "GpuReady::lost-gpus' must use an explicit provider." in output


def test_a_plugin_that_cannot_start_holds_nobody_else_up(stack: Stack) -> None:
    words = "error starting plugins: nvml: Driver/library version mismatch"
    plugin = {"attempts": 3, "state": "CONTAINER_EXITED", "log": words, "restarts": True}
    stack.world.set("w2", gpus=0, plugin=plugin)
    stack.workers = "w1 w2"
    output = stack.up(status=1)
    assert words in output
    assert "w2 offers 0 nvidia.com/gpu, the lock expects 4" in output
    exported = stack.run("stack", "export")
    state = json.loads(exported[exported.index("{") :])["deployment"]["resources"]
    kept = {r["urn"].rpartition("::")[2]: r for r in state if r["type"].endswith(":GpuReady")}
    assert kept.keys() == {"w1-gpus", "w2-gpus"}, "what is half made stays in state"
    assert kept["w1-gpus"]["outputs"]["allocatable"] == 4
    assert "initErrors" not in kept["w1-gpus"]
    short, last_words = kept["w2-gpus"]["initErrors"]
    assert short == "w2 offers 0 nvidia.com/gpu, the lock expects 4"
    head, _, log = last_words.partition("\n")
    assert re.fullmatch(
        r"nvidia-device-plugin on w2 is exited \(attempt \d+\), its last log lines:", head
    )
    assert log == words
    stack.world.set("w2", gpus=4)
    assert "~ 1 updated" in stack.up()
    assert len(stack.world.journal("kubeadm join")) == 2


def test_one_of_four_workers_cannot_join_and_three_are_in(stack: Stack) -> None:
    stack.world.add("w4", gpus=4)
    stack.up()
    stack.workers = "w1 w2 w3 w4"
    for name in ("w1", "w2", "w4"):
        stack.world.set(name, join_seconds=2, joins_together=4)
    stack.world.set("w3", joins_together=4, fail="[ERROR Port-10250]: Port 10250 is in use")
    output = stack.up(status=1)
    assert "Port 10250 is in use" in output
    assert set(stack.world.api["nodes"]) == {"cp1", "w1", "w2", "w4"}
    stack.world.set("w3", fail="")
    stack.up()
    assert set(stack.world.api["nodes"]) == {"cp1", "w1", "w2", "w3", "w4"}
    # Each joined once, and w3 once more.
    assert len(stack.world.journal("kubeadm join")) == 5
    stack.run("preview", "--expect-no-changes")


def test_killed_in_mid_join_it_goes_on_and_joins_nothing_twice(stack: Stack) -> None:
    stack.workers = "w1 w2"
    for name in ("w1", "w2"):
        stack.world.set(name, join_seconds=5)
    killed = stack.start("up", "--yes", "--skip-preview")
    deadline = time.monotonic() + SECONDS
    while len(stack.world.journal("kubeadm join")) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    children = _children(killed.pid)
    host = LANGUAGE_HOST if official() else "language_host.py"
    assert any(host in line for line in children.values())
    assert any("stacks.world.provider" in line for line in children.values())
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    deadline = time.monotonic() + SECONDS
    while left := {pid: line for pid, line in children.items() if Path(f"/proc/{pid}").exists()}:
        assert time.monotonic() < deadline, f"still running: {left}"
        time.sleep(0.1)
    stack.run("cancel", "--yes")
    stack.up()
    assert len(stack.world.journal("kubeadm join")) == 2
    assert stack.world.journal("kubeadm reset") == []


def _children(parent: int) -> dict[int, str]:
    listed = subprocess.run(
        ["ps", "-wweo", "pid=,ppid=,args="], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()]
    return {int(pid): args for pid, ppid, args in rows if int(ppid) == parent}
