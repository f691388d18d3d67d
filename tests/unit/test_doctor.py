"""`bedplate doctor`: what this machine lacks, found with real programs, sockets and files."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.bill import signatures
from bedplate.cli import main as cli
from bedplate.cli.doctor import finding, hosts, machine
from bedplate.cli.doctor.finding import Finding, each
from bedplate.portable import os_release
from bedplate.portable.host import Host

if TYPE_CHECKING:
    from collections.abc import Iterator

VENV = Path(sys.executable).parent
OWN = version("bedplate")
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHQ7Zp1PpHY0Lw5pXGq3q0O6nqM6wXH0l0b8q8cQ5X1s"


@pytest.fixture(autouse=True)
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user with a folder of programs, and without any setting of Pulumi."""
    for name in [name for name in os.environ if name.startswith(("PULUMI_", "ANSIBLE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "home").mkdir()
    (tmp_path / "bin").mkdir()
    return tmp_path


def program(user: Path, name: str, text: str) -> None:
    """Put a program on PATH."""
    path = user / "bin" / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def machine_has(**needs: Any) -> dict[str, Finding]:
    """Return the findings of the machine by their check."""
    asked = {"cluster": True, "gpgv": True, "kubernetes": None} | needs
    return {one.check: one for one in machine.findings(None, **asked)}


def test_a_path_without_programs_lacks_all_at_once() -> None:
    found = machine_has(kubernetes="1.35.6")
    assert {check: one.state for check, one in found.items()} == {
        "Python": "OK",
        **dict.fromkeys(("ssh", "ansible-playbook"), "LACKING"),
        "collection bedplate.gpu": "not checked",
        **dict.fromkeys(("gpgv", "pulumi", "python3 of pulumi"), "LACKING"),
        **dict.fromkeys(("pulumi-resource-bedplate", "kubectl", "openssl"), "LACKING"),
    }
    assert found["ansible-playbook"].fix == f". {VENV}/activate"
    assert found["pulumi-resource-bedplate"].fix == f". {VENV}/activate"
    assert found["pulumi"].fix.endswith(f"sh -s -- --version {version('pulumi')}")
    assert "https://dl.k8s.io/v1.35.6/bin/linux/" in found["kubectl"].fix
    sudo = "" if os.geteuid() == 0 else "sudo "
    family = os_release.family(Host())
    if family:  # of another system the package's names are given
        package = signatures.PACKAGES[family]
        assert found["gpgv"].fix == f"{sudo}{machine.INSTALL[family]} {package}"
    assert found["gpgv"] == Finding(
        "gpgv", "LACKING", "no gpgv on PATH", "bedplate mirror", found["gpgv"].fix
    )


def test_what_a_site_does_not_need_is_not_listed() -> None:
    found = machine_has(cluster=False, gpgv=False)
    assert [*found] == ["Python", "ssh", "ansible-playbook", "collection bedplate.gpu"]


def test_programs_of_this_environment_are_found_and_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", f"{VENV}:{os.environ['PATH']}")
    found = machine_has()
    assert found["ansible-playbook"].found == f"{VENV}/ansible-playbook"
    assert found["collection bedplate.gpu"].state == "OK"
    assert found["collection bedplate.gpu"].found.startswith(f"{OWN}, {VENV.parent}")
    assert found["python3 of pulumi"].found == f"{OWN}, {VENV}/python3"
    assert found["pulumi-resource-bedplate"].state == "OK"


def test_an_older_collection_that_ansible_finds_first(
    user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its own list begins with, which is sorted by path."""
    monkeypatch.setenv("PATH", f"{VENV}:{os.environ['PATH']}")
    for place in ("home/.ansible/collections", "an older one", "one older still"):
        folder = user / place / "ansible_collections/bedplate/gpu"
        folder.mkdir(parents=True)
        known = {"namespace": "bedplate", "name": "gpu", "version": "0.0.1"}
        (folder / "MANIFEST.json").write_text(json.dumps({"collection_info": known, "format": 1}))
    places = ["an older one", "one older still"]
    for setting in (None, places, places[::-1]):
        first = user / (setting[0] if setting else "home/.ansible/collections")
        if setting:
            path = ":".join(f"{user}/{place}" for place in setting)
            monkeypatch.setenv("ANSIBLE_COLLECTIONS_PATH", path)
        found = machine._collection("collection")
        folder = f"{first}/ansible_collections/bedplate/gpu"
        assert found.fix == f"rm -r {shlex.quote(folder)}  # bedplate has its own"
        assert found.state == "LACKING"
        assert found.found == f"0.0.1, {first}/ansible_collections; bedplate is {OWN}"


@pytest.mark.parametrize(
    ("text", "state", "found"),
    [
        ("echo v3.259.0", "OK", "3.259.0"),
        ("echo v3.100.0", "LACKING", "3.100.0; >=3.200.0 is needed"),
        ("echo cannot >&2; exit 4", "LACKING", "cannot"),
    ],
)
def test_pulumi_is_of_a_version_that_the_projects_require(
    user: Path, text: str, state: str, found: str
) -> None:
    program(user, "pulumi", text)
    one = machine._pulumi("pulumi")
    assert (one.state, one.found) == (state, found)


def test_a_program_that_does_not_end_is_not_waited_for(
    user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "SECONDS", 0.3)
    program(user, "pulumi", f"exec {shutil.which('sleep', path='/usr/bin:/bin')} 60")
    program(user, "pulumi-resource-bedplate", "exec /bin/sleep 60")
    start = time.monotonic()
    assert machine._pulumi("pulumi").found == "pulumi without an end after 0 s"
    assert machine._provider(machine.PLUGIN).found == "no port after 0 s"
    assert time.monotonic() - start < 20


def test_a_provider_that_ends_at_once(user: Path) -> None:
    program(user, "pulumi-resource-bedplate", "exit 1")
    found = machine._provider(machine.PLUGIN)
    assert (found.state, found.found) == ("LACKING", "it ends at once")


def test_a_question_without_an_answer_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "SECONDS", 0.2)
    assert each([5, 0], lambda number: time.sleep(number) or number) == {0: 0}
    with pytest.raises(ZeroDivisionError):
        each([0], lambda number: 1 / number)


def test_more_questions_than_threads_are_all_answered() -> None:
    assert each(range(1000), lambda number: -number) == {one: -one for one in range(1000)}


@pytest.mark.parametrize(
    ("variables", "file", "states"),
    [
        ({}, None, ["LACKING", "LACKING"]),
        ({"PULUMI_BACKEND_URL": "file:///state"}, None, ["OK", "LACKING"]),
        ({"PULUMI_BACKEND_URL": "s3://state", "PULUMI_CONFIG_PASSPHRASE": ""}, None, ["OK", "OK"]),
        ({"PULUMI_CONFIG_PASSPHRASE_FILE": "/nowhere"}, None, ["LACKING", "LACKING"]),
        ({"PULUMI_CONFIG_PASSPHRASE_FILE": "/etc/passwd"}, None, ["LACKING", "OK"]),
        ({"PULUMI_ACCESS_TOKEN": "t"}, None, ["OK"]),
        ({"PULUMI_ACCESS_TOKEN": "t"}, "encryptionsalt: v1:x", ["OK", "LACKING"]),
        ({"PULUMI_BACKEND_URL": "s3://state"}, "secretsprovider: awskms://x", ["OK"]),
    ],
)
def test_state_and_passphrase_of_pulumi(
    user: Path,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    file: str | None,
    states: list[str],
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    if file is not None:
        (user / "stacks/cluster").mkdir(parents=True)
        (user / "stacks/cluster/Pulumi.main.yaml").write_text(file + "\n")
    assert [one.state for one in machine.state_of(user / "inventory")] == states


def test_a_login_is_a_backend_and_its_password_is_not_printed(user: Path) -> None:
    (user / "home/.pulumi").mkdir()
    current = json.dumps({"current": "postgres://me:secret@db.example/state"})
    (user / "home/.pulumi/credentials.json").write_text(current)
    assert [one.found for one in machine.state_of(None)][:1] == ["db.example/state"]


@pytest.fixture
def port() -> Iterator[int]:
    """A port of loopback at which connections are taken."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def site(user: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A site with a host that answers, one that does not, and seven behind a jump host."""
    gpus = ["--os", "debian-12", "--gpu", "l40s:1"]
    pools = ["--hosts", "cp=cp1.invalid", "--hosts", "gpu=gpu[1:9].invalid"]
    assert cli.main(["init", str(user / "lab"), *pools, *gpus]) == 0
    own = user / "lab/inventory/host_vars"
    own.mkdir()
    known = user / "known"
    known.write_text(f"[127.0.0.1]:{port} {KEY}\n")
    there = f"-o UserKnownHostsFile={known} -o GlobalKnownHostsFile=none"
    each_host = {
        "cp1": {"ansible_host": "127.0.0.1", "ansible_port": port},
        "gpu1": {"ansible_host": "127.0.0.2", "ansible_port": port},
        **{f"gpu{number}": {"jump": "-J gate.invalid"} for number in range(2, 9)},
        "gpu9": {"jump": "-o StrictHostKeyChecking=accept-new"},
    }
    for name, variables in each_host.items():
        jump = variables.pop("jump", "")
        content = variables | {"ansible_ssh_common_args": f"{there} {jump}".strip()}
        (own / f"{name}.invalid.yml").write_text(json.dumps(content))
    for name in ("ssh", "ssh-keygen"):
        path = shutil.which(name, path="/usr/bin:/bin")
        assert path
        (user / "bin" / name).symlink_to(path)
    monkeypatch.chdir(user / "lab")
    return user / "lab/inventory"


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    """Run the command, and return its status and what it prints as data."""
    capsys.readouterr()
    status = cli.main(["doctor", *arguments, "--json"])
    content: dict[str, Any] = json.loads(capsys.readouterr().out)
    return status, content


def test_hosts_of_a_site(
    site: Path, port: int, user: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, content = as_json(capsys, "inventory")
    assert (status, content["ok"]) == (2, False)
    rows = {(one["check"], one["state"], one["found"]): one["fix"] for one in content["findings"]}
    behind = "7 hosts: " + ", ".join(f"gpu{number}.invalid" for number in range(2, 7))
    behind += " and 2 more"
    unknown = " ".join(f"gpu{number}.invalid" for number in range(2, 9))
    refused = ("SSH", "LACKING", f"port {port}: Connection refused: gpu1.invalid")
    assert ("SSH", "OK", f"port {port} answers: cp1.invalid") in rows
    assert rows[refused] == (
        f"start sshd there, or let this machine reach port {port}, then: for host in 127.0.0.2; "
        f"do ssh -p {port} $host true; done"
    )
    assert ("SSH", "not checked", f"only reached by ssh -J gate.invalid: {behind}") in rows
    assert ("host key", "OK", "is known: cp1.invalid") in rows
    assert rows["host key", "LACKING", "is not known: gpu1.invalid"] == (
        f"ssh-keyscan -p {port} 127.0.0.2 >> {user}/known  # compare each key with the host's "
        "console"
    )
    assert rows["host key", "LACKING", f"is not known: {behind}"] == (
        f"for host in {unknown}; do ssh -J gate.invalid -p 22 $host true; done  # compare each key "
        "with the host's console"
    )
    accepted = "StrictHostKeyChecking is accept-new: gpu9.invalid"
    assert ("host key", "not checked", accepted) in rows
    unresolved = [one for one in rows if one[2].startswith("name does not resolve")]
    assert [(check, state) for check, state, _ in unresolved] == [
        ("name cp1.invalid", "LACKING"),
        ("SSH", "LACKING"),
    ]
    assert unresolved[1][2].endswith(": gpu9.invalid")


def test_lock_and_bill_of_a_site(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(site / "host_vars")  # nodes are not planned at addresses of loopback

    def of(check: str) -> list[tuple[str, str]]:
        found = as_json(capsys, "inventory")[1]["findings"]
        return [(one["found"], one["fix"]) for one in found if one["check"] == check]

    assert of("lock") == [
        ("inventory/.bedplate.lock.yml: site has no lock", "bedplate plan inventory")
    ]
    assert cli.main(["plan", "inventory"]) == 0
    assert of("lock") == [("up to date", "")]
    assert of("bill")[0][1] == "bedplate mirror resolve inventory"
    settings = site / "group_vars/pool_gpu.yml"
    settings.write_text(settings.read_text() + "bedplate_labels: {a.example/b: c}\n")
    [(found, fix)] = of("lock")
    assert found.startswith("inventory/.bedplate.lock.yml: lock is stale: ")
    assert fix == "bedplate plan inventory"


def test_without_ssh_no_key_is_looked_for(
    site: Path, user: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (user / "bin/ssh").unlink()
    found = as_json(capsys, "inventory")[1]["findings"]
    keys = [(one["state"], one["found"]) for one in found if one["check"] == "host key"]
    assert [state for state, _ in keys] == ["not checked"]
    assert keys[0][1].startswith("ssh does not run: 10 hosts: ")


def test_a_site_that_is_wrong_does_not_hide_the_machine(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (site / "group_vars/all/more.yml").write_text("bedplate_gpuu: 1\n")
    status, content = as_json(capsys, "inventory")
    found = {one["check"]: one for one in content["findings"]}
    assert status == 2
    assert found["inventory"]["state"] == "LACKING"
    assert "unknown setting" in found["inventory"]["found"]
    assert found["lock"]["state"] == "not checked"
    assert found["pulumi"]["state"] == "LACKING"


def test_no_site(user: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, content = as_json(capsys, str(user / "nowhere"))
    [found] = [one for one in content["findings"] if one["check"] == "inventory"]
    assert found["found"] == f"{user}/nowhere: no such site"
    assert found["fix"] == "make one with `bedplate init DIR`"


def test_the_table_has_each_command_below_its_row(
    user: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["doctor"]) == 2
    lines = capsys.readouterr().out.splitlines()
    row = lines.index(
        "ansible-playbook          LACKING      no ansible-playbook on PATH, needed by "
        "bedplate.gpu.site"
    )
    assert lines[row + 1] == f"    fix: . {VENV}/activate"
    assert lines[-1] == "10 lacking of 12 checks."


def test_nothing_lacking_is_status_0(user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ssh", "gpgv", "kubectl", "openssl"):
        program(user, name, "")
    program(user, "pulumi", f"echo v{version('pulumi')}")
    monkeypatch.setenv("PATH", f"{VENV}:{os.environ['PATH']}")
    monkeypatch.setenv("PULUMI_BACKEND_URL", "file:///state")
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "")
    before = {*user.rglob("*")}
    assert cli.main(["doctor"]) == 0
    # Ansible's own, which it makes whenever it reads its configuration.
    scratch = {*(user / "home/.ansible").rglob("*"), user / "home/.ansible"}
    assert {*user.rglob("*")} - before - scratch == set()


def test_many_hosts_are_named_by_the_first_ones() -> None:
    assert hosts._named(["a"]) == "a"
    assert hosts._named(["a", "b"]) == "2 hosts: a, b"
    assert (
        hosts._named([f"h{one}" for one in range(37)]) == "37 hosts: h0, h1, h2, h3, h4 and 32 more"
    )
