"""The demo's commands, in their order, and what it says at its end."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.substrate import demo
from tests.substrate.commands import SiteCommands
from tests.substrate.hosts import containers
from tests.substrate.tools import build

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

UP = "pulumi up --yes --skip-preview"
#: Jobs of an earlier run may be there or not: this one may fail.
MAY_FAIL = "kubectl delete jobs --all --namespace lab"
WAIT = "kubectl wait job/second --namespace lab"
HOSTS = "tests/substrate/hosts/demo.yml"
COMMANDS = [
    f"python -m tests.substrate bases {HOSTS} --demo",
    f"python -m tests.substrate up {HOSTS} --site inventories/demo --demo",
    "bedplate plan inventories/demo",
    "bedplate mirror resolve inventories/demo",
    "ansible-playbook -i inventories/demo site.yml",
    "pulumi stack select --create demo -C stacks/cluster",
    f"{UP} -C stacks/cluster --stack demo",
    "pulumi stack select --create demo -C stacks/schedulers",
    f"{UP} -C stacks/schedulers --stack demo",
    "pulumi stack select --create demo -C stacks/frameworks",
    f"{UP} -C stacks/frameworks --stack demo",
    MAY_FAIL,
    "kubectl apply -f examples/queue.yml --selector=turn=first",
    "kubectl wait job/first --namespace lab '--for=jsonpath={.status.ready}=4' --timeout=180s",
    "kubectl apply -f examples/queue.yml --selector=turn=second",
    f"{WAIT} '--for=jsonpath={{.spec.suspend}}=true' --timeout=180s",
    "kubectl get workloads --namespace lab",
    f"{WAIT} --for=condition=complete --timeout=180s",
    "kubectl logs --namespace lab job/second",
    "ansible-playbook -i inventories/demo playbooks/verify.yml",
    "bedplate report inventories/demo",
]
ANSWERS = {
    "kubectl get nodes": "gpu-a v1.36.3 8\n",
    "pulumi stack output logs": "GPU 0: NVIDIA H100 PCIe\n",
    "pulumi stack output --json": json.dumps(
        {
            "hub": "http://10.213.0.11:30080",
            "hub_codes": {"seminar": "ABCDEF"},
            "hub_passwords": {"ada": "secret"},
        }
    ),
}


def host(name: str) -> containers.State:
    return containers.State("bedplate-demo-cp1", running=True, image="", spec="", id=name)


class Recorded(SiteCommands):
    """Notes the commands and answers those that are asked something."""

    ran: list[str]
    fails: str

    def run(
        self, label: str, command: list[str], *, quiet: bool = False, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        del label, quiet
        line = shlex.join(command)
        Recorded.ran.append(line)
        said = "".join(text for start, text in ANSWERS.items() if line.startswith(start))
        done = subprocess.CompletedProcess(command, 7 * (line == Recorded.fails), said)
        if check:
            done.check_returncode()
        return done


@pytest.fixture(autouse=True)
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[Recorded]:
    Recorded.ran, Recorded.fails = [], ""
    monkeypatch.setattr(demo, "SiteCommands", Recorded)
    monkeypatch.setattr(demo, "PASSED", tmp_path / "passed")
    monkeypatch.setattr(demo.containers, "states", lambda _: {"cp1": host("one")})
    monkeypatch.setattr(demo, "BUILD", [sys.executable, "-c", ""])
    monkeypatch.setattr(build, "built", lambda _: True)
    return Recorded


def test_the_commands_are_the_users_own_in_their_order(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert demo.main([]) == 0
    assert Recorded.ran[: len(COMMANDS)] == COMMANDS
    said = capsys.readouterr().out
    hand = 'eval "$(.venv/bin/python -m tests.substrate.pulumi --print-env inventories/demo)"'
    # kubectl and the rest are in the cache, which is on no user's PATH.
    assert said.index(hand) < said.index("Nodes and their GPUs:\ngpu-a v1.36.3 8\n")
    ending = said[said.index("Report:") :]
    assert ending.index(hand) < ending.index("kubectl get nodes")
    assert "inventories/demo/.bedplate/report.html" in ending
    assert "one GPU (simulated silicon):\nGPU 0: NVIDIA H100 PCIe\n" in said
    assert "Take down:  make clean\n" in ending
    assert "Hub:        http://10.213.0.11:30080 — sign up with the code ABCDEF" in said


@pytest.mark.parametrize(
    "number", [at for at, command in enumerate(COMMANDS) if command != MAY_FAIL]
)
def test_the_first_command_that_fails_ends_it_with_its_status(
    number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    Recorded.fails = COMMANDS[number]
    assert demo.main([]) == 7
    assert Recorded.ran == COMMANDS[: number + 1]
    assert f"`{COMMANDS[number]}` ended with status 7;" in capsys.readouterr().err


def test_a_run_after_one_that_passed_checks_what_is_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert demo.main([]) == 0
    Recorded.ran.clear()
    capsys.readouterr()
    assert demo.main([]) == 0
    assert Recorded.ran[:6] == [*COMMANDS[:4], *COMMANDS[-2:]]
    said = capsys.readouterr().out
    assert "everything again: .venv/bin/python -m tests.substrate.demo --all\n" in said
    assert "\nGPU 0: NVIDIA H100 PCIe\n" in said
    Recorded.ran.clear()
    assert demo.main(["--all"]) == 0
    assert Recorded.ran[: len(COMMANDS)] == COMMANDS


def test_a_check_that_fails_makes_everything_run_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.main([]) == 0
    Recorded.ran.clear()
    Recorded.fails = COMMANDS[-2]
    assert demo.main([]) == 7, "it fails at the end too"
    assert Recorded.ran == [*COMMANDS[:4], COMMANDS[-2], *COMMANDS[4:-1]]
    assert "A check failed: everything runs again.\n" in capsys.readouterr().out
    Recorded.fails = ""
    Recorded.ran.clear()
    assert demo.main([]) == 0
    assert Recorded.ran[: len(COMMANDS)] == COMMANDS, "the last run did not pass"


@pytest.mark.parametrize(
    ("change", "runs_again"),
    [
        (lambda root, _: (root / "roles/new.yml").write_text("a: 1"), True),
        (lambda root, _: (root / "roles/kubelet/main.yml").write_text("b: 2"), True),
        (lambda root, _: (root / "requirements.lock").write_text("x==2"), True),
        (lambda _, hosts: hosts.append("made-anew"), True),
        (lambda root, _: (root / "stacks/Pulumi.demo.yaml").write_text("salt: x"), False),
        (lambda root, _: (root / "docs").mkdir(), False),
    ],
)
def test_changed_files_and_new_hosts_make_everything_run_again(
    tmp_path: Path, change: Callable[[Path, list[str]], object], *, runs_again: bool
) -> None:
    for part in demo.PARTS:
        if "." in part:
            (tmp_path / part).write_text(part)
        else:
            (tmp_path / part / "kubelet").mkdir(parents=True)
    (tmp_path / "roles/kubelet/main.yml").write_text("a: 1")
    hosts = ["one", "two"]
    before = demo.fingerprint(tmp_path, hosts)
    assert demo.fingerprint(tmp_path, hosts[::-1]) == before
    change(tmp_path, hosts)
    assert (demo.fingerprint(tmp_path, hosts) != before) == runs_again


def test_a_cluster_that_does_not_answer_in_the_end_is_a_failure(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert demo.main([]) == 0
    (Recorded.fails,) = [line for line in Recorded.ran if line.startswith("kubectl get nodes ")]
    assert demo.main([]) == 7
    assert "The demo stopped: `kubectl get nodes" in capsys.readouterr().err


def test_what_needs_a_tool_waits_for_it_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts and mirror wait for all but Pulumi's two, the first stack for these too."""
    missing = {"pulumi", "volcano"}
    monkeypatch.setattr(build, "built", lambda tool: tool.name not in missing)
    monkeypatch.setattr(demo, "BUILD", [sys.executable, "-c", "import time; time.sleep(60)"])

    def ends_early() -> None:
        with demo.builds() as wait_for_all_but:
            wait_for_all_but("pulumi", "pulumi-kubernetes")
            raise InterruptedError  # an ended demo ends its builds

    started = time.monotonic()
    with pytest.raises(InterruptedError):
        ends_early()
    assert time.monotonic() - started < 30


def test_a_build_that_fails_ends_the_demo_with_its_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(build, "built", lambda tool: tool.name != "etcd")
    monkeypatch.setattr(demo, "BUILD", [sys.executable, "-c", "raise SystemExit(5)"])
    assert demo.main([]) == 5
    assert Recorded.ran == COMMANDS[:1]
    assert "ended with status 5;" in capsys.readouterr().err


@pytest.mark.parametrize(("status", "expected"), [(0, "{}\n"), (1, "{}\nE1126 memcache.go:287]\n")])
def test_an_answer_is_what_a_command_prints_unless_it_fails(
    status: int, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kubectl tells of each API that is away for a moment, also where it is not asked for one."""
    monkeypatch.setattr(SiteCommands, "environment", lambda _: dict(os.environ))
    says = f"echo '{{}}'; echo 'E1126 memcache.go:287]' >&2; exit {status}"
    site = SiteCommands(tmp_path, tmp_path / "hosts.yml")
    done = site.run("kubectl", ["sh", "-c", says], quiet=True, check=False)
    assert (done.returncode, done.stdout) == (status, expected)
    assert site.phases["kubectl"] > 0
